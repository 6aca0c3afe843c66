"""What Spark's own checkpoint says about a batch: query id, and the source offsets before and after it.

The offsets decide whether a batch that the table already holds is the same batch (a replay) or another one that only
has its number. Read from Spark's files (``metadata``, ``offsets/<n>``, ``commits/<n>``, ``sources/0/<n>``), which are
written before a batch runs; format: version line, metadata line, then one JSON line a source.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tagstream.streaming.errors import CheckpointError


@dataclass(frozen=True)
class Epoch:
    """One batch as Spark planned it. Offsets are the source's JSON values (files: ``{"mtime_ms", "paths"}``)."""

    query_id: str
    batch_id: int
    start_offsets: Any
    end_offsets: Any


def query_id(checkpoint: str) -> str | None:
    """The id that Spark gave the query of this checkpoint; None before its first start."""
    path = Path(checkpoint, "metadata")
    if not path.exists():
        return None
    try:
        return str(json.loads(path.read_text())["id"])
    except (ValueError, KeyError) as e:
        raise CheckpointError(f"{path} is damaged ({e}); restore this file or start with a new --checkpoint-dir") from e


def newest_batch(checkpoint: str, log: str) -> int | None:
    """Greatest batch number in Spark's ``offsets`` or ``commits`` folder; None when it is empty."""
    try:
        names = os.listdir(os.path.join(checkpoint, log))
    except FileNotFoundError:
        return None
    return max((int(n) for n in names if n.isdigit()), default=None)


def raw_offset(checkpoint: str, batch_id: int) -> Any | None:
    """The first source's offset after ``batch_id`` as Spark logged it; None for no such batch."""
    path = Path(checkpoint, "offsets", str(batch_id))
    if not path.exists():
        return None
    lines = path.read_text().splitlines()
    if len(lines) < 3:
        raise CheckpointError(
            f"{path} has {len(lines)} lines, 3 expected; restore it or start with a new --checkpoint-dir"
        )
    return None if lines[2] == "-" else json.loads(lines[2])


def read_epoch(checkpoint: str, batch_id: int, *, files: bool) -> Epoch:
    """Epoch of a batch that Spark has planned. ``files``: the source is a folder of files, not Kafka."""
    ident = query_id(checkpoint)
    after = raw_offset(checkpoint, batch_id)
    if ident is None or after is None:
        raise CheckpointError(f"batch {batch_id} is not in {checkpoint}/offsets, though Spark runs it")
    before = raw_offset(checkpoint, batch_id - 1)
    if not files:
        return Epoch(ident, batch_id, before or {}, after)
    first = -1 if before is None else int(before["logOffset"])
    last = int(after["logOffset"])
    seen = file_log(checkpoint, first + 1, last)
    return Epoch(ident, batch_id, {"log": first}, _newest_files(seen, last))


def file_log(checkpoint: str, first: int, last: int) -> list[dict[str, Any]]:
    """Entries ``{"path", "timestamp", "batchId"}`` of the file source's log for its own batches first..last."""
    folder = Path(checkpoint, "sources", "0")
    out: list[dict[str, Any]] = []
    compacts = sorted(int(p.name.split(".")[0]) for p in folder.glob("*.compact")) if folder.exists() else []
    for n in range(first, last + 1):
        path = folder / str(n)
        if not path.exists():  # folded into the next compaction of Spark's log
            fold = next((c for c in compacts if c >= n), None)
            if fold is None:
                raise CheckpointError(f"{path} is missing; restore it or start with a new --checkpoint-dir")
            path = folder / f"{fold}.compact"
        rows = [json.loads(x) for x in path.read_text().splitlines()[1:] if x]
        out += [r for r in rows if int(r["batchId"]) == n]
    return out


def _newest_files(seen: list[dict[str, Any]], last: int) -> dict[str, Any]:
    newest = max((int(r["timestamp"]) for r in seen), default=0)
    return {"log": last, "mtime_ms": newest, "paths": sorted(r["path"] for r in seen if int(r["timestamp"]) == newest)}


def streamer_checkpoint(epoch: Epoch, *, files: bool) -> str:
    """Text of ``deltastreamer.checkpoint.key``: ``topic,0:5,1:7`` (next offsets), or the newest modification time in ms."""
    if files:
        return str(epoch.end_offsets["mtime_ms"])
    ((topic, parts),) = epoch.end_offsets.items()
    return ",".join([topic, *(f"{p}:{o}" for p, o in sorted(parts.items(), key=lambda x: int(x[0])))])
