"""``tagstream table insert-overwrite`` and ``dedup``: replace all rows of some partitions.

insert-overwrite: the new rows come from files.

dedup: of rows with the same key only the newest is kept. A writer that does not look up a key (SQL INSERT, bulk insert)
inserts the key a second time. The partitions with such keys are replaced by their own rows with each key once. The row
with the greatest ordering value is kept. If the values are equal or missing, the row of the newest file slice is kept.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.cli.command import Clock
from tagstream.cli.exclusive import Exclusive, changing
from tagstream.cli.output import AdminError, Column, Fact, Output
from tagstream.cli.record_files import read_rows
from tagstream.state.ordering import ordering_codes
from tagstream.streaming.source.decode_spec import DecodeSpec
from tagstream.streaming.source.record_settings import RecordSettings
from tagstream.table.errors import UnsupportedTableError
from tagstream.table.fields import ordering_column
from tagstream.table.keys.keys import depth_of
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.read.snapshot import stored_schema
from tagstream.table.read.stored_keys import check_bucketed
from tagstream.table.schema.schema import RECORD_KEY, user_schema
from tagstream.table.services.clustering import DEFAULT_MEMORY
from tagstream.table.services.insert_overwrite import (
    NewRows,
    Records,
    RowsByKey,
    insert_overwrite,
    roll_back_interrupted,
)
from tagstream.table.services.merged_rows import RowKeeper
from tagstream.table.services.replaced_partitions import groups_of_partitions, keys_in_other_partitions
from tagstream.table.services.validate import doubled_partitions
from tagstream.table.timeline.timeline import Timeline

_REPLACED = (
    Column("partition_path", "partition"),
    Column("file_groups", "file groups replaced", "count"),
    Column("rows", "new rows", "count"),
)
_SHOWN = 3
_KEPT = (
    Column("partition_path", "partition"),
    Column("rows", "rows", "count"),
    Column("kept", "rows kept", "count"),
)


@dataclass(frozen=True)
class _Overwrite:
    settings: RecordSettings
    schema_json: str
    rows: NewRows
    groups: dict[str, tuple[str, ...]]
    read: Timeline


def _add_overwrite(out: argparse.ArgumentParser) -> None:
    out.add_argument(
        "--from", dest="source", metavar="PATH", action="append", required=True,
        help="JSON lines as the stream reads them, or Parquet (*.parquet): a file, or a folder of them; may be repeated",
    )  # fmt: skip
    which = out.add_mutually_exclusive_group()
    which.add_argument(
        "--partition",
        metavar="PATH",
        action="append",
        help="partition path to replace, even if it gets no row; may be repeated (default: those of the rows)",
    )
    which.add_argument("--all", action="store_true", help="replace all partitions (INSERT_OVERWRITE_TABLE)")


def _show_overwrite(table: HoodieTable, arguments: argparse.Namespace, out: Output, _: Clock) -> None:
    """Show the partitions that would be replaced, and the number of rows."""
    with _prepared_overwrite(table, arguments, out) as found:
        _show_replaced(found, out)


def _overwrite(
    table: HoodieTable, arguments: argparse.Namespace, out: Output, clock_ms: Clock, alone: Exclusive
) -> bool:
    """Replace the partitions. Work of an earlier command that was killed is rolled back first. Always True."""
    undo_cut_off(table, out, clock_ms, alone)
    with _prepared_overwrite(table, arguments, out) as found:
        done = insert_overwrite(
            table, found.rows, found.groups, found.schema_json, clock_ms, alone.check,
            whole_table=arguments.all, max_file_bytes=found.settings.file_bytes,
            read=found.read, hold=alone.hold, beat=alone.lease.beat,
        )  # fmt: skip
        _show_replaced(found, out)
    out.facts(
        [
            Fact("instant", "commit", done.instant, "name"),
            Fact("replaced", "file groups replaced", sum(map(len, done.replaced.values())), "count"),
            Fact("files", "base files written", len(done.statuses), "count"),
            Fact("bytes", "bytes written", sum(s.stat.file_size for s in done.statuses), "bytes"),
        ]
    )
    return True


def undo_cut_off(table: HoodieTable, out: Output, clock_ms: Clock, alone: Exclusive) -> None:
    """Roll back the work of a killed command that replaces partitions, and say so."""
    with alone.hold("rollback of a killed command"):
        undone = roll_back_interrupted(table, clock_ms, alone.check)
    if undone:
        out.note(f"rolled back {', '.join(undone)}, which a killed command had begun")


def _show_replaced(found: _Overwrite, out: Output) -> None:
    rows = found.rows
    out.facts(
        [
            Fact("records", "records", rows.records, "count"),
            Fact("deletes", "keys whose newest record is a delete", rows.deletes, "count"),
            Fact("rows", "rows", rows.count, "count"),
        ]
    )
    places = sorted({*found.groups, *rows.partitions})
    out.listing(
        "partitions", _REPLACED, ((p, len(found.groups.get(p, ())), len(rows.partitions.get(p, ()))) for p in places)
    )


@contextmanager
def _prepared_overwrite(table: HoodieTable, arguments: argparse.Namespace, out: Output) -> Iterator[_Overwrite]:
    """The new rows, and the file groups that they replace. Nothing is changed. The rows exist only inside the block."""
    settings = RecordSettings.of(arguments.props, arguments.hoodie_conf)
    table.check_writable(keeps_metadata=True)
    check_bucketed(table, None)
    spec = settings.decode_spec(table).fitted(table)
    ahead = settings.columns_ahead(table, spec)
    if ahead:
        raise AdminError(
            f"the schema file has {', '.join(ahead)}, which table {table.base_path} does not have yet, so the values would "
            "be lost: first run the job with this schema file, which adds the columns"
        )
    timeline = table.timeline()
    there = table.view(timeline).partitions()
    with RowKeeper(DEFAULT_MEMORY) as keeper:
        out.progress("reading the rows")
        rows = read_rows(arguments.source, spec, _depth(there, spec), keeper)
        _check_rows(rows, arguments)
        if arguments.all:
            wanted = {*there, *rows.partitions}
        else:
            wanted = {*(arguments.partition or rows.partitions)}
        groups = groups_of_partitions(table, wanted, new_ones=True)
        if settings.global_keys:
            _check_elsewhere(table, rows, wanted, out)
        yield _Overwrite(settings, spec.stored_json, rows, groups, timeline)


def _depth(partitions: list[str], spec: DecodeSpec) -> int | None:
    if not spec.depth_is_open:
        return None
    fields = spec.key_generator_rules.least_depth
    return next((depth for path in partitions if (depth := depth_of(path, fields)) is not None), None)


def _check_rows(rows: NewRows, arguments: argparse.Namespace) -> None:
    if not rows.count:
        raise AdminError(
            f"the files of --from have no row to write ({rows.records:,} records); `tagstream table delete-partition` "
            "deletes the rows of partitions"
        )
    other = sorted({*rows.partitions} - {*(arguments.partition or rows.partitions)})
    if other:
        raise AdminError(
            f"the files of --from have rows of partition {other[0]!r}, which no --partition names; name it too, or remove "
            "these rows from the files"
        )


def _check_elsewhere(table: HoodieTable, rows: NewRows, replaced: set[str], out: Output) -> None:
    out.progress("looking for the keys in the other partitions")
    count, shown = 0, list[str]()
    for path, keys in keys_in_other_partitions(table, rows.keys, replaced):
        count += len(keys)
        shown += [f"{key} in {path!r}" for key in keys.slice(0, _SHOWN).to_pylist()]
    if count:
        more = " and others" if count > _SHOWN else ""
        raise AdminError(
            f"{count:,} keys of the rows are also in partitions that are not replaced ({', '.join(shown[:_SHOWN])}{more}). "
            "They would be in the table twice, and a stream with index.global.enabled=true would change one of the two "
            "rows. Replace these partitions too, or remove the rows. If keys are unique only within a partition, set "
            "--hoodie-conf index.global.enabled=false"
        )


@dataclass(frozen=True)
class _KeptRows:
    """The rows to keep of the partitions with duplicate keys, and how many rows each partition has now."""

    rows: NewRows
    groups: dict[str, tuple[str, ...]]
    before: Counter[str]
    read: Timeline

    @property
    def surplus(self) -> int:
        """Number of rows to remove."""
        return self.rows.records - self.rows.count


def _add_dedup(out: argparse.ArgumentParser) -> None:
    out.add_argument(
        "--by-partition", action="store_true", help="keys are unique only in a partition (index.global.enabled=false)"
    )


def _show_dedup(table: HoodieTable, arguments: argparse.Namespace, out: Output, _: Clock) -> None:
    """Show how many rows would be removed, and from which partitions."""
    with _prepared_dedup(table, arguments, out) as found:
        _show_kept(found, out)


def _dedup(table: HoodieTable, arguments: argparse.Namespace, out: Output, clock_ms: Clock, alone: Exclusive) -> bool:
    """Remove duplicates. Work of an earlier command that was killed is rolled back first. False if no key is duplicate."""
    undo_cut_off(table, out, clock_ms, alone)
    with _prepared_dedup(table, arguments, out) as found:
        _show_kept(found, out)
        if not found.surplus:
            return False
        schema = table.schema_json()
        if schema is None:
            raise UnsupportedTableError(
                f"table {table.base_path} has no schema in its commits; write a batch to it, then run this command again"
            )
        done = insert_overwrite(
            table, found.rows, found.groups, schema, clock_ms, alone.check,
            read=found.read, hold=alone.hold, beat=alone.lease.beat,
        )  # fmt: skip
    out.facts([Fact("instant", "commit", done.instant, "name")])
    return True


def _show_kept(found: _KeptRows, out: Output) -> None:
    out.facts([Fact("surplus", "surplus rows of duplicate keys", found.surplus, "count")])
    kept = found.rows.partitions
    out.listing("partitions", _KEPT, ((p, n, len(kept.get(p, ()))) for p, n in sorted(found.before.items())))


@contextmanager
def _prepared_dedup(table: HoodieTable, arguments: argparse.Namespace, out: Output) -> Iterator[_KeptRows]:
    """The rows to write. Nothing is changed. The rows exist only inside the block."""
    table.check_writable(keeps_metadata=True)
    check_bucketed(table, None)
    global_keys, timeline = not arguments.by_partition, table.timeline()
    out.progress("looking for duplicate keys")
    partitions = doubled_partitions(table, global_keys=global_keys)
    groups = groups_of_partitions(table, partitions)
    before = Counter[str]()
    with RowKeeper(DEFAULT_MEMORY) as keeper:
        schema = user_schema(stored_schema(table, table.timeline(), table.view()))
        chosen = RowsByKey(schema, keeper, global_keys=global_keys)
        for partition, rows in _live_rows(table, partitions) if partitions else ():
            out.progress(f"reading partition {partition!r}")
            before[partition] += rows.num_rows
            chosen.add(_records(table, rows, partition, schema))
        yield _KeptRows(chosen.chosen(), groups, before, timeline)


def _live_rows(table: HoodieTable, partitions: tuple[str, ...]) -> Iterator[tuple[str, pa.Table]]:
    """The live rows of partitions, those of older slices first: of rows with equal ordering values the later one counts."""
    timeline = table.timeline()
    view = table.view(timeline)
    assert view.as_of is not None, "a table without rows has no such partition"
    schema = stored_schema(table, timeline, view)
    reader = SliceReader(table, timeline, view.as_of, schema, tuple(schema.names))
    slices = [s for partition in partitions for s in view.latest_merged_slices(partition)]
    for found in sorted(slices, key=lambda s: (s.base_instant, s.partition_path, s.file_id)):
        for rows in reader.read(found):
            yield found.partition_path, rows


def _records(table: HoodieTable, rows: pa.Table, partition: str, schema: pa.Schema) -> Records:
    values = ordering_column(rows, table.config.deciding_fields)
    ordering = None if values is None else ordering_codes(values)
    if ordering is not None and not pa.types.is_binary(ordering.type) and values is not None:  # null sorts first
        ordering = pc.if_else(values.is_valid(), ordering, pa.scalar(-(2**63), pa.int64()))
    nothing = np.zeros(rows.num_rows, np.bool_)
    return Records(
        rows=rows.select(schema.names),
        keys=rows.column(RECORD_KEY).combine_chunks(),
        partitions=pa.repeat(pa.scalar(partition, pa.string()), rows.num_rows),
        ordering=ordering,
        deleted=nothing,
        unordered=nothing,
    )


COMMANDS = (
    changing(
        "insert-overwrite",
        "replace the rows of partitions, or of the table, with those of files",
        _add_overwrite,
        _show_overwrite,
        _overwrite,
    ),
    changing(
        "dedup",
        "keep only the newest of rows with the same key, which another writer inserted again",
        _add_dedup,
        _show_dedup,
        _dedup,
    ),
)
