"""The plan of a batch with a pull-type index: it has no stateful operator, and the sink looks up the keys.

Such an index is started before the first batch, and again when others have changed the table. Missing keys are added
first.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tagstream.bootstrap.errors import IndexCoverageError
from tagstream.index.base import OrderingCode, TableAsOf, fill, unknown_keys
from tagstream.index.bucket import HoodieBucketIndex
from tagstream.spark_release import apply_in_arrow, cogroup_in_arrow
from tagstream.state.layout import has_bytes
from tagstream.state.ordering import encode_known
from tagstream.streaming.batch.append import tag_appended
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.located import LOCATED_SQL, WriteTasks, packed_columns
from tagstream.streaming.batch.pull_tag import PullSpec, tag_pulled
from tagstream.streaming.batch.tag import sorted_out
from tagstream.streaming.source.decode.key_decoder import record_keys
from tagstream.streaming.source.packed import unpack
from tagstream.streaming.source.source import key_group_label
from tagstream.streaming.source.task_files import TaskFiles, task_file
from tagstream.table.read.snapshot import key_reader, lookup_slice
from tagstream.table.timeline.commit_metadata import WriteStatus
from tagstream.table.timeline.operation import WriteOperationType

_KEYED = pa.schema([("kg", pa.int32()), ("rows", pa.binary())])
_LOCATED = pa.schema([("lane", pa.int32()), ("rows", pa.binary()), ("status", pa.string())])


def table_as_of(job: JobContext, frame_or_session: Any) -> TableAsOf:
    """The table as of the batch's timeline, for the index. ``frame_or_session``: Spark's session."""
    decode = job.decode
    sql = "binary" if has_bytes(decode.ordering_kind) else "long"
    code = OrderingCode(decode.ordering_type, encode_known, sql)
    timeline = job.history.timeline or job.table.timeline()
    return TableAsOf(frame_or_session, job.table, timeline, timeline.newest_completed, code)


def located_rows(job: JobContext, rows: DataFrame, instant: str) -> DataFrame:
    """``rows`` (``streaming.source.source.keyed_records``) with their locations, as a lazy DataFrame."""
    index = job.env.index
    assert index is not None
    look = table_as_of(job, rows.sparkSession)
    profile = job.read_profile()
    spec = PullSpec(profile, job.decode.ordering_kind, index.is_global, index.update_partition_path)
    send = _Send(WriteTasks(job.env.meta.shuffle_partitions, profile.write_tasks), job.task_files)
    if isinstance(index, HoodieBucketIndex):
        spec = replace(spec, locate=index.places(look, instant).locate)
        return apply_in_arrow(
            rows.groupBy("kg"),
            _make_alone(partial(tag_pulled, found=None, spec=spec), send),
            LOCATED_SQL,
            _KEYED,
        )
    if job.options.appends and not job.options.operation.combine:
        keeps = job.options.operation.keeps_duplicates
        tag = partial(tag_appended, profile=profile, ordering=spec.ordering, keeps_duplicates=keeps)
        return apply_in_arrow(rows.groupBy("kg"), _make_alone(tag, send), LOCATED_SQL, _KEYED)
    if job.overwrites or job.options.appends:  # no existing row is kept, or none is looked up
        return apply_in_arrow(
            rows.groupBy("kg"),
            _make_alone(partial(tag_pulled, found=None, spec=spec), send),
            LOCATED_SQL,
            _KEYED,
        )
    if not index.knows_ordering and spec.ordering != "none":
        spec = replace(spec, resolve=_Resolver(look))
    records = rows.mapInArrow(_good_records, "record_key string, partition_path string")
    found = index.tag_location(records, look)
    found = found.withColumn("kg", key_group_label(_hashed(index.is_global), job.env.meta.labels))
    return cogroup_in_arrow(rows, found, "kg", _make_joined(spec, send), LOCATED_SQL, _KEYED)


def replaced_groups(job: JobContext, statuses: Sequence[WriteStatus]) -> dict[str, tuple[str, ...]]:
    """File ids by partition of all file groups that an overwrite replaces; empty for an upsert."""
    if not job.overwrites:
        return {}
    view = job.table.view(job.history.timeline)
    touched = sorted({status.stat.partition_path for status in statuses})
    if job.options.table.operation == WriteOperationType.INSERT_OVERWRITE_TABLE:
        touched = sorted(view.partitions())
    found = {p: tuple(s.file_id for s in view.latest_merged_slices(p)) for p in touched}
    return {partition: ids for partition, ids in found.items() if ids}


def _good_records(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What the index looks up: record key and partition path of every good record."""
    for batch in batches:
        if batch.num_rows:
            good, _, _ = sorted_out(unpack(value.as_buffer() for value in batch.column("rows")))
            keys = record_keys(good.column("skey").combine_chunks())
            part = good.column("part").combine_chunks()
            yield pa.RecordBatch.from_arrays([keys, part], names=["record_key", "partition_path"])


def _hashed(is_global: bool) -> Column:
    """The value that a key's group is computed from, the same as for the records."""
    key = F.col("record_key").cast("binary")
    return key if is_global else F.concat(F.col("partition_path").cast("binary"), F.lit(b"\x00"), key)


# (number of the key group, its keyed records) -> (located records, counts)
_Tag = Callable[[int, pa.Table], tuple[pa.Table, dict[str, int]]]


@dataclass(frozen=True)
class _Send:
    """``write_tasks``: which of them gets a located record. ``exchange``: where the records stay until then; None: they go
    through the shuffle.
    """

    write_tasks: WriteTasks
    exchange: TaskFiles | None


def _make_alone(tag: _Tag, send: _Send) -> Callable[[tuple[Any, ...], pa.Table], pa.Table]:
    def tagged(key: tuple[Any, ...], rows: pa.Table) -> pa.Table:
        return _packed(key[0].as_py(), rows, tag, send)

    return tagged


def _make_joined(spec: PullSpec, send: _Send) -> Callable[[tuple[Any, ...], pa.Table, pa.Table], pa.Table]:
    def tagged(key: tuple[Any, ...], rows: pa.Table, found: pa.Table) -> pa.Table:
        return _packed(key[0].as_py(), rows, partial(tag_pulled, found=found, spec=spec), send)

    return tagged


def _packed(label: int, rows: pa.Table, tag: _Tag, send: _Send) -> pa.Table:
    if not rows.num_rows:  # locations of keys without a record in the batch
        return _LOCATED.empty_table()
    located, counts = tag(label, unpack(rows.column("rows").to_pylist()))
    with task_file(send.exchange, f"tag-{label}") as file:
        columns = packed_columns(label, located, None, counts, send.write_tasks, file)
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, _LOCATED, strict=True)], schema=_LOCATED)


@dataclass(frozen=True)
class _Resolver:
    """Looks up rows in a file group. A file group that does not exist any more has none."""

    look: TableAsOf

    def __call__(self, partition: str, file_id: str, keys: pa.Array) -> tuple[pa.Array, pa.Array]:
        look = self.look
        assert look.as_of is not None
        file_slice = look.table.view(look.timeline, look.as_of).latest_slice(partition, file_id)
        kind = pa.binary() if look.ordering.sql_type == "binary" else pa.int64()
        if file_slice is None:
            return keys.slice(0, 0), pa.nulls(0, kind)
        reader = key_reader(look.table, look.timeline, look.as_of, look.ordering.type)
        found, ordering = lookup_slice(reader, file_slice, keys, keys)
        return found, look.ordering.encode(ordering) if ordering is not None else pa.nulls(len(found), kind)

    def __reduce__(self) -> Any:
        # The session stays on the driver.
        look = self.look
        return _Resolver, (TableAsOf(None, look.table, look.timeline, look.as_of, look.ordering),)  # type: ignore[arg-type]


LOG = logging.getLogger("tagstream")


def start_index(job: JobContext, spark: SparkSession) -> None:
    """Load what the index keeps in memory. An index with a separate storage gets the keys of the table that it lacks.

    IndexCoverageError where it lacks some and ``index.bootstrap.enabled`` is false.
    """
    index = job.env.index
    if index is None:
        return
    job.history.timeline = job.table.timeline()
    look = table_as_of(job, spark)
    index.start(look)
    if not index.update_in_tasks:
        return
    missing = unknown_keys(index, look)
    if not missing:
        return
    what = f"the {index.name} index lacks key {missing[0]!r} of table {job.table.base_path}"
    if not job.options.state.bootstrap_enabled:
        raise IndexCoverageError(
            f"{what}, and index.bootstrap.enabled=false: rows that the index lacks would be written a second time. Set it "
            "to true, or name the index that the table was written with"
        )
    LOG.warning("%s (and %d more of a sample): adding the table's keys to it", what, len(missing) - 1)
    began = time.monotonic()
    keys = fill(index, look)
    LOG.warning("the %s index: added %s keys in %.1f s", index.name, f"{keys:,}", time.monotonic() - began)
