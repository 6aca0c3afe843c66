"""Heartbeats: an empty file ``.hoodie/.heartbeat/<instant>`` whose modification time says that a writer is alive.

Hudi's writers with the lazy clean policy touch it each minute and count as dead after three missed beats.
"""

from __future__ import annotations

from tagstream.table.storage.storage import META_FOLDER, Storage

HEARTBEAT_FOLDER = f"{META_FOLDER}/.heartbeat"
DEFAULT_TIMEOUT_MS = 180_000


def is_alive(storage: Storage, instant: str, now_ms: int, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> bool:
    """True when the writer of a pending instant has given a sign of life within ``timeout_ms``."""
    beats = [entry.mtime_ms for entry in storage.list(HEARTBEAT_FOLDER) if entry.name == instant]
    return any(now_ms - beat <= timeout_ms for beat in beats)


def write_heartbeat(storage: Storage, instant: str) -> None:
    """Say that the writer of a pending instant is alive."""
    storage.replace(f"{HEARTBEAT_FOLDER}/{instant}", b"")


def delete_heartbeat(storage: Storage, instant: str) -> None:
    """Forget the heartbeat of an instant that is settled."""
    storage.delete(f"{HEARTBEAT_FOLDER}/{instant}")
