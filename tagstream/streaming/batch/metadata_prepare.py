"""Before a query: drop a metadata table that can't be kept in sync, and make one that is wanted.

Readers trust the metadata table. So a part of it that this writer does not keep in sync is dropped before the first
write.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

from tagstream.streaming.batch.metadata_build import build
from tagstream.streaming.options.index_options import MetadataOptions
from tagstream.table.errors import (
    CorruptFileError,
    MetadataTableMismatchError,
    TableNotFoundError,
    UnsupportedTableError,
)
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.index_definitions import default_columns, has_partitioned_index, statistics_form
from tagstream.table.metadata.metadata_table import (
    FOLDER,
    PARTITION_STATS_PARTITION,
    RECORD_INDEX_PARTITION,
    MetadataTable,
)
from tagstream.table.metadata.metadata_writer import (
    DEFAULT_GROUPS,
    PARTITIONS,
    PARTITIONS_KEY,
    MetadataWriter,
    fresh_times,
)
from tagstream.table.metadata.partitions import create_empty, drop_partition
from tagstream.table.services.metadata_changes import range_columns
from tagstream.table.services.validate_metadata import validate_listing

LOG = logging.getLogger("tagstream")


@dataclass(frozen=True)
class Unkept:
    """What to drop of a metadata table.

    ``whole``: the reason to drop all of it; None where it stays. ``partitions``: the reason to drop a partition, by
    name.
    """

    whole: str | None
    partitions: Mapping[str, str]


def unkept(table: HoodieTable, options: MetadataOptions) -> Unkept:
    """Find what to drop of the table's metadata table, because it is not wanted or can't be kept in sync. Nothing is
    changed.
    """
    if options.enable is False:
        return Unkept("hoodie.metadata.enable is false", {})
    trusted = [name.strip() for name in table.config.raw.get(PARTITIONS_KEY, "").split(",") if name.strip()]
    if "files" not in trusted:
        return Unkept("its partition files is not in the list of partitions that readers may trust", {})
    lost = _lost(table)
    if "files" in lost:
        return Unkept("the folder of its partition files is missing", {})
    found: dict[str, str] = {}
    for name in dict.fromkeys(table.config.metadata_partitions):
        is_kept = name in PARTITIONS and name in trusted
        why = _index_problem(table, options) if is_kept and name == RECORD_INDEX_PARTITION else None
        if name in lost:
            why = "its folder is missing"
        if not is_kept or why is not None:
            found[name] = why or "this writer does not keep it in sync"
    if not found and (problem := _unreadable(table)) is not None:
        return Unkept(problem, {})
    return Unkept(None, found)


def drop_unkept(table: HoodieTable, options: MetadataOptions, now_ms: int) -> HoodieTable:
    """Drop what :func:`unkept` finds, with a warning for each part. Returns the table without it."""
    if not table.config.metadata_partitions:
        return table
    found = unkept(table, options)
    if found.whole is not None:
        return _drop(table, now_ms, found.whole)
    for name, why in found.partitions.items():
        table = drop_partition(table, name, now_ms)
        LOG.warning(
            "table %s: dropped the partition %s of its metadata table: %s; the others stay", table.base_path, name, why
        )
    problem = _unreadable(table) if found.partitions else None
    return table if problem is None else _drop(table, now_ms, problem)


def _unreadable(table: HoodieTable) -> str | None:
    """Why this writer can't write to the metadata table; None where it can."""
    try:
        MetadataWriter.open(table)
    except (MetadataTableMismatchError, TableNotFoundError, CorruptFileError) as error:
        return str(error)
    try:
        metadata = MetadataTable.open(table, table.timeline())
        if metadata is not None:
            metadata.partition_paths()
    except UnsupportedTableError as error:
        return str(error)
    return None


def drop_wrong_listing(table: HoodieTable, now_ms: int) -> HoodieTable:
    """Drop a metadata table whose file listing differs from the files in storage. Returns the table without it.

    Called when the index and the files differ. The wrong listing would hide the difference, and every start would fail
    at the same file.
    """
    try:
        problems = validate_listing(table)
    except (MetadataTableMismatchError, TableNotFoundError, CorruptFileError):
        return table  # drop_unkept handles these
    if not problems:
        return table
    more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
    return _drop(table, now_ms, f"{problems[0]}{more}")


def _lost(table: HoodieTable) -> set[str]:
    """Partitions of the metadata table without a folder. A paused driver that was replaced may have deleted them later."""
    there = table.storage.names(FOLDER)
    return {name for name in table.config.metadata_partitions if name not in there}


def _index_problem(table: HoodieTable, options: MetadataOptions) -> str | None:
    """Why a table's record index is dropped; None when it stays."""
    if options.no_record_index is not None:
        return options.no_record_index
    by_partition = has_partitioned_index(table.storage)
    if options.keys_by_partition and not by_partition:
        return "it has one location per key, but in this stream partition and key together identify a row"
    if by_partition and not table.config.table_version.partitioned_record_index:
        return "it is one by partition, which Hudi 0.x reads as a global one and misses keys in"
    if options.record_index and by_partition != options.partitioned_index:
        forms = ("by partition", "over all partitions")
        return "it is one {}, and the options ask for one {}, which is made next".format(
            *(forms if by_partition else reversed(forms))
        )
    return None


def drop_partition_stats(table: HoodieTable, now_ms: int) -> HoodieTable:
    """The table without statistics of whole partitions.

    Called when a column's type is widened: the statistics would combine values of two types, which Hudi's readers
    cannot compare.
    """
    if PARTITION_STATS_PARTITION not in table.config.metadata_partitions:
        return table
    table = drop_partition(table, PARTITION_STATS_PARTITION, now_ms)
    LOG.warning(
        "table %s: dropped the partition %s of its metadata table, because a column's type is widened; queries now prune "
        "with the statistics of files",
        table.base_path,
        PARTITION_STATS_PARTITION,
    )
    return table


def make_if_wanted(
    table: HoodieTable, schema: pa.Schema, options: MetadataOptions, spark: SparkSession, clock_ms: Callable[[], int]
) -> HoodieTable:
    """Make the metadata table, or its partitions, that the options ask for and the table lacks. Returns the table with
    them.

    ``schema``: its user columns. For a table with commits they are made from its files and keys. Nothing is made while
    an instant is pending.
    """
    config, timeline = table.config, table.timeline()
    has, empty = bool(config.metadata_partitions), timeline.newest is None
    asked = has or (options.is_made(config.version) if empty else options.enable)
    wanted = options.asked_for() if has else options.partitions(config.version)
    missing = [name for name in wanted if name not in config.metadata_partitions]
    if not asked or not missing:
        return table
    if timeline.pending:
        LOG.warning(
            "table %s: did not make its metadata table (%s), because %s is pending; the next start tries again",
            table.base_path,
            ", ".join(missing),
            timeline.pending[0].file_name(),
        )
        return table
    groups = {
        name: options.record_index_groups if name == RECORD_INDEX_PARTITION else DEFAULT_GROUPS[name]
        for name in missing
    }
    writer = MetadataWriter.open(table)
    if writer is None:  # an upgrade keeps the index definitions of the earlier table version
        columns: Sequence[str] = default_columns(schema, statistics_form(table.storage, config.version))
    else:
        columns = range_columns(writer, schema)
    times = fresh_times(table, writer, clock_ms)
    if not empty:
        return build(table, groups, columns, spark, times, clock_ms, partitioned_index=options.partitioned_index)
    made = create_empty(table, groups, columns, times, clock_ms(), partitioned_index=options.partitioned_index)
    LOG.info("table %s: made its metadata table with the partitions %s", table.base_path, ", ".join(missing))
    return made


def _drop(table: HoodieTable, now_ms: int, why: str) -> HoodieTable:
    dropped = table.drop_metadata_table(now_ms)
    LOG.warning("table %s: dropped its metadata table (%s): %s", table.base_path, ", ".join(dropped), why)
    return table.reload()
