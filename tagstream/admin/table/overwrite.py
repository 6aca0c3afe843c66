"""``tagstream table insert-overwrite``: rows of files in place of all that some partitions hold."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tagstream.admin.errors import AdminError
from tagstream.admin.output import Column, Fact, Output
from tagstream.admin.table.overwrite_input import read_rows
from tagstream.streaming.source.decode_spec import DecodeSpec
from tagstream.streaming.source.record_settings import RecordSettings
from tagstream.table.keys.partition_path import depth_of
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.buckets import check_bucketed
from tagstream.table.services.clustering.execute import DEFAULT_MEMORY
from tagstream.table.services.replacing.elsewhere import keys_elsewhere
from tagstream.table.services.replacing.groups import groups_of_partitions
from tagstream.table.services.replacing.insert_overwrite import forget_cut_off, insert_overwrite
from tagstream.table.services.replacing.rows import NewRows
from tagstream.table.services.spill import RowKeeper

Clock = Callable[[], int]
_PARTITIONS = (
    Column("partition_path", "partition"),
    Column("file_groups", "file groups replaced", "count"),
    Column("rows", "new rows", "count"),
)
_SHOWN = 3


@dataclass(frozen=True)
class _Overwrite:
    settings: RecordSettings
    schema_json: str
    rows: NewRows
    groups: dict[str, tuple[str, ...]]


def show_overwrite(table: HoodieTable, arguments: argparse.Namespace, out: Output, _: Clock) -> None:
    """What would be replaced, by how many rows."""
    with _prepared(table, arguments, out) as found:
        _show(found, out)


def run_overwrite(
    table: HoodieTable, arguments: argparse.Namespace, out: Output, clock_ms: Clock, check: Callable[[], None]
) -> bool:
    """Do it; what a command of this kind has left that was killed is taken back first."""
    undo_cut_off(table, out, clock_ms, check)
    with _prepared(table, arguments, out) as found:
        done = insert_overwrite(
            table, found.rows, found.groups, found.schema_json, clock_ms, check,
            whole_table=arguments.all, max_file_bytes=found.settings.file_bytes,
        )  # fmt: skip
        _show(found, out)
    out.facts(
        [
            Fact("instant", "commit", done.instant, "name"),
            Fact("replaced", "file groups replaced", sum(map(len, done.replaced.values())), "count"),
            Fact("files", "base files written", len(done.statuses), "count"),
            Fact("bytes", "bytes written", sum(s.stat.file_size for s in done.statuses), "bytes"),
        ]
    )
    return True


def undo_cut_off(table: HoodieTable, out: Output, clock_ms: Clock, check: Callable[[], None]) -> None:
    """Undo what a killed command that replaces partitions has begun, and say so."""
    undone = forget_cut_off(table, clock_ms, check)
    if undone:
        out.note(f"{', '.join(undone)}, which a command that was killed had begun, is undone")


def _show(found: _Overwrite, out: Output) -> None:
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
        "partitions", _PARTITIONS, ((p, len(found.groups.get(p, ())), len(rows.partitions.get(p, ()))) for p in places)
    )


@contextmanager
def _prepared(table: HoodieTable, arguments: argparse.Namespace, out: Output) -> Iterator[_Overwrite]:
    """The rows, and what they take the place of; nothing is changed. The rows are there inside the block."""
    settings = RecordSettings.of([arguments.props] if arguments.props is not None else [], arguments.hoodie_conf)
    table.check_writable(keeps_metadata=True)
    check_bucketed(table, wanted=False)
    spec = settings.decode_spec(table).fitted(table)
    ahead = settings.columns_ahead(table, spec)
    if ahead:
        raise AdminError(
            f"the schema file has {', '.join(ahead)}, which table {table.base_path} does not have yet, and the values would "
            "be lost: run the job with this schema file first, which adds them"
        )
    view = table.view(table.timeline())
    there = view.partitions()
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
        yield _Overwrite(settings, spec.stored_json, rows, groups)


def _depth(partitions: list[str], spec: DecodeSpec) -> int | None:
    if not spec.depth_is_open:
        return None
    fields = spec.key_generator_rules.least_depth
    return next((depth for path in partitions if (depth := depth_of(path, fields)) is not None), None)


def _check_rows(rows: NewRows, arguments: argparse.Namespace) -> None:
    if not rows.count:
        raise AdminError(
            f"the files of --from have no row to write ({rows.records:,} records): `tagstream table delete-partition` "
            "deletes the rows of partitions"
        )
    other = sorted({*rows.partitions} - {*(arguments.partition or rows.partitions)})
    if other:
        raise AdminError(
            f"the files of --from have rows of partition {other[0]!r}, which no --partition names: name it, too, or leave "
            "these rows out"
        )


def _check_elsewhere(table: HoodieTable, rows: NewRows, replaced: set[str], out: Output) -> None:
    out.progress("looking for the keys in the other partitions")
    count, shown = 0, list[str]()
    for path, keys in keys_elsewhere(table, rows.keys, replaced):
        count += len(keys)
        shown += [f"{key} in {path!r}" for key in keys.slice(0, _SHOWN).to_pylist()]
    if count:
        more = " and others" if count > _SHOWN else ""
        raise AdminError(
            f"{count:,} keys of the rows are also in partitions that stay ({', '.join(shown[:_SHOWN])}{more}), and would "
            "be in the table twice: a stream with index.global.enabled=true then changes one of the two rows. Replace these "
            "partitions, too, or leave the rows out; --hoodie-conf index.global.enabled=false where keys are unique in a "
            "partition alone"
        )
