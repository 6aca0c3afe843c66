"""The files of one action, converted between timeline layout 1 (version 6) and layout 2 (versions 8 and 9).

The layouts differ in these files:

| file | layout 1 | layout 2 |
|---|---|---|
| completed, any action | ``T.action`` | ``T_C.action``, C being the completion time |
| commit, deltacommit, replacecommit: inflight and completed | JSON | Avro |
| clustering, pending | ``T.replacecommit.requested``, ``.inflight`` | ``T.clustering.requested``, ``.inflight`` |
| ``T.clean.inflight`` | the plan, as in the requested file | empty |

All other files have the same bytes and the same name: plans, cleans, rollbacks, restores, savepoints (Avro in
both). Paths in plans are absolute in both. The inflight file of a plain commit is ``T.inflight`` in both.

Every member of Hudi's commit records is converted. A member that is unknown to both forms is dropped, as Hudi drops it.
A member that JSON lacks has its value in Java: 0 for the counts, null for the rest. Avro's ``version`` is null in Hudi's
files. Hudi's readers resolve by name: a missing member gets its default. The same is done here with the schemas of Hudi
1.2.0, so the records of any version can be written with one schema.

Both archives are read and written as :class:`ArchivedAction`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tagstream.table.errors import CorruptFileError
from tagstream.table.timeline.avro_timeline import MAGIC, avro_schema, read_plan, read_record, write_record
from tagstream.table.timeline.instant import (
    CLEAN,
    CLUSTERING,
    COMMIT,
    COMPACTION,
    COMPLETED_ACTION,
    DELTA_COMMIT,
    LOG_COMPACTION,
    REPLACE_COMMIT,
    Instant,
    State,
)
from tagstream.table.timeline.operation import WriteOperationType

# Actions whose requested file is a plan that is archived with them.
PLANNED = frozenset({COMPACTION, LOG_COMPACTION, CLUSTERING, REPLACE_COMMIT, CLEAN})


@dataclass(frozen=True)
class ArchivedAction:
    """A completed action. ``action``: its name when completed (a compaction is a ``commit``); times as on the timeline.

    ``metadata`` and ``plan`` are files of timeline layout 2: the completed file (Avro), and the requested file of an
    action that executes a plan. ``planned_by``: the action's name before it was completed.
    """

    time: str
    action: str
    completion_time: str | None
    metadata: bytes | None
    plan: bytes | None = None
    planned_by: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        """(time, action): both are necessary, because a savepoint has the time of its commit."""
        return self.time, self.action


_INT_BITS = {"int": 32, "long": 64}


def conformed(name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """The record with exactly the members of schema ``name``. ValueError names a member whose value does not fit."""
    found: dict[str, Any] = _conform(avro_schema(name), value, _named_types(name), name)
    return found


@cache
def _named_types(name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def walk(schema: Any) -> None:
        if isinstance(schema, list):
            for branch in schema:
                walk(branch)
        elif isinstance(schema, dict):
            if schema.get("type") == "record":
                found[schema["name"]] = schema
                for field in schema["fields"]:
                    walk(field["type"])
            walk(schema.get("items"))
            walk(schema.get("values"))
            if isinstance(schema.get("type"), dict | list):
                walk(schema["type"])

    walk(avro_schema(name))
    return found


def _conform(schema: Any, value: Any, named: Mapping[str, Any], where: str) -> Any:
    if isinstance(schema, list):  # Hudi's unions have null and one other type
        if value is None and "null" in schema:
            return None
        return _conform(next(branch for branch in schema if branch != "null"), value, named, where)
    if isinstance(schema, str) and schema in named:
        schema = named[schema]
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return _record(schema, value, named, where)
    if kind == "map":
        pairs = _of(dict, value, where).items()
        return {_of(str, k, where): _conform(schema["values"], v, named, f"{where}.{k}") for k, v in pairs}
    if kind == "array":
        return [_conform(schema["items"], each, named, f"{where}[]") for each in _of(list, value, where)]
    return _plain(kind, value, where)


def _record(schema: dict[str, Any], value: Any, named: Mapping[str, Any], where: str) -> dict[str, Any]:
    members, found = _of(dict, value, where), {}
    for field in schema["fields"]:
        name = field["name"]
        given = members.get(name)
        if given is None and "default" in field and not (name in members and _nullable(field["type"])):
            found[name] = field["default"]
        else:
            found[name] = _conform(field["type"], given, named, f"{where}.{name}")
    return found


def _nullable(schema: Any) -> bool:
    return isinstance(schema, list) and "null" in schema


def _plain(kind: str, value: Any, where: str) -> Any:
    if kind in _INT_BITS:
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        limit = 1 << _INT_BITS[kind] - 1
        if not isinstance(number, int) or isinstance(number, bool) or not -limit <= number < limit:
            raise ValueError(f"{where} is {_short(value)}, not of Avro's type {kind}")
        return number
    if kind == "double":
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        raise ValueError(f"{where} is {_short(value)}, not a number")
    return _of({"string": str, "boolean": bool, "bytes": bytes}[kind], value, where)


def _of(kind: type, value: Any, where: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{where} is {_short(value)}, not of Avro's type for {kind.__name__}")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


COMMIT_METADATA = "HoodieCommitMetadata"
REPLACE_METADATA = "HoodieReplaceCommitMetadata"
STATS = "partitionToWriteStats"
REPLACED = "partitionToReplaceFileIds"
EXTRA = "extraMetadata"
# Members that are primitive numbers in Java, and so never null.
COUNTS = (
    "numWrites", "numDeletes", "numUpdateWrites", "numUpdates", "numInserts", "totalWriteBytes", "totalWriteErrors",
    "fileSizeInBytes", "totalLogRecords", "totalLogFilesCompacted", "totalLogSizeCompacted", "totalLogReadTimeMs",
    "totalUpdatedRecordsCompacted", "totalLogBlocks", "totalCorruptLogBlock", "totalRollbackBlocks",
)  # fmt: skip
_TIMES = ("totalScanTime", "totalCreateTime", "totalUpsertTime")


def read_commit(data: bytes, where: str) -> dict[str, Any]:
    """The content of a commit file of either layout. An empty file, which a crash may leave, is an empty commit."""
    if not data.strip():
        return {}
    if data.startswith(MAGIC):
        return read_record(data, where)
    try:
        content = json.loads(data)
    except ValueError as error:
        raise CorruptFileError(f"{where} is not readable commit metadata ({error}): restore the file") from error
    if not isinstance(content, dict):
        raise CorruptFileError(f"{where} has no commit metadata: restore the file")
    return content


def commit_record(content: Mapping[str, Any], where: str, replace: bool) -> dict[str, Any]:
    """The content as Hudi's Avro record; ``replace``: of a replace commit, which has one more member."""
    name = REPLACE_METADATA if replace else COMMIT_METADATA
    members = {**content, STATS: content.get(STATS) or {}, EXTRA: _present(content.get(EXTRA) or {}, where)}
    members |= {"version": None, "operationType": content.get("operationType") or WriteOperationType.UNKNOWN}
    members["compacted"] = bool(content.get("compacted"))
    if replace:
        members[REPLACED] = content.get(REPLACED) or {}
    try:
        record = conformed(name, members)
    except ValueError as error:
        raise CorruptFileError(f"{where} is not Hudi's commit metadata ({error}): restore the file") from error
    for stats in record[STATS].values():
        for stat in stats:
            stat |= {count: stat[count] or 0 for count in COUNTS}
            if stat["runtimeStats"] is not None:
                stat["runtimeStats"] = {time: stat["runtimeStats"][time] or 0 for time in _TIMES}
    return record


def to_avro(data: bytes, where: str, replace: bool = False) -> bytes:
    """A commit file for layout 2. A file in Avro is not changed; an empty file is an empty commit."""
    if data.startswith(MAGIC):
        return data
    record = commit_record(read_commit(data, where), where, replace)
    return write_record(avro_schema(REPLACE_METADATA if replace else COMMIT_METADATA), record)


def to_json(data: bytes, where: str, replace: bool = False) -> bytes:
    """A commit file for layout 1, without null members. :func:`to_avro` makes the same record of it."""
    record = commit_record(read_commit(data, where), where, replace)
    del record["version"]
    record[STATS] = {
        p: [{k: v for k, v in stat.items() if v is not None} for stat in stats] for p, stats in record[STATS].items()
    }
    return json.dumps(record).encode()


def _present(extra: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The map without nulls, which JSON may have and Avro's map may not."""
    if not isinstance(extra, Mapping):
        raise CorruptFileError(f"{where}: extraMetadata is not a map of texts; restore the file")
    return {key: value for key, value in extra.items() if value is not None}


_COMMITS = frozenset({COMMIT, DELTA_COMMIT, REPLACE_COMMIT})


@dataclass(frozen=True)
class ActionFile:
    """The file of one state of an action; ``where`` names it in messages."""

    instant: Instant
    data: bytes
    where: str

    @property
    def name(self) -> str:
        """The file's name in the timeline folder."""
        return self.instant.file_name()


def to_layout_2(files: list[ActionFile], completion_time: str | None) -> list[ActionFile]:
    """The files of one action for layout 2; ``completion_time`` is that of a completed action."""
    clusters = _clusters(files)
    return [_to_2(file, completion_time, clusters) for file in files]


def to_layout_1(files: list[ActionFile]) -> list[ActionFile]:
    """The files of one action for layout 1."""
    plan = next((file.data for file in files if file.instant.state is State.REQUESTED), b"")
    return [_to_1(file, plan) for file in files]


def _to_2(file: ActionFile, completion_time: str | None, clusters: bool) -> ActionFile:
    instant, data = file.instant, file.data
    if instant.is_completed:
        action = COMPLETED_ACTION.get(instant.action, instant.action)
        if action in _COMMITS:
            data = to_avro(data, file.where, replace=action == REPLACE_COMMIT)
        return replace(file, instant=replace(instant, completion_time=completion_time), data=data)
    if clusters and instant.action == REPLACE_COMMIT:
        instant = replace(instant, action=CLUSTERING)
    if instant.state is State.INFLIGHT and instant.action == CLEAN:
        data = b""
    elif instant.state is State.INFLIGHT and instant.action in _COMMITS and data:
        data = to_avro(data, file.where)
    return replace(file, instant=instant, data=data)


def _to_1(file: ActionFile, plan: bytes) -> ActionFile:
    instant, data = file.instant, file.data
    if instant.is_completed:
        action = COMPLETED_ACTION.get(instant.action, instant.action)
        if action in _COMMITS:
            data = to_json(data, file.where, replace=action == REPLACE_COMMIT)
        return replace(file, instant=replace(instant, completion_time=None), data=data)
    if instant.action == CLUSTERING:
        instant = replace(instant, action=REPLACE_COMMIT)
    if instant.state is State.INFLIGHT and instant.action == CLEAN:
        data = plan
    elif instant.state is State.INFLIGHT and instant.action in _COMMITS and data:
        data = to_json(data, file.where)
    return replace(file, instant=instant, data=data)


def _clusters(files: list[ActionFile]) -> bool:
    """Whether a replace commit has a clustering's plan: only then its unfinished files are renamed."""
    for file in files:
        if file.instant.action == REPLACE_COMMIT and file.instant.state is State.REQUESTED:
            return read_plan(file.data, REPLACE_COMMIT, file.where).is_clustering
    return False
