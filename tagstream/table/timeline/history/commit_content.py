"""The content of commit files, brought from JSON (timeline layout 1) to Avro (layout 2) and back.

Every member of Hudi's records is carried; what neither form knows is dropped, as Hudi drops it. A member that JSON leaves
out is what it is in Java: 0 for the counts, null for the rest. Avro's ``version`` is null in what Hudi writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tagstream.table.errors import CorruptFileError
from tagstream.table.timeline.avro_schemas import avro_schema
from tagstream.table.timeline.avro_timeline import MAGIC, read_record, write_record
from tagstream.table.timeline.history.schemas import conformed

COMMIT_METADATA = "HoodieCommitMetadata"
REPLACE_METADATA = "HoodieReplaceCommitMetadata"
STATS = "partitionToWriteStats"
REPLACED = "partitionToReplaceFileIds"
EXTRA = "extraMetadata"
# Numbers that are plain ones in Java: they are never null there.
COUNTS = (
    "numWrites", "numDeletes", "numUpdateWrites", "numUpdates", "numInserts", "totalWriteBytes", "totalWriteErrors",
    "fileSizeInBytes", "totalLogRecords", "totalLogFilesCompacted", "totalLogSizeCompacted", "totalLogReadTimeMs",
    "totalUpdatedRecordsCompacted", "totalLogBlocks", "totalCorruptLogBlock", "totalRollbackBlocks",
)  # fmt: skip
_TIMES = ("totalScanTime", "totalCreateTime", "totalUpsertTime")


def read_commit(data: bytes, where: str) -> dict[str, Any]:
    """The content of a commit file of either layout, as it is; an empty file is an empty commit (a crash leaves such)."""
    if not data.strip():
        return {}
    if data.startswith(MAGIC):
        return read_record(data, where)
    try:
        content = json.loads(data)
    except ValueError as error:
        raise CorruptFileError(f"{where} is not readable commit metadata ({error}): restore the file") from error
    if not isinstance(content, dict):
        raise CorruptFileError(f"{where} holds no commit metadata: restore the file")
    return content


def commit_record(content: Mapping[str, Any], where: str, replace: bool) -> dict[str, Any]:
    """The content as Hudi's Avro record; ``replace``: of a replace commit, which has one member more."""
    name = REPLACE_METADATA if replace else COMMIT_METADATA
    members = {**content, STATS: content.get(STATS) or {}, EXTRA: _present(content.get(EXTRA) or {}, where)}
    members |= {"version": None, "operationType": content.get("operationType") or "UNKNOWN"}
    members["compacted"] = bool(content.get("compacted"))
    if replace:
        members[REPLACED] = content.get(REPLACED) or {}
    try:
        record = conformed(name, members)
    except ValueError as error:
        raise CorruptFileError(f"{where} is no commit metadata of Hudi's ({error}): restore the file") from error
    for stats in record[STATS].values():
        for stat in stats:
            stat |= {count: stat[count] or 0 for count in COUNTS}
            if stat["runtimeStats"] is not None:
                stat["runtimeStats"] = {time: stat["runtimeStats"][time] or 0 for time in _TIMES}
    return record


def to_avro(data: bytes, where: str, replace: bool = False) -> bytes:
    """A commit file as layout 2 has it. Avro is given as it came, an empty file as an empty commit."""
    if data.startswith(MAGIC):
        return data
    record = commit_record(read_commit(data, where), where, replace)
    return write_record(avro_schema(REPLACE_METADATA if replace else COMMIT_METADATA), record)


def to_json(data: bytes, where: str, replace: bool = False) -> bytes:
    """A commit file as layout 1 has it: every member that is not null; :func:`to_avro` gives the same record again."""
    record = commit_record(read_commit(data, where), where, replace)
    del record["version"]
    record[STATS] = {
        p: [{k: v for k, v in stat.items() if v is not None} for stat in stats] for p, stats in record[STATS].items()
    }
    return json.dumps(record).encode()


def _present(extra: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Without nulls, which JSON may hold and Avro's map may not."""
    if not isinstance(extra, Mapping):
        raise CorruptFileError(f"{where}: extraMetadata is no map of texts; restore the file")
    return {key: value for key, value in extra.items() if value is not None}
