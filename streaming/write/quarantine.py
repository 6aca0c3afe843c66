"""Bad records on disk, each with its place in the source and the reason.

One JSON object a line under ``<quarantine>/batch=<id>/part-<n>.jsonl``: ``topic, partition, offset`` (Kafka) or ``path,
offset`` (files, bytes from its start), ``reason``, ``key_base64`` and ``value_base64`` (null where the record had
none). The bytes are the record's own, so that a mended copy can be sent again.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from tagstream.table.storage.storage import Storage


def batch_folder(batch_id: int) -> str:
    """Folder of one batch's bad records, in the quarantine."""
    return f"batch={batch_id:020d}"


def write_quarantine(quarantine: Storage, batch_id: int, part: int, records: Iterable[Mapping[str, Any]]) -> str:
    """Write one task's bad records and return the file's full path.

    ``records`` have their place (``topic, partition, offset`` or ``path, offset``), ``reason``, and ``key`` and
    ``value`` as bytes or None. The file appears whole or not at all, and is on disk when this returns; a replay or a
    second attempt of the task writes the same file again.
    """
    target = f"{batch_folder(batch_id)}/part-{part:05d}.jsonl"
    with quarantine.open_output(target) as out:
        for record in records:  # a row loop: bad records are few, and each is its own line
            out.write((json.dumps(_line(record), ensure_ascii=False) + "\n").encode())
    return quarantine.where(target)


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
