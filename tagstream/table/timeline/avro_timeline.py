"""Avro object container files of the timeline: plans and metadata of actions, and commits from version 8 on.

Readers take the schema from the file. Writers must use Hudi's full names: Java resolves by name.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import fastavro

from tagstream.table.errors import CorruptFileError

MAGIC = b"Obj\x01"
SYNC_MARKER = b"tagstream-marker"  # 16 bytes, in every container file that this project writes
_STRING = {"type": "string", "avro.java.string": "String"}
_OPTIONAL_STRING = ["null", _STRING]
_INSTANT_INFO = {
    "type": "record",
    "name": "HoodieInstantInfo",
    "fields": [{"name": "commitTime", "type": _STRING}, {"name": "action", "type": _STRING}],
}


def _map(values: object) -> dict[str, object]:
    return {"type": "map", "values": values, "avro.java.string": "String"}


def _optional(name: str, kind: object) -> dict[str, object]:
    return {"name": name, "type": ["null", kind], "default": None}


_VERSION = {"name": "version", "type": ["int", "null"], "default": 1}

# Of an overwrite: everything is null in it, as Hudi writes it; a clustering puts its plan there.
REQUESTED_REPLACE = {
    "type": "record",
    "name": "HoodieRequestedReplaceMetadata",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {"name": "operationType", "type": _OPTIONAL_STRING, "default": None},
        {"name": "version", "type": ["int", "null"], "default": 1},
    ],
}

ROLLBACK_PLAN = {
    "type": "record",
    "name": "HoodieRollbackPlan",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        _optional("instantToRollback", _INSTANT_INFO),
        _optional(
            "RollbackRequests",
            {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "HoodieRollbackRequest",
                    "fields": [
                        {"name": "partitionPath", "type": _STRING},
                        {"name": "fileId", "type": _OPTIONAL_STRING, "default": None},
                        {"name": "latestBaseInstant", "type": _OPTIONAL_STRING, "default": None},
                        {"name": "filesToBeDeleted", "type": {"type": "array", "items": _STRING}, "default": []},
                        _optional("logBlocksToBeDeleted", _map("long")),
                    ],
                },
            },
        ),
        _VERSION,
    ],
}

ROLLBACK_METADATA = {
    "type": "record",
    "name": "HoodieRollbackMetadata",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {"name": "startRollbackTime", "type": _STRING},
        {"name": "timeTakenInMillis", "type": "long"},
        {"name": "totalFilesDeleted", "type": "int"},
        {"name": "commitsRollback", "type": {"type": "array", "items": _STRING}},
        {
            "name": "partitionMetadata",
            "type": _map(
                {
                    "type": "record",
                    "name": "HoodieRollbackPartitionMetadata",
                    "fields": [
                        {"name": "partitionPath", "type": _STRING},
                        {"name": "successDeleteFiles", "type": {"type": "array", "items": _STRING}},
                        {"name": "failedDeleteFiles", "type": {"type": "array", "items": _STRING}},
                        _optional("rollbackLogFiles", _map("long")),
                        _optional("logFilesFromFailedCommit", _map("long")),
                    ],
                }
            ),
        },
        _VERSION,
        {"name": "instantsRollback", "type": {"type": "array", "items": _INSTANT_INFO}, "default": []},
    ],
}


def read_record(data: bytes, where: str) -> dict[str, Any]:
    """The one record of a timeline file; CorruptFileError with the file's name otherwise."""
    try:
        record = next(iter(fastavro.reader(io.BytesIO(data))))
    except Exception as error:
        raise CorruptFileError(
            f"{where} is not a readable Avro timeline file ({error}): restore or remove it"
        ) from error
    if not isinstance(record, dict):
        raise CorruptFileError(f"{where} holds no Avro record: restore or remove it")
    return record


def write_record(schema: dict[str, Any], record: dict[str, Any], note: Mapping[str, str] | None = None) -> bytes:
    """One record as an uncompressed container file. ``note``: what its header says beside; no other reader looks at it."""
    return write_parsed(fastavro.parse_schema(dict(schema)), record, note)


def write_parsed(schema: Any, record: dict[str, Any], note: Mapping[str, str] | None = None) -> bytes:
    """The same with a schema that fastavro has parsed."""
    buffer = io.BytesIO()
    # A fixed sync marker: the same plan gives the same bytes.
    fastavro.writer(buffer, schema, [record], codec="null", sync_marker=SYNC_MARKER, metadata=dict(note or {}))
    return buffer.getvalue()
