"""Bad records on disk, each with its place in the source and the reason.

One JSON object a line under ``<quarantine>/batch=<id>/part-<n>.jsonl``: ``topic, partition, offset`` (Kafka) or ``path,
offset`` (files, bytes from its start), ``reason``, ``key_base64`` and ``value_base64`` (null where the record had
none). The bytes are the record's own, so that a mended copy can be sent again.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any


def batch_folder(folder: str, batch_id: int) -> str:
    """Folder of one batch's bad records."""
    return os.path.join(folder, f"batch={batch_id:020d}")


def write_quarantine(folder: str, batch_id: int, part: int, records: Iterable[Mapping[str, Any]]) -> str:
    """Write one task's bad records and return the file's path.

    ``records`` have their place (``topic, partition, offset`` or ``path, offset``), ``reason``, and ``key`` and
    ``value`` as bytes or None. The file appears whole or not at all, and is on disk when this returns; a replay or a
    second attempt of the task writes the same file again.
    """
    target = os.path.join(batch_folder(folder, batch_id), f"part-{part:05d}.jsonl")
    os.makedirs(os.path.dirname(target), exist_ok=True)
    temporary = f"{target}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as f:
            for record in records:  # a row loop: bad records are few, and each is its own line
                f.write(json.dumps(_line(record), ensure_ascii=False) + "\n")
            f.flush()
            os.fsync(f.fileno())
        os.replace(temporary, target)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    _sync_folder(os.path.dirname(target))
    return target


def _line(record: Mapping[str, Any]) -> dict[str, Any]:
    place = {k: v for k, v in record.items() if k not in ("reason", "key", "value")}
    return {
        **place,
        "reason": record["reason"],
        "key_base64": _base64(record["key"]),
        "value_base64": _base64(record["value"]),
    }


def _base64(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode("ascii")


def _sync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
