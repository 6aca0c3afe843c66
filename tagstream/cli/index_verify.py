"""``tagstream index verify``: compare every live row of the table with the index, key group by key group.

The table is read as of its newest completed instant, and the index as of the batches committed until then. So a job that
runs at the same time does not matter.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.bootstrap.plan import BootstrapPlan, plan_bootstrap
from tagstream.bootstrap.scan import key_reader, scan_slice
from tagstream.bootstrap.spill import ScanDone, SpillWriter, read_pieces
from tagstream.cli.command import Command, add_checkpoint, add_limit, add_table
from tagstream.cli.index_load import Places
from tagstream.cli.index_reader import (
    Index,
    entries_of,
    existing_checkpoint,
    open_index,
    record_keys,
    state_keys,
)
from tagstream.cli.output import Column, Fact, Output
from tagstream.state.checkpoint import current_query_folder
from tagstream.state.key_crc import state_key_groups
from tagstream.state.scratch import scratch_folder
from tagstream.state.store_entries import Location
from tagstream.streaming.batch.commit_record import parse
from tagstream.streaming.batch.spark_checkpoint import query_id
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.timeline import Timeline

KINDS = {
    "not_in_index": "not in the index",
    "not_in_table": "not in the table",
    "other_place": "in another location",
    "twice_in_table": "twice in the table",
}
_COLUMNS = (
    Column("difference", "difference", "name"),
    Column("record_key", "record key"),
    Column("table_partition_path", "partition in table"),
    Column("table_file_id", "file id in table"),
    Column("index_partition_path", "partition in index"),
    Column("index_file_id", "file id in index"),
)
_TABLE_SCHEMA = pa.schema([("skey", pa.binary()), ("place", pa.int32())])
_NOWHERE = (None, None)
_Bools = npt.NDArray[np.bool_]


def run_verify(arguments: argparse.Namespace, out: Output) -> int:
    """Compare index and table; the exit code is 1 when they differ."""
    table = HoodieTable.open(arguments.target_base_path)
    plan = plan_bootstrap(table)
    checkpoint = existing_checkpoint(arguments.checkpoint_dir)
    names = committed_manifests(table, plan.timeline, checkpoint)
    with open_index(checkpoint, names) as index:
        out.facts(
            [
                *index.facts(),
                Fact("base_path", "table", table.base_path),
                Fact("as_of", "table as of", plan.instant),
            ]
        )
        comparison = Comparison(index, plan, out.progress)
        listed = out.listing("differences", _COLUMNS, comparison.differences(arguments.limit))
    total = sum(comparison.found.values())
    if listed < total:
        out.note(f"the first {listed:,} of {total:,} differences; --limit 0 lists all")
    out.facts(
        [
            Fact("equal", "equal", total == 0),
            Fact("difference_count", "differences", total, "count"),
            *(Fact(kind, text, comparison.found[kind], "count") for kind, text in KINDS.items()),
            Fact("table_keys", "rows of the table", comparison.table_keys, "count"),
            Fact("index_keys", "keys of the index", comparison.index_keys, "count"),
        ]
    )
    return 1 if total else 0


def committed_manifests(table: HoodieTable, timeline: Timeline, checkpoint: Storage) -> list[str] | None:
    """Names of the batch manifests in commits of the checkpoint's query; None when there is no such commit."""
    ident = query_id(current_query_folder(checkpoint).files)
    records = [parse(timeline.metadata(table.storage, i).extra) for i in timeline.completed_writes]
    return [r.manifest for r in records if r is not None and r.query_id == ident] or None


@dataclass
class Comparison:
    """One comparison. ``found`` counts the differences of each kind, also those that are not listed."""

    index: Index
    plan: BootstrapPlan
    progress: Callable[[str], None]
    found: Counter[str] = field(default_factory=Counter)
    table_keys: int = 0
    index_keys: int = 0

    def differences(self, limit: int = 0) -> Iterator[tuple[Any, ...]]:
        """Differences by key group, at most ``limit`` of them (0: all). The counts are complete after the last one."""
        with scratch_folder("tagstream-verify-") as folder:
            places = Places()
            scanned = self._scan(folder, places)
            room = limit
            for group, label in enumerate(self.index.labels):
                self.progress(f"comparing key group {group + 1} of {len(self.index.labels)}")
                for row in self._group(folder, scanned, group, label, places):
                    if limit == 0 or room > 0:
                        room -= 1
                        yield row

    def _scan(self, folder: str, places: Places) -> ScanDone:
        """Write the table's live keys to a spill file, divided by key group."""
        layout, groups = self.index.layout, len(self.index.labels)
        writer = SpillWriter(PosixStorage(folder, sync=False), 0, layout.ordering, 0)
        reader = key_reader(self.plan, None)
        for number, planned in enumerate(self.plan.slices):
            assert reader is not None
            self.progress(f"reading file group {number + 1} of {len(self.plan.slices)} of the table")
            found = planned.file_slice
            (place_number,) = places.of([(found.partition_path, found.file_id)]).tolist()
            for batch in scan_slice(reader, found):
                if batch.deleted or not len(batch.keys):
                    continue
                skeys = state_keys(batch.keys, found.partition_path, layout)
                place = pa.array(np.full(len(skeys), place_number, np.int32))
                rows = pa.RecordBatch.from_arrays([skeys, place], schema=_TABLE_SCHEMA)
                writer.add(rows, state_key_groups(skeys, groups))
                self.table_keys += len(skeys)
        return writer.close([])

    def _group(
        self, folder: str, scanned: ScanDone, group: int, label: int, places: Places
    ) -> Iterator[tuple[Any, ...]]:
        pieces = read_pieces(PosixStorage(folder), [scanned], group)
        table = pa.concat_tables([_TABLE_SCHEMA.empty_table(), *pieces]).combine_chunks()
        keys, here = self._index_keys(label, places)
        self.index_keys += len(keys)
        there = table["place"].to_numpy()
        at = pc.index_in(table["skey"], value_set=keys).combine_chunks()
        known = at.is_valid().to_numpy(zero_copy_only=False)
        at = at.fill_null(0).to_numpy()
        same = known.copy()
        same[known] = here[at[known]] == there[known]
        right = np.zeros(len(keys), np.bool_)
        right[at[same]] = True
        elsewhere = known & ~same
        elsewhere[elsewhere] = ~right[at[elsewhere]]
        gone = np.ones(len(keys), np.bool_)
        gone[at[known]] = False
        names = places.names()
        skeys = table["skey"].combine_chunks()
        yield from self._rows("not_in_index", skeys, ~known, names, there, None)
        yield from self._rows("other_place", skeys, elsewhere, names, there, here[at] if len(here) else None)
        yield from self._rows("not_in_table", keys, gone, names, None, here)
        yield from self._rows("twice_in_table", skeys, _again(skeys), names, there, None)

    def _index_keys(self, label: int, places: Places) -> tuple[pa.Array, npt.NDArray[np.int32]]:
        """Live keys of a key group and the numbers of their locations."""
        keys, numbers = [pa.array([], pa.binary())], [np.zeros(0, np.int32)]
        with self.index.group(label) as store:
            for entries in entries_of(store, self.index.layout, label):
                live = ~entries.deleted
                keys.append(entries.skeys.filter(pa.array(live)))
                numbers.append(places.of(entries.places)[entries.place[live]])
        return pa.concat_arrays(keys), np.concatenate(numbers)

    def _rows(
        self,
        kind: str,
        skeys: pa.Array,
        which: _Bools,
        names: list[Location],
        there: npt.NDArray[np.int32] | None,
        here: npt.NDArray[np.int32] | None,
    ) -> Iterator[tuple[Any, ...]]:
        """Rows of one kind of difference. They are counted before the first one is yielded."""
        found = np.flatnonzero(which)
        self.found[kind] += len(found)
        keys = record_keys(skeys.take(pa.array(found)), self.index.layout)[0].to_pylist()
        # A row loop over differences. A correct index has none.
        for i, key in zip(found.tolist(), keys, strict=True):
            in_table = names[there[i]] if there is not None else _NOWHERE
            in_index = names[here[i]] if here is not None else _NOWHERE
            yield (kind, key, *in_table, *in_index)


def _again(skeys: pa.Array) -> _Bools:
    """Mask of the rows whose key an earlier row has too."""
    codes = pc.dictionary_encode(skeys).indices.to_numpy()
    again = np.ones(len(codes), np.bool_)
    again[np.unique(codes, return_index=True)[1]] = False
    return again


def _add_flags(out: argparse.ArgumentParser) -> None:
    add_checkpoint(out)
    add_table(out)
    add_limit(out, 100, "differences to list (0: all); the counts always include all")


COMMANDS = (
    Command(
        "index",
        "verify",
        "compare the index with the table; exit code 1 when they differ",
        _add_flags,
        lambda arguments, out, _: run_verify(arguments, out),
    ),
)
