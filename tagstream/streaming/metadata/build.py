"""Make a metadata table for a table that has commits: from its files and keys, by Spark's tasks in bounded memory.

Nothing may be pending on the table's timeline, and the caller holds the table's lease: what would be written meanwhile would
be missing in it. What an attempt before left is removed first; readers look once the table's properties name it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from tagstream.streaming.metadata.contents import (
    PLACE_SCHEMA,
    Looks,
    PlaceSpec,
    changes_of,
    committed_files,
    place_spec,
    read_places,
    shards_in,
)
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import (
    BLOOM_FILTERS_PARTITION,
    COLUMN_STATS_PARTITION,
    PARTITION_STATS_PARTITION,
    RECORD_INDEX_PARTITION,
)
from tagstream.table.metadata.write.initial import (
    InitialPartition,
    begin_partition,
    complete_partition,
    create_metadata_table,
    register,
    write_index_shard,
    write_records,
)
from tagstream.table.metadata.write.layout import in_making_order
from tagstream.table.metadata.write.metadata_writer import MetadataWriter, Times
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.timeline.write_status import WriteStat

_MOST_TASKS = 10_000  # of a record index by partition there may be more file groups, several of which are a task's then

LOG = logging.getLogger("tagstream")


def build(
    table: HoodieTable,
    groups: dict[str, int],
    columns: Iterable[str],
    spark: SparkSession,
    times: Times,
    clock_ms: Callable[[], int],
    *,
    partitioned_index: bool = False,
) -> HoodieTable:
    """The table with its new metadata table, or with more partitions of the one it has.

    ``groups``: file groups of each partition that is made, ``files`` among them where there is no metadata table yet.
    ``partitioned_index``: a record index among them has so many for each partition of the table.
    """
    begun = clock_ms()
    timeline = table.timeline()
    with_ranges = COLUMN_STATS_PARTITION in groups or PARTITION_STATS_PARTITION in groups
    _warn_of_logs_alone(table, timeline)
    looks = Looks(frozenset(columns) if with_ranges else frozenset(), BLOOM_FILTERS_PARTITION in groups)
    files = committed_files(table, timeline)
    changes = changes_of(table, files, looks, spark)
    writer = MetadataWriter.open(table) or create_metadata_table(table, begun)
    for name in in_making_order(groups, table.config.version):
        by_partition = partitioned_index and name == RECORD_INDEX_PARTITION
        initial = begin_partition(writer, name, groups[name], sorted(files) if by_partition else None)
        if name == RECORD_INDEX_PARTITION:
            stats = _index(initial, table, timeline, spark)
        else:
            stats = write_records(initial, changes)
        complete_partition(initial, stats, times)
    form = partitioned_index if RECORD_INDEX_PARTITION in groups else None
    table = register(table, groups, tuple(columns), clock_ms(), form)
    LOG.info(
        "table %s has these partitions of a metadata table now: %s; made of %s files in %.1f s",
        table.base_path,
        ", ".join(in_making_order(groups, table.config.version)),
        f"{sum(map(len, files.values())):,}",
        (clock_ms() - begun) / 1000,
    )
    return table


def _warn_of_logs_alone(table: HoodieTable, timeline: Timeline) -> None:
    if not table.config.has_completion_times or not table.config.is_merge_on_read:
        return
    view = table.view(timeline)
    alone = sum(found.base_file is None for part in view.partitions() for found in view.latest_merged_slices(part))
    if alone:
        LOG.warning(
            "table %s: %s file groups have log files alone; hudi-rs passes over those that a metadata table lists: compact "
            "the table where hudi-rs reads it, or set hoodie.metadata.enable=false",
            table.base_path,
            f"{alone:,}",
        )


def _index(initial: InitialPartition, table: HoodieTable, timeline: Timeline, spark: SparkSession) -> list[WriteStat]:
    spec = place_spec(table, timeline, initial.groups, initial.data_partitions)
    found = {} if spec is None else _shards(initial, spec, spark)
    rest = (write_index_shard(initial, number, ()) for number in range(initial.total) if number not in found)
    assert all(stat is None for stat in rest)
    return [stat for _, stat in sorted(found.items())]


def _shards(initial: InitialPartition, spec: PlaceSpec, spark: SparkSession) -> dict[int, WriteStat]:
    tasks = min(len(spec.slices), 4 * spark.sparkContext.defaultParallelism)
    places = spark.range(0, len(spec.slices), 1, tasks).mapInArrow(read_places(spec), PLACE_SCHEMA)
    ordered = places.repartition(min(initial.total, _MOST_TASKS), "shard").sortWithinPartitions("shard", "record_key")

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, tables in shards_in(batches):
            stat = write_index_shard(initial, number, tables)
            assert stat is not None  # it has a key
            yield pa.RecordBatch.from_pydict(
                {"number": pa.array([number], pa.int32()), "stat": [json.dumps(stat.to_json())]}
            )

    rows = ordered.mapInArrow(write, "number int, stat string").collect()
    return {number: WriteStat.from_json(json.loads(text)) for number, text in rows}
