"""Avro files of the timeline: their schemas, their bytes, and the file slices of a plan.

Plans and metadata of actions are Avro object container files; from table version 8 on commits are, too. A reader
uses the schema in the file. A writer must use Hudi's full names, because Java resolves by name. The schemas are
those of Hudi 1.2.0 without their documentation (``avro_schemas.json``).
Sources of the plans: Hudi's HoodieCompactionPlan (operations: partitionPath, fileId, baseInstantTime,
deltaFilePaths) and HoodieRequestedReplaceMetadata (operationType, clusteringPlan.inputGroups.slices: dataFilePath,
deltaFilePaths).
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

import fastavro

from tagstream.table.errors import CorruptFileError
from tagstream.table.timeline.instant import CLUSTERING, COMPACTION, LOG_COMPACTION, REPLACE_COMMIT, Instant
from tagstream.table.timeline.operation import WriteOperationType

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

# Of an overwrite: all members are null, as Hudi writes them. A clustering has its plan in this record.
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
    """The one record of a timeline file; CorruptFileError with the file's name when there is none."""
    try:
        record = next(iter(fastavro.reader(io.BytesIO(data))))
    except Exception as error:
        raise CorruptFileError(
            f"{where} is not a readable Avro timeline file ({error}): restore or remove it"
        ) from error
    if not isinstance(record, dict):
        raise CorruptFileError(f"{where} has no Avro record: restore or remove it")
    return record


def write_record(schema: dict[str, Any], record: dict[str, Any], note: Mapping[str, str] | None = None) -> bytes:
    """One record as an uncompressed container file.

    ``note``: additional metadata of its header, which other readers ignore.
    """
    return write_parsed(fastavro.parse_schema(dict(schema)), record, note)


def write_parsed(schema: Any, record: dict[str, Any], note: Mapping[str, str] | None = None) -> bytes:
    """As :func:`write_record`, with a schema that fastavro has parsed."""
    buffer = io.BytesIO()
    # A fixed sync marker: the same plan gives the same bytes.
    fastavro.writer(buffer, schema, [record], codec="null", sync_marker=SYNC_MARKER, metadata=dict(note or {}))
    return buffer.getvalue()


COMMIT_METADATA: Final = "HoodieCommitMetadata"
REPLACE_COMMIT_METADATA: Final = "HoodieReplaceCommitMetadata"


@cache
def avro_schema(name: str) -> dict[str, Any]:
    """The schema of a record as Avro JSON; KeyError for an unknown name. The result is shared: do not change it."""
    found: dict[str, Any] = _schemas()[name]
    return found


@cache
def parsed_schema(name: str) -> Any:
    """The schema of :func:`avro_schema`, parsed for fastavro."""
    return fastavro.parse_schema(avro_schema(name))


@cache
def _schemas() -> dict[str, Any]:
    text = files("tagstream.table.timeline").joinpath("avro_schemas.json").read_text("utf-8")
    schemas: dict[str, Any] = json.loads(text)
    return schemas


PLANNED = frozenset({COMPACTION, LOG_COMPACTION, CLUSTERING, REPLACE_COMMIT})


@dataclass(frozen=True)
class PlannedSlice:
    """A file slice at the time of its plan; ``files`` are the names (without folders) of its base file and log files."""

    partition_path: str
    file_id: str
    files: frozenset[str]


@dataclass(frozen=True)
class Plan:
    """A plan of an action.

    ``rewrites``: the slices that it reads; none for an insert overwrite or a delete of partitions.
    """

    operation: str
    rewrites: tuple[PlannedSlice, ...]

    @property
    def is_clustering(self) -> bool:
        """Whether the plan moves rows to other file groups. Any writer may execute it."""
        return self.operation == WriteOperationType.CLUSTER


def requested_name(instant: Instant) -> str:
    """Name of the file with the plan of an action."""
    return f"{instant.time}.{instant.action}.requested"


def read_plan(data: bytes, action: str, where: str) -> Plan:
    """The plan in a requested file of this action; an empty file (some insert overwrites) has an empty plan."""
    if not data:
        return Plan("", ())
    record = read_record(data, where)
    if action in (COMPACTION, LOG_COMPACTION):
        return Plan(action, tuple(_compacted(operation) for operation in record.get("operations") or ()))
    plan = record.get("clusteringPlan") or {}
    groups = plan.get("inputGroups") or ()
    slices = tuple(_clustered(each) for group in groups for each in group.get("slices") or ())
    clusters = action == CLUSTERING or record.get("operationType") == WriteOperationType.CLUSTER or bool(slices)
    return Plan(WriteOperationType.CLUSTER if clusters else record.get("operationType") or "", slices)


def _compacted(operation: Mapping[str, Any]) -> PlannedSlice:
    files = [operation.get("dataFilePath"), *(operation.get("deltaFilePaths") or ())]
    return _slice(operation, files)


def _clustered(found: Mapping[str, Any]) -> PlannedSlice:
    return _slice(found, [found.get("dataFilePath"), *(found.get("deltaFilePaths") or ())])


def _slice(found: Mapping[str, Any], files: list[str | None]) -> PlannedSlice:
    names = frozenset(path.rsplit("/", 1)[-1] for path in files if path)
    return PlannedSlice(found.get("partitionPath") or "", found["fileId"], names)
