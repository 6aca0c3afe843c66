"""Put Spark's part of a checkpoint aside, so that a new query can start on an index loaded from the table.

Everything that belongs to the query moves to ``C/retired/<n>/``: Spark's folders, and the index, manifests, profiles and
quarantine of its batches. ``C/tagstream/meta.json`` and the run counter stay: key groups and the stream's name do not
change. A marker file is written first, so that a kill in between is finished at the next start.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from tagstream.streaming.errors import CheckpointError
from tagstream.table.storage.opening import open_storage

_MARKER = "retiring.json"
_SPARK = ("metadata", ".metadata.crc", "offsets", "commits", "state", "sources")
_OURS = ("takeover.json", "index", "manifests", "profiles", "quarantine")


def retire(checkpoint: str, why: str) -> str:
    """Move the query's files aside and return the folder they are in now; ``why`` is kept there."""
    folder = Path(checkpoint, "retired")
    numbers = [int(p.name) for p in folder.iterdir() if p.name.isdigit()] if folder.is_dir() else []
    doc = json.dumps({"number": max(numbers, default=0) + 1, "why": why}).encode()
    open_storage(os.path.join(checkpoint, "tagstream")).replace(_MARKER, doc)
    target = finish_retiring(checkpoint)
    assert target is not None
    return target


def finish_retiring(checkpoint: str) -> str | None:
    """Finish what a killed run began; the folder it went to, None when nothing was begun."""
    marker = Path(checkpoint, "tagstream", _MARKER)
    try:
        doc = json.loads(marker.read_text("utf-8"))
        target = Path(checkpoint, "retired", str(int(doc["number"])))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as e:
        raise CheckpointError(f"{marker} is damaged ({e!r}); remove the checkpoint and start with a new one") from e
    (target / "tagstream").mkdir(parents=True, exist_ok=True)
    for name in _SPARK:
        _move(Path(checkpoint, name), target / name)
    for name in _OURS:
        _move(Path(checkpoint, "tagstream", name), target / "tagstream" / name)
    (target / "why.txt").write_text(doc["why"] + "\n", "utf-8")
    marker.unlink()
    return str(target)


def _move(source: Path, target: Path) -> None:
    if source.exists() and not target.exists():
        source.rename(target)
