"""One partition of a metadata table is dropped: readers stop trusting it first, then its files go."""

from __future__ import annotations

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.properties import update_properties
from tagstream.table.metadata.encode.indexed_columns import without_definition
from tagstream.table.metadata.index_definitions import INDEX_DEFINITIONS
from tagstream.table.metadata.metadata_table import FILES_PARTITION, FOLDER
from tagstream.table.metadata.write.layout import INFLIGHT_KEY, PARTITIONS_KEY, listed


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
