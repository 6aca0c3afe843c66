"""One partition of a metadata table is dropped: readers stop trusting it first, then its files go."""

from __future__ import annotations

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.properties import update_properties
from tagstream.table.metadata.encode.indexed_columns import without_definition
from tagstream.table.metadata.index_definitions import INDEX_DEFINITIONS
from tagstream.table.metadata.metadata_table import FILES_PARTITION, FOLDER
from tagstream.table.metadata.write.layout import INFLIGHT_KEY, PARTITIONS_KEY, listed
from tagstream.table.metadata.write.metadata_writer import unkept_partitions


def drop_unwritable(table: HoodieTable, at_ms: int) -> tuple[HoodieTable, tuple[str, ...]]:
    """(the table without what of its metadata table cannot be written on, what went and why, a sentence each).

    Readers believe what they find there, so it goes before anything is written. A stream's start does the same.
    """
    if table.has_lost_metadata_table:
        names = ", ".join(table.drop_metadata_table(at_ms))
        return table.reload(), (f"dropped its metadata table ({names}), whose folder is not there any more",)
    told = []
    for name in unkept_partitions(table):
        table = drop_partition(table, name, at_ms)
        told.append(f"dropped the partition {name} of its metadata table, which this program does not keep in step")
    return table, tuple(told)


def drop_partition(table: HoodieTable, partition: str, at_ms: int) -> HoodieTable:
    """The table without one partition of its metadata table, built or being built; a missing one is fine.

    ValueError for ``files``, which the others cannot be without: drop the metadata table.
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
