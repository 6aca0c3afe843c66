"""Create partitions of a metadata table, for a table without data or from its data, and drop them.

Each partition is created by its own instant, which readers accept without checking the data's timeline:

1. ``create_metadata_table``: properties and folders; files of an earlier attempt are removed. No reader uses them yet.
2. For each partition ``begin_partition``; then, one by one or in parallel tasks, ``write_index_shard`` for each
   file group of a record index, or ``write_records`` for the others; then ``complete_partition``.
3. ``register``: the table's properties name the partitions. From here on readers use them.

No action of the data except the caller's may be pending, and none may complete in between.

When a partition is dropped, its name is first removed from the table's properties, so that readers stop using it; then
its files are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tagstream.table.file_group.names import ensure_partition
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.properties import create_properties, read_properties, update_properties
from tagstream.table.meta_client.table_config import TableConfig
from tagstream.table.metadata.changes import Changes, GroupEntries, entries
from tagstream.table.metadata.delta_commit import delta_content, first_log_file, write_base_file
from tagstream.table.metadata.index_definitions import (
    DEFINITIONS_KEY,
    INDEX_DEFINITIONS,
    define_indexes,
    without_definition,
)
from tagstream.table.metadata.metadata_table import ALL_PARTITIONS, FILES_PARTITION, FOLDER, RECORD_INDEX_PARTITION
from tagstream.table.metadata.metadata_writer import (
    INFLIGHT_KEY,
    PARTITIONS,
    PARTITIONS_KEY,
    MetadataWriter,
    Times,
    group_name,
    in_making_order,
    initial_instant,
    listed,
    new_metadata_properties,
    unkept_partitions,
)
from tagstream.table.metadata.record_encoding import encode_places, encode_records, partitions_record
from tagstream.table.metadata.record_index import index_group_name
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.commit_metadata import WriteStat
from tagstream.table.timeline.instant import DELTA_COMMIT
from tagstream.table.timeline.operation import WriteOperationType


@dataclass(frozen=True)
class InitialPartition:
    """A partition of the metadata table that ``instant`` creates; picklable, for tasks that write its groups.

    ``groups``: number of file groups. A record index by partition has this number for each of ``data_partitions``, and
    they are numbered one partition after the other. For all others ``data_partitions`` is None.
    """

    writer: MetadataWriter
    partition: str
    instant: str
    groups: int
    data_partitions: tuple[str, ...] | None = None

    @property
    def total(self) -> int:
        """Total number of file groups."""
        return self.groups * (1 if self.data_partitions is None else len(self.data_partitions))

    def file_id(self, number: int) -> str:
        """File id of the file group with a number."""
        if self.data_partitions is None:
            return group_name(self.partition, number)
        return index_group_name(self.data_partitions[number // self.groups], number % self.groups)


def create_metadata_table(table: HoodieTable, at_ms: int) -> MetadataWriter:
    """Step 1: create properties and folders. ValueError when the table has a metadata table that readers use."""
    if table.reload().config.raw.get(PARTITIONS_KEY, "").strip():
        raise ValueError(f"table {table.config.name} at {table.base_path} has a metadata table: drop it first")
    _clear(table.storage, FOLDER)
    storage = table.storage.below(FOLDER)
    create_properties(storage, new_metadata_properties(table.config.name, table.config.version), at_ms)
    return MetadataWriter(table, storage, TableConfig.from_properties(read_properties(storage)))


def _clear(storage: Storage, folder: str) -> None:
    """Delete files of an earlier attempt, which no reader uses.

    The call is skipped for an empty folder: a driver that is paused before it, and resumes after a successor has taken
    over, would delete the successor's files.
    """
    if storage.names(folder):
        storage.delete_tree(folder)


def begin_partition(
    writer: MetadataWriter, partition: str, groups: int, data_partitions: Sequence[str] | None = None
) -> InitialPartition:
    """Step 2, for the driver: begin a partition, ``files`` first. Its instant follows those of the partitions before.

    ``data_partitions``: the table's partitions, perhaps none, for a record index by partition. ValueError for an
    unknown partition, or one that exists.
    """
    if (
        partition not in PARTITIONS
        or groups < 1
        or (data_partitions is not None and partition != RECORD_INDEX_PARTITION)
    ):
        raise ValueError(f"no partition {partition!r} with {groups} file groups can be made in a metadata table")
    if partition in MetadataWriter(writer.table.reload(), writer.storage, writer.config).partitions:
        raise ValueError(f"the metadata table at {writer.storage.root} has the partition {partition}: drop it first")
    _clear(writer.storage, partition)
    newest = writer.table.timeline().newest_completed
    taken = {instant.time for instant in writer.timeline().instants}
    number = next(n for n in range(len(taken) + 1) if initial_instant(writer.version, n, newest) not in taken)
    instant = initial_instant(writer.version, number, newest)
    writer.begin(instant, DELTA_COMMIT)
    ensure_partition(writer.storage, partition, instant)
    paths = None if data_partitions is None else tuple(data_partitions)
    return InitialPartition(writer, partition, instant, groups, paths)


def write_index_shard(initial: InitialPartition, number: int, places: Iterable[pa.Table]) -> WriteStat | None:
    """Write one file group of a record index: a pure function of its arguments, repeatable with the same result.

    ``number``: as in ``InitialPartition.file_id``. ``places``: tables of ``PLACES`` with only the keys of this group
    (``groups_of_keys``), unique and ascending by their bytes over all tables; one is in memory at a time. None: there
    were no keys, and only the empty group was created.
    """
    batches = (
        (
            table.column("record_key").combine_chunks().cast(pa.binary()),
            encode_places(table, initial.writer.forms.records),
        )
        for table in places
        if table.num_rows
    )
    return _write_group(initial, number, batches)


def write_records(initial: InitialPartition, changes: Changes) -> list[WriteStat]:
    """Write all file groups of another partition, from the table's data, in the form of a commit that wrote all of it."""
    writer = initial.writer
    made = entries(changes, initial.partition, initial.groups, initial.instant, writer.forms)
    found = {group.number: group for group in made}
    if initial.partition == FILES_PARTITION and not found:  # a record says that the table has no partitions
        keys, values = encode_records({ALL_PARTITIONS: partitions_record(())}, initial.writer.forms.records)
        found = {0: GroupEntries(0, keys, values, pa.array([], pa.string()))}
    groups = (found.get(number) for number in range(initial.groups))
    stats = [
        _write_group(initial, number, [(group.keys, group.values)] if group is not None else [])
        for number, group in enumerate(groups)
    ]
    return [stat for stat in stats if stat is not None]


def complete_partition(initial: InitialPartition, stats: Sequence[WriteStat], times: Times) -> None:
    """End of step 2, for the driver: complete the partition's instant with the stats of its files."""
    writer = initial.writer
    operation = (
        WriteOperationType.BULK_INSERT_PREPPED if writer.has_completion_times else WriteOperationType.BULK_INSERT
    )
    content = delta_content(list(stats), writer.forms, operation)
    writer.complete(initial.instant, DELTA_COMMIT, content, times)


def register(
    table: HoodieTable,
    partitions: Iterable[str],
    columns: Sequence[str],
    at_ms: int,
    partitioned_index: bool | None = None,
) -> HoodieTable:
    """Step 3: readers use these partitions, in addition to earlier ones. ``columns``: those with statistics.

    ``partitioned_index``: the form of a record index among them; None: unchanged. Returns the table with its new
    properties. From version 8 on Hudi reads the columns from a definition, which is written first.
    """
    table = table.reload()
    before = [name.strip() for name in table.config.raw.get(PARTITIONS_KEY, "").split(",") if name.strip()]
    names = [*before, *partitions]
    changes = {PARTITIONS_KEY: listed(names), INFLIGHT_KEY: ""}
    if table.config.table_version.index_definitions:
        define_indexes(table, names, columns, partitioned_index)
        changes[DEFINITIONS_KEY] = INDEX_DEFINITIONS
    update_properties(table.storage, changes, at_ms)
    return table.reload()


def create_empty(
    table: HoodieTable,
    groups: Mapping[str, int],
    columns: Sequence[str],
    times: Times,
    at_ms: int,
    *,
    partitioned_index: bool = False,
) -> HoodieTable:
    """All steps for a table without commits. ``groups``: number of file groups of each partition, including ``files``.

    ``partitioned_index``: a record index then has no groups yet, because the table has no partitions. Returns the table
    with its metadata table registered.
    """
    writer = create_metadata_table(table, at_ms)
    made = in_making_order(groups, table.config.version)
    for partition in made:
        by_partition = partitioned_index and partition == RECORD_INDEX_PARTITION
        initial = begin_partition(writer, partition, groups[partition], () if by_partition else None)
        if partition == RECORD_INDEX_PARTITION:
            shards = [write_index_shard(initial, number, ()) for number in range(initial.total)]
            stats = [stat for stat in shards if stat is not None]
        else:
            stats = write_records(initial, Changes())
        complete_partition(initial, stats, times)
    return register(table, made, columns, at_ms, partitioned_index if RECORD_INDEX_PARTITION in made else None)


def _write_group(
    initial: InitialPartition, number: int, batches: Iterable[tuple[pa.Array, pa.Array]]
) -> WriteStat | None:
    writer, partition = initial.writer, initial.partition
    file_id = initial.file_id(number)
    first_log_file(writer, partition, file_id, initial.instant)
    return write_base_file(writer, partition, file_id, initial.instant, batches)


def drop_unwritable(table: HoodieTable, at_ms: int) -> tuple[HoodieTable, tuple[str, ...]]:
    """Drop the parts of a metadata table that cannot be written. Returns (the table, a sentence for each dropped part).

    It must be done before a write, because readers use the metadata table. The start of a stream does the same.
    """
    if table.has_lost_metadata_table:
        names = ", ".join(table.drop_metadata_table(at_ms))
        return table.reload(), (f"dropped its metadata table ({names}), whose folder is missing",)
    messages = []
    for name in unkept_partitions(table):
        table = drop_partition(table, name, at_ms)
        messages.append(
            f"dropped the partition {name} of its metadata table, which this program does not keep up to date"
        )
    return table, tuple(messages)


def drop_partition(table: HoodieTable, partition: str, at_ms: int) -> HoodieTable:
    """Drop one partition of a metadata table, built or being built, if it exists. Returns the table.

    ValueError for ``files``, which the others need: drop the metadata table instead.
    """
    if partition == FILES_PARTITION or "/" in partition or not partition:
        raise ValueError(
            f"the partition {partition!r} of a metadata table cannot be dropped alone; drop the metadata table"
        )
    table = table.reload()
    changes = {}
    for key in (PARTITIONS_KEY, INFLIGHT_KEY):
        names = [name.strip() for name in table.config.raw.get(key, "").split(",") if name.strip()]
        if partition in names:
            changes[key] = listed(name for name in names if name != partition)
    if changes:
        update_properties(table.storage, changes, at_ms)
    table.storage.delete_tree(f"{FOLDER}/{partition}")
    if table.storage.exists(INDEX_DEFINITIONS):
        data, where = table.storage.read(INDEX_DEFINITIONS), table.storage.where(INDEX_DEFINITIONS)
        table.storage.replace(INDEX_DEFINITIONS, without_definition(data, partition, where))
    return table.reload()
