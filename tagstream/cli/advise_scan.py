"""A table's footers, and the files with the keys of a sample."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.state.ordering import encode_known
from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.file_group.base_file import BLOOM_KEY, comparable_range, open_base_file, range_of, read_footer
from tagstream.table.file_group.bloom import BloomFilter
from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.read.snapshot import key_reader, lookup_slice
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.timeline import Timeline

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SampleKeys:
    """The distinct keys of a sample, sorted bytewise: all (``every``), and by partition (``own``)."""

    every: pa.Array
    own: Mapping[str, pa.Array]

    @staticmethod
    def of(rows: pa.Table) -> SampleKeys:
        """From ``Sample.rows``. Records without a partition (deletes) are in ``every`` only."""
        pairs = rows.select(["part", "record_key"]).group_by(["part", "record_key"], use_threads=False).aggregate([])
        pairs = pairs.sort_by([("part", "ascending"), ("record_key", "ascending")])
        named = pairs.filter(pairs.column("part").is_valid())
        keys = named.column("record_key").combine_chunks()
        runs = pc.run_end_encode(named.column("part").combine_chunks())
        ends = [0, *runs.run_ends.to_pylist()]
        own = {p: keys.slice(ends[i], ends[i + 1] - ends[i]) for i, p in enumerate(runs.values.to_pylist())}
        every = pc.unique(pairs.column("record_key"))
        return SampleKeys(every.take(pc.sort_indices(every)), own)


@dataclass(frozen=True)
class SliceFacts:
    """One file slice. Sizes are bytes of the files. ``left`` counts keys of the sample within the base file's range.

    ``rows``: of the base file, by its footer; for a slice with only logs, the live rows. ``key_bytes``: the key and
    ordering columns. ``own_left``: only keys of records of the slice's partition. ``candidates`` (``own_candidates``):
    keys that the filter does not exclude. ``ranged``: the footer has a key range.
    """

    file_slice: FileSlice
    rows: int
    key_bytes: int
    filter_bytes: int
    ranged: bool
    left: int
    own_left: int
    candidates: int
    own_candidates: int


@dataclass(frozen=True)
class TableScan:
    """All slices, and the rows found (``record_key, part, file_id, only_log``; with an ordering field also ``ord``, codes).

    ``files_of_key``: for each of ``SampleKeys.every``, the number of base files whose range includes it.
    """

    slices: tuple[SliceFacts, ...]
    found: pa.Table
    files_of_key: _Ints


def scan_table(
    table: HoodieTable,
    timeline: Timeline,
    keys: SampleKeys,
    ordering_type: pa.DataType | None,
    *,
    everywhere: bool,
    progress: Callable[[str], None],
) -> TableScan:
    """Look up the keys in every slice; ``everywhere`` False: each key only in the partitions of its own records.

    Reads all footers, and the key columns of the files that ranges and filters do not exclude.
    """
    as_of = timeline.newest_completed
    steps = np.zeros(len(keys.every) + 1, np.int64)
    slices: list[SliceFacts] = []
    found: list[pa.Table] = [_located(None, pa.array([], pa.string()), None, pa.array([], pa.bool_()), ordering_type)]
    if as_of is None:
        return TableScan((), found[0], steps[:-1])
    reader = key_reader(table, timeline, as_of, ordering_type)
    view = table.view(timeline, as_of)
    every = keys.every.to_pylist()
    for partition in view.partitions():
        progress(f"partition {partition!r}")
        own = keys.own.get(partition, keys.every.slice(0, 0))
        own_list = own.to_pylist()
        for at in view.latest_merged_slices(partition):
            wanted = keys.every if everywhere else own
            if at.base_path is None:
                rows, here = _log_only(reader, at, wanted, ordering_type)
                slices.append(SliceFacts(at, rows, 0, 0, False, 0, 0, 0, 0))
                found.append(here)
                continue
            rows, key_bytes, filter_bytes, limits = _footer(table.storage, at.base_path, reader.columns)
            first, last = _between(every, limits)
            own_first, own_last = _between(own_list, limits)
            steps[first] += 1
            steps[last] -= 1
            mine, in_range = own.slice(own_first, own_last - own_first), keys.every.slice(first, last - first)
            in_base = in_range if everywhere else mine
            if len(in_base) and (ruled := _filter(table.storage, at.base_path)) is not None:
                in_base = in_base.filter(pa.array(ruled.might_contain(in_base)))
            own_candidates = pc.sum(pc.is_in(mine, value_set=in_base)).as_py() or 0
            slices.append(
                SliceFacts(
                    at,
                    rows,
                    key_bytes,
                    filter_bytes,
                    limits is not None,
                    len(in_range),
                    len(mine),
                    len(in_base),
                    own_candidates,
                )
            )
            if len(wanted) and (len(in_base) or at.log_files):
                live, ordering = lookup_slice(reader, at, wanted, in_base)
                only_log = pc.invert(pc.is_in(live, value_set=in_base))
                found.append(_located(at, live, ordering, only_log, ordering_type))
    return TableScan(tuple(slices), pa.concat_tables(found).combine_chunks(), np.cumsum(steps)[:-1])


def _log_only(
    reader: SliceReader, at: FileSlice, wanted: pa.Array, ordering_type: pa.DataType | None
) -> tuple[int, pa.Table]:
    """The number of live rows of a slice without base file, and the rows of the sample among them."""
    count, tables = 0, [_located(at, pa.array([], pa.string()), None, pa.array([], pa.bool_()), ordering_type)]
    for rows in reader.read(at):
        count += rows.num_rows
        hits = rows.filter(pc.is_in(rows.column(RECORD_KEY), value_set=wanted)).combine_chunks()
        live = hits.column(RECORD_KEY).combine_chunks().cast(pa.string())
        ordering = reader.ordering(hits) if hits.num_columns > 1 else None
        tables.append(_located(at, live, ordering, pa.repeat(pa.scalar(True), len(live)), ordering_type))
    return count, pa.concat_tables(tables)


def _located(
    at: FileSlice | None, keys: pa.Array, ordering: pa.Array | None, only_log: pa.Array, kind: pa.DataType | None
) -> pa.Table:
    n = len(keys)
    columns = {
        "record_key": keys,
        "part": pa.repeat(pa.scalar(at.partition_path if at else ""), n),
        "file_id": pa.repeat(pa.scalar(at.file_id if at else ""), n),
        "only_log": only_log,
    }
    if kind is not None:
        columns["ord"] = encode_known(ordering.cast(kind) if ordering is not None else pa.nulls(n, kind))
    return pa.table(columns)


def _footer(storage: Storage, rel: str, columns: tuple[str, ...]) -> tuple[int, int, int, tuple[str, str] | None]:
    """Rows, bytes of the columns, bytes of the filter as stored, and the key range if it is usable."""
    with open_base_file(storage, rel) as file:
        metadata = file.metadata
    chunks = 0
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        for j in range(group.num_columns):
            if group.column(j).path_in_schema in columns:
                chunks += group.column(j).total_compressed_size
    entries = metadata.metadata or {}
    limits = comparable_range(*range_of(metadata))
    return metadata.num_rows, chunks, len(entries.get(BLOOM_KEY, b"")), limits


def _filter(storage: Storage, rel: str) -> BloomFilter | None:
    try:
        return read_footer(storage, rel).bloom
    except (CorruptFileError, UnsupportedTableError):
        return None  # every key is a candidate; a damaged file causes an error when it is read


def _between(keys: list[str], limits: tuple[str, str] | None) -> tuple[int, int]:
    """First and last + 1 index of the sorted keys within the limits; all keys without limits."""
    if limits is None:
        return 0, len(keys)
    first = bisect_left(keys, limits[0])
    return first, max(first, bisect_right(keys, limits[1]))
