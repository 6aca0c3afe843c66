"""Before a query: a metadata table that can't be kept in step goes, one that is wanted is made.

Readers believe what they find there. So what is not kept in step is dropped before anything is written.
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
    """``whole``: why the metadata table goes, None where it stays. ``partitions``: why these of it go, by name."""

    whole: str | None
    partitions: Mapping[str, str]


def unkept(table: HoodieTable, options: MetadataOptions) -> Unkept:
    """What of a metadata table that is there is not wanted or can't be kept in step; nothing is changed."""
    if options.enable is False:
        return Unkept("hoodie.metadata.enable is false", {})
    trusted = [name.strip() for name in table.config.raw.get(PARTITIONS_KEY, "").split(",") if name.strip()]
    if "files" not in trusted:
        return Unkept("it has no listing of files that readers may trust", {})
    lost = _lost(table)
    if "files" in lost:
        return Unkept("its listing of files is not there any more", {})
    found: dict[str, str] = {}
    for name in dict.fromkeys(table.config.metadata_partitions):
        is_kept = name in PARTITIONS and name in trusted
        why = _index_problem(table, options) if is_kept and name == RECORD_INDEX_PARTITION else None
        if name in lost:
            why = "whose files are not there any more"
        if not is_kept or why is not None:
            found[name] = why or "which this writer does not keep in step"
    if not found and (problem := _unreadable(table)) is not None:
        return Unkept(problem, {})
    return Unkept(None, found)


def drop_unkept(table: HoodieTable, options: MetadataOptions, now_ms: int) -> HoodieTable:
    """The table without what of its metadata table is not wanted or can't be kept in step; a warning tells what went."""
    if not table.config.metadata_partitions:
        return table
    found = unkept(table, options)
    if found.whole is not None:
        return _drop(table, now_ms, found.whole)
    for name, why in found.partitions.items():
        table = drop_partition(table, name, now_ms)
        LOG.warning(
            "table %s: dropped the partition %s of its metadata table, %s; the others stay", table.base_path, name, why
        )
    problem = _unreadable(table) if found.partitions else None
    return table if problem is None else _drop(table, now_ms, problem)


def _unreadable(table: HoodieTable) -> str | None:
    """Why the metadata table can't be written on; None where it can."""
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
    """The table without a metadata table that lists other files than there are: asked when the index and the files differ.

    The listing would keep the difference from being seen, and every start would fail at the same file.
    """
    try:
        problems = validate_listing(table)
    except (MetadataTableMismatchError, TableNotFoundError, CorruptFileError):
        return table  # drop_unkept says what is wrong with it
    if not problems:
        return table
    more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
    return _drop(table, now_ms, f"{problems[0]}{more}")


def _lost(table: HoodieTable) -> set[str]:
    """Partitions whose folders are gone: a driver that woke up when another had its place may have deleted them."""
    there = table.storage.names(FOLDER)
    return {name for name in table.config.metadata_partitions if name not in there}


def _index_problem(table: HoodieTable, options: MetadataOptions) -> str | None:
    """Why a table's record index goes; None when it stays."""
    if options.no_record_index is not None:
        return options.no_record_index
    by_partition = has_partitioned_index(table.storage)
    if options.keys_by_partition and not by_partition:
        return "since partition and key identify a row together in this stream, and it has one place for a key"
    if by_partition and not table.config.table_version.partitioned_record_index:
        return "one by partition, which Hudi 0.x takes for the global one and misses keys in"
    if options.record_index and by_partition != options.partitioned_index:
        forms = ("by partition", "over all partitions")
        return "since it is one {} and one {} was asked for, which is made now".format(
            *(forms if by_partition else reversed(forms))
        )
    return None


def drop_partition_stats(table: HoodieTable, now_ms: int) -> HoodieTable:
    """The table without ranges of whole partitions: of a column whose type is widened they would be joined of two types,
    which Hudi's readers cannot compare.
    """
    if PARTITION_STATS_PARTITION not in table.config.metadata_partitions:
        return table
    table = drop_partition(table, PARTITION_STATS_PARTITION, now_ms)
    LOG.warning(
        "table %s: dropped the partition %s of its metadata table, since a column's type is widened; queries prune by files "
        "instead",
        table.base_path,
        PARTITION_STATS_PARTITION,
    )
    return table


def make_if_wanted(
    table: HoodieTable, schema: pa.Schema, options: MetadataOptions, spark: SparkSession, clock_ms: Callable[[], int]
) -> HoodieTable:
    """The table with a metadata table, or with partitions of one, that it lacks and is to have.

    ``schema``: its user columns. A table with commits gets them from its files and keys, if nothing is pending on it.
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
            "table %s: its metadata table (%s) is not made now, since %s is pending; the next start tries again",
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
    if writer is None:  # definitions of an earlier version stay at an upgrade
        columns: Sequence[str] = default_columns(schema, statistics_form(table.storage, config.version))
    else:
        columns = range_columns(writer, schema)
    times = fresh_times(table, writer, clock_ms)
    if not empty:
        return build(table, groups, columns, spark, times, clock_ms, partitioned_index=options.partitioned_index)
    made = create_empty(table, groups, columns, times, clock_ms(), partitioned_index=options.partitioned_index)
    LOG.info("table %s has a metadata table now: %s", table.base_path, ", ".join(missing))
    return made


def _drop(table: HoodieTable, now_ms: int, why: str) -> HoodieTable:
    dropped = table.drop_metadata_table(now_ms)
    LOG.warning("table %s: dropped its metadata table (%s): %s", table.base_path, ", ".join(dropped), why)
    return table.reload()
