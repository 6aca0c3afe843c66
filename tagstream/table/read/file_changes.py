"""The changes that one write made in one file group, in the cases of Hudi's CDC query.

- A change file: its records. Images that it lacks are in the base files before and after (by record key).
- A new base file that only has inserts: each of its rows. An empty one after a delete: each row of the base file before.
- A log file: the file slice before is compared with the slice that includes the log, for the keys in the log.
- A replaced file group: each row of its last slice was deleted.
- Tables without change data capture: a base file is compared with the one before.

A row whose new version has the time of the write was inserted or updated by it. A late record changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table import chunks
from tagstream.table.errors import CorruptFileError, MissingChangesError
from tagstream.table.file_group.change_file import read_change_file
from tagstream.table.file_group.fs_view import BaseFile, FileSlice, LogFile
from tagstream.table.file_group.names import parse_base_file_name, parse_log_file_name
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.slice_reader import SliceReader, path_columns, with_path_columns
from tagstream.table.schema.conform import from_file
from tagstream.table.schema.schema import COMMIT_TIME, RECORD_KEY, is_meta_column
from tagstream.table.timeline.commit_metadata import NO_PREVIOUS, WriteStat
from tagstream.table.timeline.operation import DELETES
from tagstream.table.timeline.timeline import Timeline

OPERATION, INSTANT, BEFORE, AFTER = "op", "ts_ms", "before", "after"
INSERT, UPDATE, DELETE = "i", "u", "d"

# The slice of a file group as of an instant (partition path, file id, as of): where a stat does not name its files.
SliceAt = Callable[[str, str, str], FileSlice | None]


@dataclass(frozen=True)
class ChangeReader:
    """Reads changes of one table. ``schema``: all its columns with the meta columns. ``slice_at``: as in this module."""

    table: HoodieTable
    timeline: Timeline
    schema: pa.Schema
    slice_at: SliceAt

    @property
    def row_schema(self) -> pa.Schema:
        """The columns of an image. All are nullable: Arrow has no required members in a struct that may be null."""
        return pa.schema([field.with_nullable(True) for field in self.schema if not is_meta_column(field.name)])

    @property
    def change_schema(self) -> pa.Schema:
        """The columns of a change."""
        image = pa.struct(list(self.row_schema))
        texts = [pa.field(name, pa.string(), nullable=False) for name in (OPERATION, INSTANT)]
        return pa.schema([*texts, pa.field(BEFORE, image), pa.field(AFTER, image)])

    def of_stat(self, instant: str, operation: str, stat: WriteStat) -> Iterator[pa.Table]:
        """The changes of a write stat of the write at ``instant``.

        MissingChangesError where they were not logged and cannot be inferred, and for a file that does not exist any
        more. CorruptFileError for a change file that does not fit its base file.
        """
        try:
            if stat.change_files:
                yield from self._logged(instant, stat)
            elif stat.log_version is None and parse_base_file_name(stat.file_name) is not None:
                yield from self._of_base(instant, operation, stat)
            elif parse_log_file_name(stat.file_name) is not None:
                yield from self._of_log(instant, stat)
        except FileNotFoundError as error:
            raise self._gone(instant, str(error.filename)) from error

    def of_replaced(self, instant: str, partition: str, file_id: str) -> Iterator[pa.Table]:
        """The deletes of all rows of a group that the write at ``instant`` replaced; errors as of :meth:`of_stat`."""
        found = self.slice_at(partition, file_id, before(instant))
        if found is None:
            raise self._gone(instant, f"file group {file_id} of {self.table.storage.where(partition)}")
        try:
            for rows in self._rows(found, before(instant)):
                yield self._changes(DELETE, instant, rows, None)
        except FileNotFoundError as error:
            raise self._gone(instant, str(error.filename)) from error

    def inserts(self, instant: str, rows: pa.Table) -> pa.Table:
        """Rows, with the columns of an image at least, as inserts of the write at ``instant``."""
        return self._changes(INSERT, instant, None, rows)

    def _logged(self, instant: str, stat: WriteStat) -> Iterator[pa.Table]:
        for rel in stat.change_files:
            found = read_change_file(self.table.storage, rel)
            keys = found.column("record_key") if "record_key" in found.column_names else None
            images = {
                name: self._logged_image(stat, found, name, rel)
                for name in (BEFORE, AFTER)
                if name in found.column_names
            }
            op = found.column(OPERATION)
            if keys is not None and BEFORE not in images:
                wanted = pc.invert(pc.equal(op, INSERT))
                rows = self._rows(self._base_before(instant, stat), instant)
                images[BEFORE] = self._looked_up(rows, keys, wanted, rel)
            if keys is not None and AFTER not in images:
                wanted = pc.invert(pc.equal(op, DELETE))
                rows = self._rows(_slice_of(stat, stat.file_name), instant)
                images[AFTER] = self._looked_up(rows, keys, wanted, rel)
            yield self._table(op.cast(pa.string()), instant, images[BEFORE], images[AFTER])

    def _logged_image(self, stat: WriteStat, found: pa.Table, name: str, rel: str) -> pa.Array:
        """The images in a change file, with the columns that the table has now."""
        image = chunks.flat(found.column(name))
        stored = pa.Table.from_arrays(image.flatten(), names=[field.name for field in image.type])
        values = path_columns(self.table.config, stat.partition_path, self.row_schema.names)
        rows = with_path_columns(from_file(stored, self.row_schema, self.table.storage.where(rel)), values)
        return self._image(rows, image.is_null())

    def _looked_up(
        self, batches: Iterable[pa.Table], keys: pa.ChunkedArray, wanted: pa.ChunkedArray, rel: str
    ) -> pa.Array:
        """The rows with these keys as images; null where none is wanted."""
        asked = chunks.flat(keys.filter(wanted))
        rows = self._only(batches, asked)
        at = pc.index_in(chunks.flat(keys), value_set=_keys(rows))
        at = pc.if_else(chunks.flat(wanted), at, pa.scalar(None, at.type))
        lost = pc.and_(chunks.flat(wanted), at.is_null())
        if pc.any(lost).as_py():
            key = chunks.flat(keys).filter(lost)[0]
            raise CorruptFileError(
                f"{self.table.storage.where(rel)} has a change of key {str(key)!r}, and the base file has no row of this "
                "key: restore the files, or read the changes after this commit"
            )
        return self._image(rows.take(at), at.is_null())

    def _of_base(self, instant: str, operation: str, stat: WriteStat) -> Iterator[pa.Table]:
        is_insert = not stat.num_updates and not stat.num_deletes and stat.num_writes == stat.num_inserts
        is_first = stat.prev_commit in (NO_PREVIOUS, "")
        if operation in DELETES and not stat.num_writes and stat.num_deletes and not is_first:
            for rows in self._rows(self._base_before(instant, stat), instant):
                yield self._changes(DELETE, instant, rows, None)
        elif is_first or (is_insert and self.table.config.change_logging is not None):
            for rows in self._rows(_slice_of(stat, stat.file_name), instant):
                yield self._changes(INSERT, instant, None, rows)
        elif self.table.config.change_logging is not None:
            raise MissingChangesError(
                f"write {instant} of table {self.table.config.name} changed rows in "
                f"{self.table.storage.where(stat.path)}, and there is no change file of it (.cdc): the write came before "
                f"change data capture was on, or its writer ignores it. Read the changes since {instant}"
            )
        else:
            after = self._rows(_slice_of(stat, stat.file_name), instant)
            yield from self._difference(instant, self._rows(self._base_before(instant, stat), instant), after)

    def _of_log(self, instant: str, stat: WriteStat) -> Iterator[pa.Table]:
        after = self._named_slice(stat) or self.slice_at(stat.partition_path, stat.file_id, instant)
        if after is None:
            raise self._gone(instant, self.table.storage.where(stat.path))
        own = replace(after, base_file=None, log_files=tuple(f for f in after.log_files if f.name == stat.file_name))
        keys = self._log_keys(own, instant)
        if not len(keys):
            return
        rows_before = self._filtered(self._rows(after, before(instant)), keys)
        yield from self._difference(instant, rows_before, self._filtered(self._rows(after, instant), keys))

    def _named_slice(self, stat: WriteStat) -> FileSlice | None:
        """The slice of a log file by the names in its stat; None where the stat does not name a base file."""
        if not stat.base_file:
            return None
        found = _slice_of(stat, stat.base_file)
        logs = []
        for name in dict.fromkeys((*stat.log_files, stat.file_name)):
            log = parse_log_file_name(name)
            if log is not None and not log.is_cdc:
                logs.append(LogFile(name, stat.file_id, log.base_instant, log.version, log.write_token, 0))
        if self.table.config.change_logging is None and len(logs) < 2:
            return None  # without change data capture a stat of this writer names only its own log
        return replace(found, log_files=tuple(sorted(logs, key=lambda log: log.order)))

    def _log_keys(self, own: FileSlice, instant: str) -> pa.Array:
        reader = self._reader(instant)
        batches = [batch for batch in reader.scan_logs(own) if len(batch.keys)]
        found = pa.concat_arrays([pa.array([], pa.string()), *(chunks.flat(batch.keys) for batch in batches)])
        return found.unique()

    def _base_before(self, instant: str, stat: WriteStat) -> FileSlice:
        """The base file that a base file replaced."""
        if stat.prev_base_file:
            return _slice_of(stat, stat.prev_base_file)
        found = self.slice_at(stat.partition_path, stat.file_id, stat.prev_commit)
        if found is None or found.base_file is None or found.base_file.instant != stat.prev_commit:
            raise MissingChangesError(
                f"the base file of {stat.prev_commit} before {self.table.storage.where(stat.path)} does not exist any "
                f"more, so the changes of write {instant} cannot be read: read the changes since {instant}"
            )
        return replace(found, log_files=())

    def _difference(self, instant: str, old: Iterable[pa.Table], new: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The changes between two versions of a file group, or of some of its keys.

        Memory: the keys of the new version, and the rows that the write changed.
        """
        kept, parts = [pa.array([], pa.string())], [self.schema.empty_table()]
        for rows in new:
            kept.append(_keys(rows))
            parts.append(rows.filter(pc.equal(rows.column(COMMIT_TIME), instant)))
        there, changed = pa.concat_arrays(kept), pa.concat_tables(parts).combine_chunks()
        keys = _keys(changed)
        is_new = np.ones(len(keys), np.bool_)
        for rows in old:
            own = _keys(rows)
            at = pc.index_in(own, value_set=keys)
            matched = at.is_valid()
            number = at.drop_null().to_numpy().astype(np.int64)
            is_new[number] = False
            yield self._changes(UPDATE, instant, rows.filter(matched), changed.take(pa.array(number)))
            yield self._changes(DELETE, instant, rows.filter(pc.invert(pc.is_in(own, value_set=there))), None)
        yield self._changes(INSERT, instant, None, changed.filter(pa.array(is_new)))

    def _reader(self, as_of: str) -> SliceReader:
        return SliceReader(self.table, self.timeline, as_of, self.schema, tuple(self.schema.names))

    def _rows(self, file_slice: FileSlice, as_of: str) -> Iterator[pa.Table]:
        return self._reader(as_of).read(file_slice)

    def _filtered(self, batches: Iterable[pa.Table], keys: pa.Array) -> Iterator[pa.Table]:
        return (rows.filter(pc.is_in(rows.column(RECORD_KEY), value_set=keys)) for rows in batches)

    def _only(self, batches: Iterable[pa.Table], keys: pa.Array) -> pa.Table:
        return pa.concat_tables([self.schema.empty_table(), *self._filtered(batches, keys)]).combine_chunks()

    def _changes(self, op: str, instant: str, old: pa.Table | None, new: pa.Table | None) -> pa.Table:
        rows = old if old is not None else new
        assert rows is not None
        none = pa.nulls(rows.num_rows, pa.struct(list(self.row_schema)))
        images = [none if found is None else self._image(found, None) for found in (old, new)]
        return self._table(pa.repeat(op, rows.num_rows), instant, *images)

    def _image(self, rows: pa.Table, absent: pa.Array | None) -> pa.Array:
        columns = [chunks.flat(rows.column(name)) for name in self.row_schema.names]
        return pa.StructArray.from_arrays(columns, fields=list(self.row_schema), mask=absent)

    def _table(self, op: pa.Array | pa.ChunkedArray, instant: str, old: pa.Array, new: pa.Array) -> pa.Table:
        return pa.Table.from_arrays([op, pa.repeat(instant, len(op)), old, new], schema=self.change_schema)

    def _gone(self, instant: str, what: str) -> MissingChangesError:
        return MissingChangesError(
            f"{what}, which the changes of write {instant} of table {self.table.config.name} need, does not "
            f"exist any more: a clean has deleted it, or it was lost. Read the changes since {instant}, and the rows of "
            "that time with scan(as_of=...); hoodie.clean.commits.retained sets how long files are kept"
        )


def before(instant: str) -> str:
    """The time immediately before an instant, in as many digits."""
    return str(int(instant) - 1).zfill(len(instant))


def _slice_of(stat: WriteStat, base_name: str) -> FileSlice:
    """A base file of the stat's file group as a slice without logs."""
    parsed = parse_base_file_name(base_name)
    if parsed is None:
        raise CorruptFileError(f"the write stat of {stat.path} names {base_name!r}, which is not a base file")
    base = BaseFile(base_name, stat.file_id, parsed.instant, 0)
    return FileSlice(stat.partition_path, stat.file_id, parsed.instant, base)


def _keys(rows: pa.Table) -> pa.Array:
    return pc.cast(chunks.flat(rows.column(RECORD_KEY)), pa.string())
