"""The records of a Hudi table as the source, read in the tasks: rows of its snapshot, and the changes of its writes.

A task's plan has units. One unit is a file slice of the snapshot, a write stat of a commit, or a file group that a
commit has replaced. A unit names its files and instants, so a batch that runs again reads the same rows, also if
compaction or clustering has written the table's rows to other files meanwhile.

An insert or an update gives the row after it, a delete gives the row before it with ``_hoodie_is_deleted`` true. An
update gives both where the row before has another place in the target: another record key or partition path, or any
other value if records are transformed, because a transformation may make another key of it or drop the new row.

Position of a record: the write's time, twice as a number; plus one for a row. So the deletes of a write come before its
rows: a row that has moved to another partition is a delete and an insert of one write.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.errors import SourceError
from tagstream.streaming.source.decode.file_rows import ARROW_SCHEMA, parquet_avro
from tagstream.streaming.source.decode.plain_json import DELETED
from tagstream.streaming.source.decode.typed_rows import ROW
from tagstream.streaming.source.file_plans import splits_of
from tagstream.table.chunks import flat
from tagstream.table.errors import CleanedPastError, FileGoneError, MissingChangesError
from tagstream.table.file_group.fs_view import BaseFile, FileSlice, LogFile
from tagstream.table.file_group.names import join
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.change_stream import change_reader
from tagstream.table.read.file_changes import AFTER, BEFORE, DELETE, OPERATION, ChangeReader
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.read.snapshot import snapshot_schema
from tagstream.table.schema.schema import user_schema
from tagstream.table.services.cleaning_plan import check_past
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.commit_metadata import WriteStat


@dataclass(frozen=True)
class IncrSpec:
    """Where a task finds the source table. ``storage``: of the table's folder.

    ``identity``: the columns of the target's record key and partition path; None: any column may decide on the place of
    a row in the target, because records are transformed.
    """

    storage: Storage
    identity: tuple[str, ...] | None

    def planned(self, tasks: Iterable[bytes], _columns: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
        """The records of a plan's task lines, see ``file_reader.PlanReader``. All columns are read, since rows are merged
        and compared. SourceError for files that a clean has deleted.
        """
        for unit, part in planned_changes(self.storage, tasks):
            yield from self._records(unit, part)

    def _records(self, unit: Mapping[str, Any], parts: Iterator[Part]) -> Iterator[pa.RecordBatch]:
        """The records of a unit, with their positions in it."""
        first = 0
        for rows, path in parts:
            op, old, new = (flat(rows.column(name)) for name in (OPERATION, BEFORE, AFTER))
            gone = pc.equal(op, DELETE)
            for images, deleted in ((old.filter(pc.or_(gone, self._moved(old, new))), True), (new.drop_null(), False)):
                yield _batch(images, unit, deleted, path, first)
                first += len(images)

    def _moved(self, old: pa.StructArray, new: pa.StructArray) -> pa.Array:
        """Whether the row before an update may have another place in the target than the row after it."""
        names = old.type.names if self.identity is None else self.identity
        found = pa.repeat(pa.scalar(False), len(old))
        for name in names:
            if old.type.get_field_index(name) >= 0:
                found = pc.or_(found, _differs(pc.struct_field(old, name), pc.struct_field(new, name)))
        return pc.and_(found, pc.and_(old.is_valid(), new.is_valid()))


Part = tuple[pa.Table, str]


def planned_changes(storage: Storage, tasks: Iterable[bytes]) -> Iterator[tuple[Mapping[str, Any], Iterator[Part]]]:
    """For each unit of a plan's task lines (the unit, its changes with the file that they are from).

    The changes have the columns of ``ChangeReader.change_schema``; rows of the snapshot are inserts. ``storage``: of the
    table's folder. SourceError for files that a clean has deleted.
    """
    units = [split.unit for line in tasks for split in splits_of(json.loads(line)) if split.unit is not None]
    if not units:
        return
    table = HoodieTable.open(storage)
    reader = change_reader(table, table.timeline(), lambda timeline, as_of: check_past(table, timeline, as_of))
    for unit in units:
        yield unit, _found(reader, unit)


def _found(reader: ChangeReader, unit: Mapping[str, Any]) -> Iterator[Part]:
    try:
        yield from _parts(reader, unit)
    except (MissingChangesError, CleanedPastError, FileGoneError, FileNotFoundError) as e:
        raise SourceError(
            f"commit {unit['instant']} of source table {reader.table.base_path} cannot be read any more: {e}. Its rows are "
            "not in this stream's table yet. Start again with a new --checkpoint-dir and a new target table, and let the "
            "source table keep its files and commits longer than this stream may be behind "
            "(hoodie.clean.commits.retained, hoodie.keep.min.commits)"
        ) from e


def _parts(reader: ChangeReader, unit: Mapping[str, Any]) -> Iterator[Part]:
    where = reader.table.storage.where
    if "slice" in unit:
        found, names = slice_from_json(unit["slice"]), tuple(reader.row_schema.names)
        slices = SliceReader(reader.table, reader.timeline, unit["instant"], reader.schema, names)
        for rows in slices.read(found):
            yield reader.inserts(unit["instant"], rows), where(found.base_path or found.log_paths[0])
        return
    if "stat" in unit:
        stat = WriteStat.from_json(unit["stat"])
        parts, path = reader.of_stat(unit["instant"], unit["operation"], stat), stat.path
    else:
        partition, file_id = unit["replaced"]
        parts, path = reader.of_replaced(unit["instant"], partition, file_id), join(partition, file_id)
    for rows in parts:
        yield rows, where(path)


def _batch(rows: pa.StructArray, unit: Mapping[str, Any], deleted: bool, path: str, first: int) -> pa.RecordBatch:
    n = len(rows)
    columns = {field.name: rows.field(i) for i, field in enumerate(rows.type)}
    schema = pa.schema(list(rows.type)).serialize().to_pybytes()
    if deleted or DELETED not in columns:  # a table may store the mark
        columns[DELETED] = pa.repeat(pa.scalar(deleted), n)
    fields = [pa.field(name, column.type) for name, column in columns.items()]
    struct = pa.StructArray.from_arrays(list(columns.values()), fields=fields)
    place = 2 * int(unit["time"]) + (not deleted)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.nulls(n, pa.binary()),
            "value": pa.nulls(n, pa.binary()),
            "src": pa.repeat(pa.scalar(path, pa.string()), n),
            "pos_hi": pa.array(np.full(n, place, np.int64)),
            "pos_lo": pa.array(np.arange(first, first + n, dtype=np.int64)),
            ROW: struct,
        },
        metadata={ARROW_SCHEMA: schema},
    )


def _differs(old: pa.Array, new: pa.Array) -> pa.Array:
    """Whether values differ. Arrow cannot compare lists and maps: two that are not null count as different."""
    none = pc.and_(old.is_null(), new.is_null())
    if pa.types.is_struct(old.type):
        found = pc.xor(old.is_null(), new.is_null())
        for i in range(old.type.num_fields):
            found = pc.or_(found, _differs(pc.struct_field(old, [i]), pc.struct_field(new, [i])))
        return found
    if pa.types.is_nested(old.type):
        return pc.invert(none)
    return pc.invert(pc.or_(pc.fill_null(pc.equal(old, new), False), none))


def unit_of_slice(time: str, as_of: str, found: FileSlice) -> dict[str, Any]:
    """The unit of a slice of the snapshot as of an instant. ``time``: the position of the snapshot."""
    base = None if found.base_file is None else asdict(found.base_file)
    members = {"partition": found.partition_path, "file_id": found.file_id, "instant": found.base_instant}
    logs = [asdict(log) for log in found.log_files]
    return {"time": time, "instant": as_of, "slice": {**members, "base": base, "logs": logs}}


def unit_of_stat(time: str, instant: str, operation: str, stat: WriteStat) -> dict[str, Any]:
    """The unit of a write stat. ``time``: of the write, as :func:`table.read.change_stream.time_of` says."""
    members = {name: value for name, value in stat.to_json().items() if name in _STAT and value is not None}
    return {"time": time, "instant": instant, "operation": operation, "stat": members}


def unit_of_replaced(time: str, instant: str, partition: str, file_id: str) -> dict[str, Any]:
    """The unit of a file group that the write at ``instant`` has replaced."""
    return {"time": time, "instant": instant, "replaced": [partition, file_id]}


# The members of a write stat that a reader of changes needs.
_STAT = frozenset({
    "fileId", "path", "cdcStats", "prevCommit", "numWrites", "numDeletes", "numUpdateWrites", "numInserts",
    "prevBaseFile", "partitionPath", "logVersion", "baseFile", "logFiles",
})  # fmt: skip


def slice_from_json(doc: Mapping[str, Any]) -> FileSlice:
    """The slice of a unit of :func:`unit_of_slice`."""
    base = None if doc["base"] is None else BaseFile(**doc["base"])
    logs = tuple(LogFile(**log) for log in doc["logs"])
    return FileSlice(doc["partition"], doc["file_id"], doc["instant"], base, logs)


def source_table_schema(path: str) -> str:
    """The Avro schema of the rows of the table at ``path``, with partition columns that only its paths have.

    SourceError for a table without a commit that has a schema.
    """
    table = HoodieTable.open(path)
    text = table.schema_json()
    if text is None:
        raise SourceError(
            f"source table {path} has no schema, because it has no commit yet: start when it has one, or set "
            "hoodie.streamer.schemaprovider.source.schema.file"
        )
    if not table.config.dropped_fields:
        return text
    timeline = table.timeline()
    return parquet_avro(user_schema(snapshot_schema(table, timeline, table.view(timeline))), f"table {path}")
