"""Names in a metadata table: its partitions' file groups, its first instants, the properties it is made with."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tagstream.table.file_group.bloom import BloomParams
from tagstream.table.meta_client.properties import CHECKSUM_KEY, table_checksum
from tagstream.table.meta_client.table_config import MERGE_ON_READ
from tagstream.table.metadata.index_groups import PREFIX as INDEX_PREFIX
from tagstream.table.metadata.metadata_table import (
    BLOOM_FILTERS_PARTITION,
    COLUMN_STATS_PARTITION,
    FILES_PARTITION,
    PARTITION_STATS_PARTITION,
    RECORD_INDEX_PARTITION,
)
from tagstream.table.metadata.record_index import shards_of
from tagstream.table.table_version import TableVersion

# Only these are kept up; others must be dropped before a table is written.
PARTITIONS: Final = (
    FILES_PARTITION, COLUMN_STATS_PARTITION, BLOOM_FILTERS_PARTITION, RECORD_INDEX_PARTITION, PARTITION_STATS_PARTITION
)  # fmt: skip
PARTITIONS_KEY: Final = "hoodie.table.metadata.partitions"  # of the table's properties: those that readers may trust
INFLIGHT_KEY: Final = "hoodie.table.metadata.partitions.inflight"

_PREFIXES: Final = {
    FILES_PARTITION: "files", COLUMN_STATS_PARTITION: "col-stats", BLOOM_FILTERS_PARTITION: "bloom-filters",
    RECORD_INDEX_PARTITION: INDEX_PREFIX, PARTITION_STATS_PARTITION: "partition-stats",
}  # fmt: skip
# Hudi's numbers of file groups; those of a record index follow from the keys it will have.
DEFAULT_GROUPS: Final[Mapping[str, int]] = {
    FILES_PARTITION: 1, COLUMN_STATS_PARTITION: 2, BLOOM_FILTERS_PARTITION: 4, PARTITION_STATS_PARTITION: 1
}  # fmt: skip
_KEY_BYTES: Final = 48  # of a key of the record index with its place, as Hudi reckons
_GROWTH: Final = 2.0
_GROUP_BYTES: Final = 1024**3
_FIRST_OLD: Final = 10  # the first initial instant's number, up to version 7
_NO_COMMITS: Final = "0" * 14


@dataclass(frozen=True)
class Forms:
    """The table's version; those in whose form statistics (``index_definitions.statistics_form``) and records
    (``record_schema``) are written.
    """

    version: int
    statistics: int
    records: int

    @staticmethod
    def of(version: int) -> Forms:
        """Those of a new table."""
        return Forms(version, version, version)


def group_name(partition: str, number: int) -> str:
    """File id of a file group of one of the metadata table's partitions."""
    return f"{_PREFIXES[partition]}-{number:04d}-0"


def in_making_order(names: Collection[str], version: int) -> list[str]:
    """Those of the partitions that are named, in the order in which Hudi's writer of that version makes them."""
    found = [name for name in PARTITIONS if name in names]
    if TableVersion.of(version).layout < 2 and BLOOM_FILTERS_PARTITION in found:
        found.remove(BLOOM_FILTERS_PARTITION)
        found.insert(found.index(FILES_PARTITION) + 1 if FILES_PARTITION in found else 0, BLOOM_FILTERS_PARTITION)
    return found


def key_filter(version: int) -> BloomParams:
    """The bloom filter of a base file's keys, as Hudi's writer of that version makes it by default."""
    return BloomParams(num_entries=TableVersion.of(version).key_filter_entries)


def record_index_groups(keys: int, least: int = 10, most: int = 10_000) -> int:
    """How many file groups Hudi gives a record index of so many keys; they stay for its life."""
    return max(least, min(most, int(keys * _KEY_BYTES * _GROWTH / _GROUP_BYTES) + 1))


def groups_of_keys(keys: pa.Array, count: int) -> npt.NDArray[np.int64]:
    """The number of each key's file group: one function for all partitions."""
    if count == 1:
        return np.zeros(len(keys), np.int64)
    return shards_of(keys, count)


def initial_instant(version: int, number: int, newest: str | None) -> str:
    """The instant that makes a partition, the ``number``-th that there is; ``newest``: the newest completed data instant."""
    if TableVersion.of(version).has_completion_times:
        return f"{number:017d}"
    return f"{newest or _NO_COMMITS}{_FIRST_OLD + number:03d}"


def new_metadata_properties(table_name: str, version: int) -> dict[str, str]:
    """``hoodie.properties`` of a metadata table, with what Hudi's writer of that version puts there."""
    name = f"{table_name}_metadata"
    properties = {
        "hoodie.table.name": name,
        "hoodie.table.type": MERGE_ON_READ,
        "hoodie.table.version": str(version),
        CHECKSUM_KEY: table_checksum("", name),
        "hoodie.table.recordkey.fields": "key",
        "hoodie.populate.meta.fields": "false",
        "hoodie.table.base.file.format": "HFILE",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.compaction.payload.class": "org.apache.hudi.metadata.HoodieMetadataPayload",
    }
    if TableVersion.of(version).layout < 2:
        return properties | {
            "hoodie.timeline.layout.version": "1",
            "hoodie.archivelog.folder": "archived",
            "hoodie.table.keygenerator.class": "org.apache.hudi.metadata.HoodieTableMetadataKeyGenerator",
            "hoodie.compaction.record.merger.strategy": "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
        }
    return properties | {
        "hoodie.timeline.layout.version": "2",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.archivelog.folder": "history",
        "hoodie.table.initial.version": str(version),
        "hoodie.table.keygenerator.type": "HOODIE_TABLE_METADATA",
        "hoodie.record.merge.mode": "CUSTOM",
        "hoodie.record.merge.strategy.id": "00000000-0000-0000-0000-000000000000",
    }


def listed(names: Iterable[str]) -> str:
    """Names of partitions as the table's properties hold them."""
    return ",".join(sorted(set(names)))
