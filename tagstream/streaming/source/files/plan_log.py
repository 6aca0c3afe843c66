"""The plans of a query and what they add up to: how far every file was read.

    R/tagstream/source/plans/plan-<number>.jsonl one batch each (``streaming.source.files.plan``)
    R/tagstream/source/positions/<number>.jsonl  every file's position after that plan

Positions are what the newest file of positions says and the plans after it add. A plan is created exclusively, so two
runs never plan the same bytes twice.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict

from tagstream.streaming.errors import CheckpointError
from tagstream.streaming.source.files.plan import PLAN_VERSION, Plan, from_text, to_text
from tagstream.streaming.source.files.position import FilePosition
from tagstream.table.errors import LeaseLostError
from tagstream.table.storage.opening import unsynced
from tagstream.table.storage.storage import Storage

SOURCE = "tagstream/source"
PLANS, POSITIONS = f"{SOURCE}/plans", f"{SOURCE}/positions"
_MARK = f"{PLANS}/_version"
_TICK, _TICKS = f"{SOURCE}/tick", 10_000
_BEGIN, _END = "plan-", ".jsonl"

Positions = dict[str, FilePosition]


class PlanLog:
    """The plans and positions below a query's root."""

    def __init__(self, root: Storage) -> None:
        self._root = root
        if not root.exists(_MARK):
            root.replace(_MARK, f"{PLAN_VERSION}\n".encode())
        self.folder = root.where(PLANS)
        self._ticks = unsynced(root)
        self._newest_ms = 0  # of the plan that was added last

    @property
    def numbers(self) -> list[int]:
        """Numbers of the plans that are kept, rising."""
        return _numbers(name.removeprefix(_BEGIN) for name in self._root.names(PLANS) if name.startswith(_BEGIN))

    @property
    def is_new(self) -> bool:
        """Whether nothing was planned and no position was kept yet."""
        return not self.numbers and not _numbers(self._root.names(POSITIONS))

    def positions(self) -> tuple[Positions, int]:
        """How far every file was read, and the number of the newest plan (0: there is none)."""
        kept = _numbers(self._root.names(POSITIONS))
        newest = kept[-1] if kept else 0
        found = self._read_positions(newest) if kept else {}
        for number in self.numbers:
            if number > newest:
                found |= positions_after(read_plan(self._root, number))
                newest = number
        return found, newest

    def add(self, plan: Plan) -> None:
        """Keep a plan. LeaseLostError when another run has made one of its number."""
        self.copy_plan(plan.number, to_text(plan))

    def copy_plan(self, number: int, text: bytes) -> None:
        """Keep a plan that has its text already, as :meth:`add` keeps one."""
        name = plan_name(number)
        self._wait_for_tick()
        try:
            self._root.write_new(name, text)
        except FileExistsError:
            raise LeaseLostError(
                f"{self._root.where(name)} was written by another run of this stream; one of them must end"
            ) from None
        self._newest_ms = self._time_of(name)

    def _wait_for_tick(self) -> None:
        """Let the store's clock go on: Spark takes plans by their times, and any first of those that have the same."""
        for _ in range(_TICKS):
            self._ticks.replace(_TICK, b"")
            if self._time_of(_TICK) != self._newest_ms:  # a clock that was set back is not waited for
                return

    def _time_of(self, name: str) -> int:
        folder, _, file = name.rpartition("/")
        return next((entry.mtime_ms for entry in self._root.list(folder, (file,))), 0)

    def keep_positions(self, positions: Mapping[str, FilePosition], number: int) -> None:
        """Keep how far every file was read after plan ``number``, and forget older positions."""
        lines = [json.dumps({"version": PLAN_VERSION, "files": len(positions)})]
        lines += [json.dumps({"path": path, **asdict(at)}) for path, at in positions.items()]
        self._root.replace(f"{POSITIONS}/{number:020d}{_END}", "".join(f"{line}\n" for line in lines).encode())
        self._root.delete_many(
            f"{POSITIONS}/{n:020d}{_END}" for n in _numbers(self._root.names(POSITIONS)) if n < number
        )

    def forget_plans(self, numbers: Collection[int]) -> None:
        """Remove plans of batches that will not run again, if the positions that are kept have them in."""
        kept = _numbers(self._root.names(POSITIONS))
        self._root.delete_many(plan_name(n) for n in numbers if kept and n <= kept[-1])

    def _read_positions(self, number: int) -> Positions:
        name = f"{POSITIONS}/{number:020d}{_END}"
        try:
            head, *lines = (json.loads(line) for line in self._root.read(name).splitlines())
            if head["version"] == PLAN_VERSION and head["files"] == len(lines):
                return {line.pop("path"): FilePosition(**line) for line in lines}
        except (ValueError, KeyError, TypeError) as e:
            raise CheckpointError(
                f"{self._root.where(name)} is damaged ({e!r}); restore it, or start with a new --checkpoint-dir"
            ) from e
        raise CheckpointError(
            f"{self._root.where(name)} is cut, or has another version than {PLAN_VERSION}; run the program version that "
            "wrote it"
        )


def plan_name(number: int) -> str:
    """A plan's name below the root."""
    return f"{PLANS}/{_BEGIN}{number:020d}{_END}"


def read_plan(root: Storage, number: int) -> Plan:
    """A plan; CheckpointError when it is gone or damaged."""
    name = plan_name(number)
    try:
        return from_text(root.read(name), root.where(name))
    except FileNotFoundError:
        raise CheckpointError(
            f"{root.where(name)} is missing; restore it, or start with a new --checkpoint-dir"
        ) from None


def plan_number(uri: str) -> int | None:
    """The number of the plan that a path of Spark's log of files names; None for a file of data."""
    folder, _, name = uri.rpartition("/")
    stem = name.removeprefix(_BEGIN).removesuffix(_END)
    return int(stem) if folder.endswith(f"/{PLANS}") and name == f"{_BEGIN}{stem}{_END}" and stem.isdigit() else None


def positions_after(plan: Plan) -> Positions:
    """What a plan adds to the positions."""
    return {split.path: split.position for split in plan.splits if split.position is not None}


def _numbers(names: Iterable[str]) -> list[int]:
    return sorted(int(stem) for name in names if (stem := name.removesuffix(_END)).isdigit())
