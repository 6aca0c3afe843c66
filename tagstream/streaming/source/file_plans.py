"""Plans of a query: which bytes of which files each batch takes, and how far every file was read after it.

A plan is written before the batch runs, so that a replay reads the same. Spark's file source reads plans in place
of the data: a plan is a small text file, and one batch. Its first line says what it is; each further line is the
work of one task, ``splits`` of files that begin and end at whole lines. The task lines have one length, filled up
with blanks, so that Spark's even cut of the file gives each task one.

    R/tagstream/source/plans/plan-<number>.jsonl one batch each
    R/tagstream/source/positions/<number>.jsonl  every file's position after that plan

Positions are what the newest file of positions says and the plans after it add. A plan is created exclusively, so
two runs never plan the same bytes twice.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tagstream.streaming.errors import CheckpointError
from tagstream.streaming.shares import least_loaded
from tagstream.streaming.source.source_file import PRINT_BYTES, FilePosition
from tagstream.table.errors import LeaseLostError
from tagstream.table.storage.opening import unsynced
from tagstream.table.storage.storage import Storage

PLAN_VERSION = 1
_LEAST_SPLIT = 1 << 20
_LEAST_LINE = 128
_CUT_BLOCK = 1 << 16


@dataclass(frozen=True)
class Split:
    """Bytes ``start``..``end`` of a file for one task; ``codec`` where it is compressed, and then the whole file.

    ``position``: with the last split of a file, how far the file is read when the plan is done. ``check``: checksum of the
    split's last bytes, so that a file that is written over between plan and batch is noticed.
    """

    path: str
    start: int
    end: int
    mtime_ms: int
    codec: str | None = None
    position: FilePosition | None = None
    check: int | None = None

    @property
    def size(self) -> int:
        """Bytes that the task reads."""
        return self.end - self.start


@dataclass(frozen=True)
class Plan:
    """Plan ``number``; ``mtime_ms``: of the newest file in it. ``tasks``: their splits."""

    number: int
    mtime_ms: int
    tasks: tuple[tuple[Split, ...], ...]

    @property
    def splits(self) -> Iterable[Split]:
        """All splits, those of a file in their order."""
        return sorted((s for task in self.tasks for s in task), key=lambda s: (s.path, s.start))


def batches(files: Sequence[Split], limit: int) -> Iterable[list[Split]]:
    """Files (one split each, in the order they are read) in batches of at most ``limit`` bytes, one file at least."""
    batch: list[Split] = []
    size = 0
    for file in files:
        if batch and size + file.size > limit:
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.size
    if batch:
        yield batch


def make_plan(storage: Storage, number: int, files: Sequence[Split], tasks: int, notes: Sequence[Split] = ()) -> Plan:
    """The plan of one batch: its files cut into splits, shared evenly among at most ``tasks`` tasks.

    ``notes``: empty splits, which only say where the position of a file is.
    """
    total = sum(f.size for f in files)
    step = max(_LEAST_SPLIT, -(-total // (2 * tasks)))
    splits = [split for file in files for split in cut(storage, file, step)]
    wanted = max(1, min(tasks, len(splits), -(-total // _LEAST_SPLIT)))
    shares: list[list[Split]] = [[] for _ in range(wanted)]
    largest_first = sorted(splits, key=lambda s: -s.size)
    for split, share in zip(largest_first, least_loaded((s.size for s in largest_first), wanted), strict=True):
        shares[share].append(split)
    shares[0] += notes
    ordered = (tuple(sorted(share, key=lambda s: (s.mtime_ms, s.path, s.start))) for share in shares)
    return Plan(number, max((f.mtime_ms for f in files), default=0), tuple(ordered))


def cut(storage: Storage, file: Split, step: int) -> list[Split]:
    """A file's bytes in splits of about ``step``, each of whole lines; the last one has the position."""
    out: list[Split] = []
    start = file.start
    while file.codec is None and file.end - start > step * 3 // 2:
        at = _line_end(storage, file.path, start + step, file.end)
        if at >= file.end:
            break
        out.append(Split(file.path, start, at, file.mtime_ms))
        start = at
    out.append(Split(file.path, start, file.end, file.mtime_ms, file.codec, file.position))
    return [replace(split, check=checksum(storage, split)) for split in out]


def checksum(storage: Storage, split: Split) -> int:
    """Of the last bytes of a split, as they are now."""
    start = max(split.start, split.end - PRINT_BYTES)
    return zlib.crc32(storage.read_range(split.path, start, split.end - start))


def _line_end(storage: Storage, path: str, at: int, end: int) -> int:
    """Where the line that holds byte ``at`` ends; ``end`` when it is the last."""
    while at < end:
        block = storage.read_range(path, at, min(_CUT_BLOCK, end - at))
        if not block:
            return end
        found = block.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(block)
    return end


def to_text(plan: Plan) -> bytes:
    """The plan's file."""
    lines = [json.dumps({"splits": [asdict(s) for s in task]}) for task in plan.tasks]
    width = max([_LEAST_LINE, *map(len, lines)])
    head = json.dumps({"version": PLAN_VERSION, "plan": plan.number, "tasks": len(lines), "mtime_ms": plan.mtime_ms})
    return "".join(f"{line}\n" for line in (head, *(line.ljust(width) for line in lines))).encode()


def from_text(data: bytes, where: str) -> Plan:
    """A plan's file read; CheckpointError when it is damaged or of another version."""
    try:
        head, *lines = (json.loads(line) for line in data.splitlines())
        if head["version"] == PLAN_VERSION and head["tasks"] == len(lines):
            return Plan(int(head["plan"]), int(head["mtime_ms"]), tuple(splits_of(line) for line in lines))
    except (ValueError, KeyError, TypeError) as e:
        raise CheckpointError(f"{where} is damaged ({e!r}); restore it, or start with a new --checkpoint-dir") from e
    raise CheckpointError(
        f"{where} is cut, or has another version than {PLAN_VERSION}; run the program version that wrote it"
    )


def splits_of(line: dict[str, Any]) -> tuple[Split, ...]:
    """The splits of a task's line; none for the first line of a plan."""
    return tuple(_split(split) for split in line.get("splits", ()))


def _split(doc: dict[str, Any]) -> Split:
    position = doc.pop("position")
    return Split(**doc, position=None if position is None else FilePosition(**position))


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
