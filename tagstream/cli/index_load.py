"""Load a new checkpoint's index from records of an old one: divide them by key group on disk, then load group by group.

Every record keeps its instant, ordering value and time of change. (The load from a table, ``state.bulk_load``, gives the
same instant and time to all records of a location.) A key that is in several locations of the table keeps all of them
(``state/store_entries.py``). Several processes can share both steps (``cli/index_processes.py``). The memory of one
process is that of one key range of a group.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.bootstrap.report import BootstrapReport
from tagstream.bootstrap.spill import ScanDone, SpillWriter, read_pieces
from tagstream.cli.index_reader import EmptiedMark, Entries
from tagstream.cli.output import AdminError
from tagstream.state import codec
from tagstream.state.codec import NO_LOCATION, TOMBSTONE, Records, sort_keys
from tagstream.state.index_loads import GroupStart, IndexLoadMarker, complete_index_load, write_start
from tagstream.state.key_crc import state_key_groups
from tagstream.state.layout import OrderingKind, StateLayout, has_bytes
from tagstream.state.rocks_store import META_KEY, RocksStore, SortedFile, write_sorted_file
from tagstream.state.scratch import make_folder, remove
from tagstream.state.snapshot_and_deltas import take_snapshot
from tagstream.state.store_entries import Location, StoreMeta, all_copies, copies_entry, intern, places_of
from tagstream.table.storage.posix import PosixStorage

RUN_ROWS = 1_000_000
_SAMPLE = 10_000
_CHAIN_BYTES = 16
_INDEX_LOAD = 1


@dataclass
class KeyCopies:
    """The keys of an old index that are in several locations of the table, each with its other locations."""

    found: dict[bytes, list[Location]] = field(default_factory=dict)

    def add(self, store: RocksStore, label: int) -> None:
        """Add those of a key group."""
        for skey, codes in all_copies(store):
            self.found[skey] = places_of(np.array(codes, np.uint32), store.get, label)

    def of_group(self, group: int, groups: int) -> dict[bytes, list[Location]]:
        """Those of one of the new key groups."""
        if not self.found:
            return {}
        there = state_key_groups(pa.array(list(self.found), pa.binary()), groups).tolist()
        return {skey: places for at, (skey, places) in zip(there, self.found.items(), strict=True) if at == group}


def dictionary(
    used: Iterable[Location], copies: Mapping[bytes, list[Location]]
) -> tuple[list[tuple[bytes, bytes]], int]:
    """(entries of a new store, next free code). ``used``: the locations of its records, in the order of their codes."""
    own = list(used)
    more = sorted({place for places in copies.values() for place in places} - {*own})
    codes, entries, next_code = intern([*own, *more], lambda names: [None] * len(names), 0)
    by_place = dict(zip([*own, *more], codes, strict=True))
    entries += [copies_entry(skey, (by_place[place] for place in places)) for skey, places in copies.items()]
    return entries, next_code


def schema(kind: OrderingKind) -> pa.Schema:
    """Columns of the spilled records: ``place`` is the number of the location, -1 for a tombstone."""
    return pa.schema(
        [
            ("skey", pa.binary()),
            ("place", pa.int32()),
            ("ordering", pa.binary() if has_bytes(kind) else pa.int64()),
            ("flags", pa.uint8()),
            ("instant", pa.int64()),
            ("minutes", pa.uint32()),
        ]
    )


@dataclass
class Places:
    """Distinct (partition path, file id) pairs, numbered in the order of first use."""

    numbers: dict[Location, int] = field(default_factory=dict)

    def of(self, places: list[Location]) -> npt.NDArray[np.int32]:
        """The numbers of these locations. New ones are added."""
        numbers = self.numbers
        return np.array([numbers.setdefault(place, len(numbers)) for place in places], np.int32)

    def names(self) -> list[Location]:
        """The locations in the order of their numbers."""
        return list(self.numbers)


@dataclass(frozen=True)
class SpilledRecords:
    """The records of one spill file. ``places``: its locations in the order of their numbers.

    ``emptied``: the mark of the newest TRUNCATE of the source table, None without one.
    """

    done: ScanDone
    places: list[Location]
    copies: KeyCopies
    emptied: Entries | None


class RecordSpiller:
    """Writes records, in any order, to a spill file for a new index with ``groups`` key groups.

    ``folder``: of the spill files. ``task``: number of this one.
    """

    def __init__(self, layout: StateLayout, groups: int, folder: str, task: int = 0) -> None:
        self._layout = layout
        self._groups = groups
        self._places = Places()
        self._writer = SpillWriter(PosixStorage(folder, sync=False), task, layout.ordering, 0)
        self._emptied = EmptiedMark(layout)
        self.copies = KeyCopies()

    def add(self, entries: Entries) -> None:
        """Add records. The mark of a TRUNCATE is removed from them: later every key group gets it."""
        entries = self._emptied.taken_from(entries)
        place = renumbered(entries.place, self._places.of(entries.places))
        records = entries.records
        columns = [
            entries.skeys,
            pa.array(place),
            pa.array(records.ordering, schema(self._layout.ordering).field("ordering").type),
            pa.array(records.flags),
            pa.array(records.instant),
            pa.array(records.minutes),
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema(self._layout.ordering))
        self._writer.add(rows, state_key_groups(entries.skeys, self._groups))

    def close(self) -> SpilledRecords:
        """Close the spill file and return its content, to be loaded."""
        return SpilledRecords(self._writer.close([]), self._places.names(), self.copies, self._emptied.found)


def renumbered(place: npt.NDArray[np.integer[Any]], numbers: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Locations with other numbers; -1 stays."""
    out = np.full(len(place), -1, np.int32)
    live = place >= 0
    out[live] = numbers[place[live]]
    return out


@dataclass(frozen=True)
class GroupLoader:
    """Loads key groups of a new index from spill files, as index load 1. Any process can load any group.

    ``numbers``: for each spill file, its locations' indexes in ``places``. ``folder``: of the spill files.
    """

    layout: StateLayout
    groups: int
    folder: str
    done: tuple[ScanDone, ...]
    numbers: tuple[npt.NDArray[np.int32], ...]
    places: list[Location]
    copies: KeyCopies
    emptied: Entries | None

    @classmethod
    def of(cls, layout: StateLayout, groups: int, folder: str, spilled: Iterable[SpilledRecords]) -> GroupLoader:
        """Combine several spill files. Only the numbers of each file's locations are kept in memory."""
        places, copies, mark = Places(), KeyCopies(), EmptiedMark(layout)
        done, numbers = [], []
        for one in spilled:
            done.append(one.done)
            numbers.append(places.of(one.places))
            copies.found |= one.copies.found
            mark.take(one.emptied)
        return cls(layout, groups, folder, tuple(done), tuple(numbers), places.names(), copies, mark.found)

    def load(self, group: int, label: int) -> GroupStart:
        """Write a key group's snapshot and start file. AdminError names a key that is there twice."""
        scratch = os.path.join(self.folder, f"load-{label}")
        make_folder(scratch)
        try:
            return self._load_in(scratch, group, label)
        finally:
            remove(scratch)

    def _load_in(self, scratch: str, group: int, label: int) -> GroupStart:
        layout = self.layout
        digest = blake2b(f"generation {_INDEX_LOAD}".encode(), digest_size=_CHAIN_BYTES)
        records = SortedFile(os.path.join(scratch, "records.sst"))
        codes = np.full(len(self.places), NO_LOCATION, np.uint32)
        used: list[int] = []
        live = dead = 0
        for keys, table in self._records(group, codes, used):
            values, raw = codec.encode(table, layout.ordering)
            digest.update(np.fromiter(map(len, keys), "<u4", len(keys)).tobytes())
            digest.update(b"".join(keys))
            digest.update(raw)
            records.put(keys, values)
            buried = int(np.count_nonzero(table.flags & TOMBSTONE))
            dead, live = dead + buried, live + len(keys) - buried
        copies = self.copies.of_group(group, self.groups)
        entries, next_code = dictionary((self.places[i] for i in used), copies)
        for key, value in sorted(entries):
            digest.update(b"%d %d " % (len(key), len(value)) + key + value)
        chain = digest.hexdigest()
        own = sorted([*entries, (META_KEY, StoreMeta(chain, next_code, live, dead, len(copies)).to_bytes())])
        own_path = os.path.join(scratch, "own.sst")
        write_sorted_file(own_path, [k for k, _ in own], [v for _, v in own])
        with RocksStore(os.path.join(scratch, "store")) as store:
            store.ingest(own_path)
            if records.finish():
                store.ingest(records.path)
            size = sum(f["size"] for f in store.live_files())
            snapshot = take_snapshot(store, layout, label, 0, chain, None)
        return write_start(layout, GroupStart(label, _INDEX_LOAD, snapshot, live, dead, 0, size))

    def _records(
        self, group: int, codes: npt.NDArray[np.uint32], used: list[int]
    ) -> Iterator[tuple[list[bytes], Records]]:
        """A key group's records in the order of their keys. The mark of a TRUNCATE comes first, if there is one."""
        if self.emptied is not None:
            yield self.emptied.skeys.to_pylist(), self.emptied.records
        for run in self._runs(group):
            yield _sorted(run, codes, used)

    def _runs(self, group: int) -> Iterator[pa.Table]:
        """A key group's rows in key ranges of about RUN_ROWS."""
        total = sum(p.rows for done in self.done for p in done.pieces if p.group == group)
        if total == 0:
            return
        if total <= RUN_ROWS:
            yield pa.concat_tables(list(self._pieces(group)))
            return
        every = max(1, total // _SAMPLE)
        sample = [p["skey"].combine_chunks()[::every] for p in self._pieces(group)]
        ordered = pa.concat_arrays(sample)
        ordered = ordered.take(pc.sort_indices(ordered))
        count = -(-total // RUN_ROWS)
        cuts = [ordered[len(ordered) * i // count] for i in range(1, count)]
        for low, high in zip([None, *cuts], [*cuts, None], strict=True):
            yield pa.concat_tables([_between(p, low, high) for p in self._pieces(group)])

    def _pieces(self, group: int) -> Iterator[pa.Table]:
        """A key group's rows in the order of the spill files, with the common numbers of their locations."""
        spills = PosixStorage(self.folder, sync=False)
        for done, numbers in zip(self.done, self.numbers, strict=True):
            for rows in read_pieces(spills, [done], group):
                place = renumbered(rows["place"].to_numpy(), numbers)
                yield rows.set_column(rows.schema.get_field_index("place"), "place", pa.array(place))


def complete(
    layout: StateLayout, starts: Sequence[GroupStart], table: str, covered: tuple[str, ...], partition_regex: str
) -> IndexLoadMarker:
    """Mark the index load as complete after all key groups are loaded.

    ``starts``: of all key groups. ``covered``: the completed writes of the table at path ``table``. ``partition_regex``:
    matches the partitions with keys.
    """
    instant = covered[-1] if covered else None
    live, tombstones = sum(s.live for s in starts), sum(s.tombstones for s in starts)
    report = BootstrapReport(
        table=table,
        index_load=_INDEX_LOAD,
        instant=instant,
        slices=0,
        files=0,
        bytes=0,
        rows=0,
        expected_rows=0,
        live=live,
        tombstones=tombstones,
        twice=0,
        twice_policy="taken from another index",
        twice_examples=(),
        mismatched=(),
        skipped=(),
        left_out=(),
        damaged_blocks=0,
        resumed=0,
        index_bytes=sum(s.size for s in starts),
        seconds=0.0,
        partition_regex=partition_regex,
        carried=True,
    )
    marker = IndexLoadMarker(
        index_load=_INDEX_LOAD,
        instant=instant,
        live=live,
        tombstones=tombstones,
        starts={s.label: 0 for s in starts},
        report=report.to_dict(),
        covered=covered,
    )
    return complete_index_load(layout, marker)


def _sorted(run: pa.Table, codes: npt.NDArray[np.uint32], used: list[int]) -> tuple[list[bytes], Records]:
    """A key range in key order. New locations get the next codes."""
    skeys = run["skey"].to_numpy()
    order, first = sort_keys(skeys)
    if not first.all():
        key = skeys[order[int(np.flatnonzero(~first)[0])]]
        raise AdminError(f"record key {key[1:].decode(errors='replace')!r} is there twice; an index has each key once")
    place = run["place"].to_numpy()[order]
    live = place >= 0
    new = np.unique(place[live])
    new = new[codes[new] == NO_LOCATION]
    codes[new] = np.arange(len(used), len(used) + len(new), dtype=np.uint32)
    used += new.tolist()
    loc = np.full(len(place), NO_LOCATION, np.uint32)
    loc[live] = codes[place[live]]
    columns = [run[name].to_numpy()[order] for name in ("instant", "minutes", "flags", "ordering")]
    return skeys[order].tolist(), Records(loc, *columns)


def _between(rows: pa.Table, low: pa.Scalar | None, high: pa.Scalar | None) -> pa.Table:
    """Rows with low <= key < high."""
    if low is not None:
        rows = rows.filter(pc.greater_equal(rows["skey"], low))
    return rows if high is None else rows.filter(pc.less(rows["skey"], high))
