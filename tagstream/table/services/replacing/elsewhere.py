"""Keys that are to be written, and that the table has in a partition which stays: they would be there twice.

Hudi does not look: an insert overwrite asks no index, and the row in the other partition stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import MetadataTable
from tagstream.table.metadata.record_index import RecordIndex
from tagstream.table.services.replacing.groups import keys_of


def keys_elsewhere(table: HoodieTable, keys: pa.Array, replaced: Collection[str]) -> Iterator[tuple[str, pa.Array]]:
    """(partition path, those of the keys that have a live row there) of the partitions that are not ``replaced``.

    The metadata table's record index is asked where there is one, else the keys of these partitions are read.
    """
    timeline = table.timeline()
    index = RecordIndex.open(MetadataTable.open(table, timeline)) if table.config.metadata_partitions else None
    if index is not None:
        found = index.lookup(keys.cast(pa.string()))
        paths, own = found.column("partition_path"), found.column("record_key")
        for path in sorted({*pc.unique(paths).to_pylist()} - {*replaced}):
            yield path, own.filter(pc.equal(paths, path)).combine_chunks()
        return
    others = [path for path in table.view(timeline).partitions() if path not in replaced]
    wanted = keys.cast(pa.large_string())
    for path, there in keys_of(table, timeline, others):
        here = pc.is_in(there.cast(pa.large_string()), value_set=wanted)
        if np.any(here.to_numpy(zero_copy_only=False)):
            yield path, there.filter(here)
