"""Plans of a query: which bytes of which files each batch reads, and how far every file is read after it.

A plan is written before the batch runs, so that a replay reads the same bytes. Spark's file source reads plans instead
of the data: a plan is a small text file, and one batch. Its first line has the version and the number of tasks. Each
further line is the work of one task: ``splits`` of files that begin and end at whole lines. All task lines have the
same length, padded with blanks, so that Spark's even split of the file gives each task one line.

    R/tagstream/source/plans/plan-<number>.jsonl one batch each
    R/tagstream/source/positions/<number>.jsonl  every file's position after that plan

``R`` is the query's folder. The current positions are those of the newest positions file and of the plans after it. A
plan is created exclusively, so two runs never plan the same bytes twice.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tagstream.streaming.errors import CheckpointError
from tagstream.streaming.shares import least_loaded
from tagstream.streaming.source.source_file import PRINT_BYTES, FileForm, FilePosition
from tagstream.table.errors import LeaseLostError
from tagstream.table.storage.opening import unsynced
from tagstream.table.storage.storage import Storage

PLAN_VERSION = 1
_LEAST_SPLIT = 1 << 20
_LEAST_LINE = 128
_CUT_BLOCK = 1 << 16


@dataclass(frozen=True)
class Split:
    """Bytes ``start``..``end`` of a file for one task. ``codec``: set for a compressed file; then the split is the
    whole file.

    ``position``: with the last split of a file, how far the file is read after this plan. ``check``: checksum of the
    split's last bytes, to detect a file that is overwritten between plan and batch. ``unit``: of a Hudi table as the
    source, what is read of it (``streaming.source.incr_reader``).
    """

    path: str
    start: int
    end: int
    mtime_ms: int
    codec: str | None = None
    position: FilePosition | None = None
    check: int | None = None
    unit: Mapping[str, Any] | None = None

    @property
    def size(self) -> int:
        """Number of bytes that the task reads."""
        return self.end - self.start


@dataclass(frozen=True)
class Plan:
    """Plan ``number``. ``mtime_ms``: of its newest file; of a Hudi table as the source, the time of its newest write as a
    number of 17 digits. ``tasks``: the splits of each task."""

    number: int
    mtime_ms: int
    tasks: tuple[tuple[Split, ...], ...]

    @property
    def splits(self) -> Iterable[Split]:
        """All splits, sorted by file and then by start."""
        return sorted((s for task in self.tasks for s in task), key=lambda s: (s.path, s.start))


def batches(files: Sequence[Split], limit: int) -> Iterable[list[Split]]:
    """Group files (one split each, in reading order) into batches of at most ``limit`` bytes, but at least one file
    each.
    """
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


def make_plan(
    storage: Storage,
    number: int,
    files: Sequence[Split],
    tasks: int,
    notes: Sequence[Split] = (),
    form: FileForm | None = None,
) -> Plan:
    """The plan of one batch: its files are cut into splits, which are distributed evenly over at most ``tasks`` tasks.

    ``notes``: empty splits, which only store the position of a file. ``form``: of the files; None for lines of JSON.
    """
    total = sum(f.size for f in files)
    step = max(_LEAST_SPLIT, -(-total // (2 * tasks)))
    splits = [split for file in files for split in cut(storage, file, step, form)]
    return share_out(number, splits, tasks, notes, max((f.mtime_ms for f in files), default=0))


def share_out(number: int, splits: Sequence[Split], tasks: int, notes: Sequence[Split], mtime_ms: int) -> Plan:
    """The plan of one batch with these splits, evenly distributed over at most ``tasks`` tasks."""
    wanted = max(1, min(tasks, len(splits), -(-sum(s.size for s in splits) // _LEAST_SPLIT)))
    shares: list[list[Split]] = [[] for _ in range(wanted)]
    largest_first = sorted(splits, key=lambda s: -s.size)
    for split, share in zip(largest_first, least_loaded((s.size for s in largest_first), wanted), strict=True):
        shares[share].append(split)
    shares[0] += notes
    ordered = (tuple(sorted(share, key=lambda s: (s.mtime_ms, s.path, s.start))) for share in shares)
    return Plan(number, mtime_ms, tuple(ordered))


def cut(storage: Storage, file: Split, step: int, form: FileForm | None = None) -> list[Split]:
    """A file's bytes as splits of about ``step`` bytes, each of whole records. The last one has the position."""
    out: list[Split] = []
    start = file.start
    if form is not None and file.codec is None and file.size > step * 3 // 2:
        for at in form.cuts(storage, file.path, file.start, file.end, step):
            out.append(Split(file.path, start, at, file.mtime_ms))
            start = at
    while form is None and file.codec is None and file.end - start > step * 3 // 2:
        at = _line_end(storage, file.path, start + step, file.end)
        if at >= file.end:
            break
        out.append(Split(file.path, start, at, file.mtime_ms))
        start = at
    out.append(Split(file.path, start, file.end, file.mtime_ms, file.codec, file.position))
    return [replace(split, check=checksum(storage, split)) for split in out]


def checksum(storage: Storage, split: Split) -> int:
    """Checksum of the last bytes of a split, as they are now."""
    start = max(split.start, split.end - PRINT_BYTES)
    return zlib.crc32(storage.read_range(split.path, start, split.end - start))


def _line_end(storage: Storage, path: str, at: int, end: int) -> int:
    """Where the line that contains byte ``at`` ends; ``end`` when it is the last line."""
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
    """The content of the plan's file."""
    lines = [json.dumps({"splits": [_as_json(s) for s in task]}) for task in plan.tasks]
    width = max([_LEAST_LINE, *map(len, lines)])
    head = json.dumps({"version": PLAN_VERSION, "plan": plan.number, "tasks": len(lines), "mtime_ms": plan.mtime_ms})
    return "".join(f"{line}\n" for line in (head, *(line.ljust(width) for line in lines))).encode()


def _as_json(split: Split) -> dict[str, Any]:
    """The members of a split. A split of a file has no unit, as in plans of earlier versions."""
    found = asdict(split)
    return found if split.unit is not None else {name: value for name, value in found.items() if name != "unit"}


def from_text(data: bytes, where: str) -> Plan:
    """Parse a plan's file. CheckpointError when it is damaged or has another version."""
    try:
        head, *lines = (json.loads(line) for line in data.splitlines())
        if head["version"] == PLAN_VERSION and head["tasks"] == len(lines):
            return Plan(int(head["plan"]), int(head["mtime_ms"]), tuple(splits_of(line) for line in lines))
    except (ValueError, KeyError, TypeError) as e:
        raise CheckpointError(f"{where} is damaged ({e!r}); restore it, or start with a new --checkpoint-dir") from e
    raise CheckpointError(
        f"{where} is truncated, or has another version than {PLAN_VERSION}; run the program version that wrote it"
    )


def splits_of(line: dict[str, Any]) -> tuple[Split, ...]:
    """The splits of a task's line; empty for the first line of a plan."""
    return tuple(_split(split) for split in line.get("splits", ()))


def _split(doc: dict[str, Any]) -> Split:
    position = doc.pop("position")
    return Split(**doc, position=None if position is None else FilePosition(**position))


SOURCE = "tagstream/source"
PLANS, POSITIONS = f"{SOURCE}/plans", f"{SOURCE}/positions"
SNAPSHOT = f"{SOURCE}/snapshot.jsonl"  # of a Hudi table as the source (``incr_planner``)
_MARK = f"{PLANS}/_version"
_TICK, _TICKS = f"{SOURCE}/tick", 10_000
_BEGIN, _END = "plan-", ".jsonl"

Positions = dict[str, FilePosition]


class PlanLog:
    """The plans and positions in a query's folder."""

    def __init__(self, query_folder: Storage) -> None:
        self._query_folder = query_folder
        if not query_folder.exists(_MARK):
            query_folder.replace(_MARK, f"{PLAN_VERSION}\n".encode())
        self.folder = query_folder.where(PLANS)
        self._ticks = unsynced(query_folder)
        self._newest_ms = 0  # modification time of the plan that was added last

    @property
    def numbers(self) -> list[int]:
        """Numbers of the existing plans, in ascending order."""
        return _numbers(
            name.removeprefix(_BEGIN) for name in self._query_folder.names(PLANS) if name.startswith(_BEGIN)
        )

    @property
    def is_new(self) -> bool:
        """Whether there is no plan and no position yet."""
        return not self.numbers and not _numbers(self._query_folder.names(POSITIONS))

    def positions(self) -> tuple[Positions, int]:
        """How far every file was read, and the number of the newest plan (0: there is none)."""
        kept = _numbers(self._query_folder.names(POSITIONS))
        newest = kept[-1] if kept else 0
        found = self._read_positions(newest) if kept else {}
        for number in self.numbers:
            if number > newest:
                found |= positions_after(read_plan(self._query_folder, number))
                newest = number
        return found, newest

    def add(self, plan: Plan) -> None:
        """Store a plan. LeaseLostError when another run has stored one with this number."""
        self.copy_plan(plan.number, to_text(plan))

    def copy_plan(self, number: int, text: bytes) -> None:
        """Store a plan from its text. Errors: see :meth:`add`."""
        name = plan_name(number)
        self._wait_for_tick()
        try:
            self._query_folder.write_new(name, text)
        except FileExistsError:
            raise LeaseLostError(
                f"{self._query_folder.where(name)} was written by another run of this stream; one of them must end"
            ) from None
        self._newest_ms = self._time_of(name)

    def _wait_for_tick(self) -> None:
        """Wait until the store's clock has advanced: Spark reads plans in the order of their times, and equal times in
        any order.
        """
        for _ in range(_TICKS):
            self._ticks.replace(_TICK, b"")
            if self._time_of(_TICK) != self._newest_ms:  # this also ends the wait if the clock was set back
                return

    def _time_of(self, name: str) -> int:
        folder, _, file = name.rpartition("/")
        return next((entry.mtime_ms for entry in self._query_folder.list(folder, (file,))), 0)

    def keep_positions(self, positions: Mapping[str, FilePosition], number: int) -> None:
        """Store how far every file was read after plan ``number``, and remove older positions files."""
        lines = [json.dumps({"version": PLAN_VERSION, "files": len(positions)})]
        lines += [json.dumps({"path": path, **asdict(at)}) for path, at in positions.items()]
        self._query_folder.replace(f"{POSITIONS}/{number:020d}{_END}", "".join(f"{line}\n" for line in lines).encode())
        self._query_folder.delete_many(
            f"{POSITIONS}/{n:020d}{_END}" for n in _numbers(self._query_folder.names(POSITIONS)) if n < number
        )

    def forget_plans(self, numbers: Collection[int]) -> None:
        """Remove plans of batches that will not run again, if the stored positions include them."""
        kept = _numbers(self._query_folder.names(POSITIONS))
        self._query_folder.delete_many(plan_name(n) for n in numbers if kept and n <= kept[-1])

    def _read_positions(self, number: int) -> Positions:
        name = f"{POSITIONS}/{number:020d}{_END}"
        try:
            head, *lines = (json.loads(line) for line in self._query_folder.read(name).splitlines())
            if head["version"] == PLAN_VERSION and head["files"] == len(lines):
                return {line.pop("path"): FilePosition(**line) for line in lines}
        except (ValueError, KeyError, TypeError) as e:
            raise CheckpointError(
                f"{self._query_folder.where(name)} is damaged ({e!r}); restore it, or start with a new --checkpoint-dir"
            ) from e
        raise CheckpointError(
            f"{self._query_folder.where(name)} is truncated, or has another version than {PLAN_VERSION}; run the "
            "program version that wrote it"
        )


def plan_name(number: int) -> str:
    """A plan's name in the query's folder."""
    return f"{PLANS}/{_BEGIN}{number:020d}{_END}"


def read_plan(query_folder: Storage, number: int) -> Plan:
    """Read a plan. CheckpointError when it is missing or damaged."""
    name = plan_name(number)
    try:
        return from_text(query_folder.read(name), query_folder.where(name))
    except FileNotFoundError:
        raise CheckpointError(
            f"{query_folder.where(name)} is missing; restore it, or start with a new --checkpoint-dir"
        ) from None


def plan_number(uri: str) -> int | None:
    """The number of the plan that a path in Spark's log of files names; None for a data file."""
    folder, _, name = uri.rpartition("/")
    stem = name.removeprefix(_BEGIN).removesuffix(_END)
    return int(stem) if folder.endswith(f"/{PLANS}") and name == f"{_BEGIN}{stem}{_END}" and stem.isdigit() else None


def positions_after(plan: Plan) -> Positions:
    """The positions that a plan adds."""
    return {split.path: split.position for split in plan.splits if split.position is not None}


def _numbers(names: Iterable[str]) -> list[int]:
    return sorted(int(stem) for name in names if (stem := name.removesuffix(_END)).isdigit())
