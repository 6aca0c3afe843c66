"""Measures of a sample of a stream against a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.cli.advise_scan import SampleKeys, SliceFacts, scan_table
from tagstream.cli.record_files import Sample
from tagstream.state.codec import ORDERING_UNKNOWN, Records
from tagstream.state.decide import Keys, Known, choose_winners, decide, distinct_keys
from tagstream.state.layout import has_bytes
from tagstream.state.tag_batch import TagBatch
from tagstream.streaming.source.decode_spec import DecodeSpec
from tagstream.table.file_group.names import bucket_of
from tagstream.table.keys.bucket_hash import BucketHash
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.stored_keys import bucket_evidence

STATE_BYTES_BESIDE_KEY = 8  # docs/development/performance.md: 13.7 to 15.5 bytes per key with keys of eight bytes
BUCKET_ROOM = 2  # the number of buckets is fixed, but a table grows
_CHECKED_KEYS = 1000
_BUCKETS_TRIED = 4


@dataclass(frozen=True)
class Measures:
    """Counts of records or of distinct keys, as said; sizes in bytes; shares 0 to 1 (None: no data).

    Sample: ``records``: good ones; ``bad`` ones; ``deletes``; distinct ``keys``; ``duplicates`` (records - keys);
    ``key_bytes`` per key. By the newest record of each key, with the whole sample as one batch: ``updates`` (the row is in
    the same partition), ``inserts``, ``moves`` (the row is in another partition), ``deletions`` (of a row), ``late`` (older
    than the row), ``unknown_deletes``. ``late_records``: all records that are older than the row. ``doubled``: keys that an
    index by partition would give a second row. ``keys_twice``: keys that are in several partitions of the table.
    ``rising_share``: steps from one record to the next that go to a greater key (0.5: random, 1: in order of time).

    Files: ``partitions_touched`` by records, ``partitions_new`` of them; ``file_groups_touched``: with rows of the sample.
    ``files_of_key_mean`` and ``_p90``: base files whose key range includes a key. ``files_left``: files whose range has keys
    of the sample, in all partitions (``own_``: each key only in the partitions of its records). ``files_read``: those whose
    filter does not exclude every key. ``comparisons``: pairs of key and file after the range check. ``filter_bytes``: of
    the ``files_left``.

    Table: ``rows`` by the footers, plus those of slices with only logs. Rows that logs add to or remove from a base file
    are not counted. ``keys_only_in_logs``: keys of the sample whose row is in no base file. ``simple_bytes``: key and
    ordering columns and logs of the partitions touched, ``global_simple_bytes``: of all. ``state_bytes``: expected size.

    ``bucketed_by``: what shows that the table is bucketed. ``bucket_count``: a number of buckets that matches the files of
    the sample's rows. ``buckets``: a suitable number for a table of this size. ``bucket_skew``: fullest bucket / mean.
    """

    table_type: str
    ordering_field: str | None
    partitioned: bool
    global_keys: bool
    empty_table: bool
    metadata_partitions: tuple[str, ...]
    bucketed_by: str | None
    bucket_count: int | None
    records: int
    bad: int
    deletes: int
    keys: int
    duplicates: int
    key_bytes: float
    updates: int
    inserts: int
    moves: int
    deletions: int
    late: int
    unknown_deletes: int
    late_records: int
    doubled: int
    keys_twice: int
    keys_only_in_logs: int
    rising_share: float | None
    partitions: int
    partitions_touched: int
    partitions_new: int
    file_groups: int
    file_groups_touched: int
    base_files: int
    log_files: int
    slices_only_logs: int
    own_base_files: int
    unranged_files: int
    files_of_key_mean: float | None
    files_of_key_p90: float | None
    files_left: int
    files_read: int
    comparisons: int
    filter_bytes: int
    own_files_left: int
    own_files_read: int
    own_comparisons: int
    own_filter_bytes: int
    rows: int
    bytes: int
    log_bytes: int
    simple_bytes: int
    global_simple_bytes: int
    state_bytes: int
    buckets: int
    bucket_skew: float

    @property
    def insert_share(self) -> float:
        """Share of new keys; for a table without rows, share of records that are the first of their key."""
        return self.keys / self.records if self.empty_table else self.inserts / self.keys

    @property
    def tied_to_partition(self) -> bool:
        """Whether a row is identified by partition and key together: by the options, or by the rows of the table."""
        return not self.global_keys or self.keys_twice > 0


def measure(
    table: HoodieTable, sample: Sample, spec: DecodeSpec, file_bytes: int, progress: Callable[[str], None]
) -> Measures:
    """Measure a sample that has records. ``file_bytes``: size of a full base file. ``progress`` gets a line of text.

    ``spec.global_index``: the key alone identifies a row, so each key is looked up in the whole table.
    """
    timeline = table.timeline()
    keys = SampleKeys.of(sample.rows)
    everywhere = spec.global_index
    scan = scan_table(table, timeline, keys, spec.ordering_type, everywhere=everywhere, progress=progress)
    batch = sample.batch(ordered=bool(spec.ordering_fields))
    distinct = distinct_keys(batch)
    outcome = _outcome(batch, distinct, sample, scan.found, spec)
    slices, base = scan.slices, [s for s in scan.slices if s.file_slice.base_file is not None]
    own = [s for s in slices if s.file_slice.partition_path in keys.own]
    partitions = {s.file_slice.partition_path for s in slices}
    key_bytes = float(np.mean(pc.binary_length(keys.every).to_numpy()))
    rows, size = sum(s.rows for s in slices), sum(s.file_slice.size for s in slices)
    evidence = bucket_evidence(table, timeline)
    buckets = max(1, -(-BUCKET_ROOM * size // (max(1, len(partitions)) * file_bytes)))
    in_files = scan.files_of_key if len(base) else None
    return Measures(
        table_type=table.config.table_type,
        ordering_field=",".join(spec.ordering_fields) or None,
        partitioned=bool(spec.partition_fields),
        global_keys=spec.global_index,
        empty_table=timeline.newest_completed is None,
        metadata_partitions=table.config.metadata_partitions,
        bucketed_by=evidence,
        bucket_count=_bucket_count(scan.found, spec.record_key_fields) if evidence else None,
        records=len(batch),
        bad=sample.bad,
        deletes=int(sample.deleted.sum()),
        keys=len(distinct),
        duplicates=len(batch) - len(distinct),
        key_bytes=round(key_bytes, 1),
        keys_only_in_logs=len(pc.unique(scan.found.filter(scan.found.column("only_log")).column("record_key"))),
        rising_share=_rising(sample, keys),
        partitions=len(partitions),
        partitions_touched=len(keys.own),
        partitions_new=len(keys.own.keys() - partitions),
        file_groups=len(slices),
        file_groups_touched=scan.found.group_by(["part", "file_id"]).aggregate([]).num_rows,
        base_files=len(base),
        log_files=sum(len(s.file_slice.log_files) for s in slices),
        slices_only_logs=len(slices) - len(base),
        own_base_files=sum(s.file_slice.base_file is not None for s in own),
        unranged_files=sum(not s.ranged for s in base),
        files_of_key_mean=None if in_files is None else round(float(in_files.mean()), 2),
        files_of_key_p90=None if in_files is None else float(np.percentile(in_files, 90, method="higher")),
        files_left=sum(s.left > 0 for s in base),
        files_read=sum(s.candidates > 0 for s in base),
        comparisons=sum(s.left for s in base),
        filter_bytes=sum(s.filter_bytes for s in base if s.left),
        own_files_left=sum(s.own_left > 0 for s in base),
        own_files_read=sum(s.own_candidates > 0 for s in base),
        own_comparisons=sum(s.own_left for s in base),
        own_filter_bytes=sum(s.filter_bytes for s in base if s.own_left),
        rows=rows,
        bytes=size,
        log_bytes=sum(_log_bytes(s) for s in slices),
        simple_bytes=sum(s.key_bytes + _log_bytes(s) for s in own),
        global_simple_bytes=sum(s.key_bytes + _log_bytes(s) for s in slices),
        state_bytes=round(rows * (key_bytes + STATE_BYTES_BESIDE_KEY)),
        buckets=buckets,
        bucket_skew=_skew(keys.every, spec.record_key_fields, buckets),
        **outcome,
    )


def _outcome(batch: TagBatch, keys: Keys, sample: Sample, found: pa.Table, spec: DecodeSpec) -> dict[str, int]:
    """What happens to each key, by the stream's own decisions, and how many keys are in several partitions."""
    first = keys.rows[keys.starts]
    names = sample.rows.select(["record_key", "part"]).take(pa.array(first))
    where = _places(names, found, sample.rows, by_partition=not spec.global_index)
    n = len(keys)
    live = np.zeros(n, np.bool_)
    index = where.column("key").to_numpy()
    live[index] = True
    known = _known(n, index, live, where, spec)
    winners = choose_winners(batch, keys, known)
    at = np.full(n, None, object)
    at[index] = where.column("part").to_numpy()
    same = np.ones(n, np.bool_)
    if spec.global_index:
        same = (at == batch.partitions[winners.row]).astype(np.bool_)
    d = decide(batch, winners, known, same)
    late_records = 0
    if batch.ordering is not None:
        group = np.repeat(np.arange(n), np.diff(keys.starts, append=len(keys.rows)))
        mine = known.has_ordering[group] & ((batch.flags[keys.rows] & 2) == 0)
        rows, group = keys.rows[mine], group[mine]
        late_records = int(np.sum(batch.ordering[rows] < known.records.ordering[group]))
    counts = {
        "updates": int((d.update & d.kept).sum()),
        "inserts": int(d.insert.sum()),
        "moves": int(d.move.sum()),
        "deletions": int(d.delete.sum()),
        "late": int(d.late.sum()),
    }
    doubled, twice = _by_partition(sample, found) if spec.global_index else (0, 0)
    return {
        **counts,
        "unknown_deletes": n - sum(counts.values()),
        "late_records": late_records,
        "doubled": doubled,
        "keys_twice": twice,
    }


def _places(names: pa.Table, found: pa.Table, records: pa.Table, *, by_partition: bool) -> pa.Table:
    """One row of ``found`` per key, if possible in a partition of its records. Column ``key`` has the key's number."""
    if by_partition:
        numbered = names.append_column("key", pa.array(np.arange(names.num_rows)))
        return found.join(numbered, ["record_key", "part"], join_type="inner").combine_chunks()
    index = pc.index_in(found.column("record_key"), value_set=names.column("record_key").combine_chunks())
    pairs = records.select(["record_key", "part"]).group_by(["record_key", "part"]).aggregate([])
    pairs = pairs.append_column("own", pa.repeat(pa.scalar(0), pairs.num_rows))
    numbered = found.append_column("key", index.cast(pa.int64())).join(pairs, ["record_key", "part"])
    ranked = numbered.sort_by([("key", "ascending"), ("own", "ascending"), ("part", "ascending")])  # nulls last
    keys = ranked.column("key").to_numpy()
    leads = np.append(True, keys[1:] != keys[:-1]) if len(keys) else np.zeros(0, np.bool_)
    return ranked.filter(pa.array(leads)).combine_chunks()


def _known(
    n: int, index: npt.NDArray[np.int64], live: npt.NDArray[np.bool_], where: pa.Table, spec: DecodeSpec
) -> Known:
    text = has_bytes(spec.ordering_kind)
    ordering: npt.NDArray[Any] = np.full(n, b"", object) if text else np.zeros(n, np.int64)
    has = np.zeros(n, np.bool_)
    if spec.ordering_fields and len(index):
        column = where.column("ord").combine_chunks()
        has[index] = column.is_valid().to_numpy(zero_copy_only=False)
        empty: Any = b"" if text else 0
        ordering[index] = pc.fill_null(column, empty).to_numpy(zero_copy_only=False)
    zeros = np.zeros(n, np.int64)
    flags = np.where(has, 0, ORDERING_UNKNOWN).astype(np.uint8)
    return Known(live, live, Records(zeros.astype(np.uint32), zeros, zeros.astype(np.uint32), flags, ordering))


def _by_partition(sample: Sample, found: pa.Table) -> tuple[int, int]:
    """(keys that an index by partition would give one more row, keys that are in several partitions of the table)."""
    upserts = sample.rows.filter(pa.array(~sample.deleted)).select(["record_key", "part"])
    has = found.select(["record_key", "part"]).group_by(["record_key", "part"]).aggregate([])
    gets = pa.concat_tables([has, upserts]).group_by(["record_key", "part"]).aggregate([])
    have = has.group_by("record_key").aggregate([("part", "count")]).rename_columns(["record_key", "have"])
    get = gets.group_by("record_key").aggregate([("part", "count")]).rename_columns(["record_key", "get"])
    both = get.join(have, "record_key")
    before = pc.max_element_wise(pc.fill_null(both.column("have"), 0), 1)
    doubled = pc.sum(pc.greater(both.column("get"), before)).as_py() or 0
    return int(doubled), int(pc.sum(pc.greater(have.column("have"), 1)).as_py() or 0)


def _rising(sample: Sample, keys: SampleKeys) -> float | None:
    places = pc.index_in(sample.rows.column("record_key"), value_set=keys.every).to_numpy()
    steps = np.diff(places.astype(np.int64))
    steps = steps[steps != 0]
    return round(float((steps > 0).mean()), 3) if len(steps) else None


def _log_bytes(of: SliceFacts) -> int:
    return sum(log.size for log in of.file_slice.log_files)


def _skew(keys: pa.Array, fields: tuple[str, ...], buckets: int) -> float:
    counts = np.bincount(BucketHash(buckets, fields, fields).buckets(keys), minlength=buckets)
    return round(float(counts.max() / counts.mean()), 2)


def _bucket_count(found: pa.Table, fields: tuple[str, ...]) -> int | None:
    """The least number of buckets that matches the files of the rows found, by a hash of the whole key; None for none."""
    few = found.slice(0, _CHECKED_KEYS)
    numbers = [bucket_of(file_id) for file_id in few.column("file_id").to_pylist()]
    if not numbers or None in numbers:
        return None
    there = np.array(numbers, np.int64)
    keys, least = few.column("record_key").combine_chunks(), int(there.max()) + 1
    for count in range(least, _BUCKETS_TRIED * least + 1):
        if np.array_equal(BucketHash(count, fields, fields).buckets(keys), there):
            return count
    return None
