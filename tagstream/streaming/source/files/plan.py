"""A plan: which bytes of which files one batch takes. Written before the batch runs, so that a replay reads the same.

Spark's file source reads plans in place of the data: a plan is a small text file, and one batch. Its first line says what
it is; each further line is the work of one task, ``splits`` of files that begin and end at whole lines. The task lines have
one length, filled up with blanks, so that Spark's even cut of the file gives each task one.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tagstream.streaming.errors import CheckpointError
from tagstream.streaming.shares import least_loaded
from tagstream.streaming.source.files.position import PRINT_BYTES, FilePosition
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
