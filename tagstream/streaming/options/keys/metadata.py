"""Keys of the table's metadata table, with Hudi's names, and Hudi's defaults for the version of the table."""

from __future__ import annotations

from tagstream.table.config import ConfigKey, Kind

_METADATA = "Metadata table"
_BY_VERSION = "true from table version 8 on"

METADATA_KEYS = (
    ConfigKey(
        "hoodie.metadata.enable",
        Kind.BOOL,
        "The table's metadata table: what it lists need not be listed by readers. True: it is made where there is none, and "
        "kept in step with every commit. Unset: one that exists is kept in step, and a new table of version 8 or 9 gets "
        "one. False: one that exists is dropped the way Hudi drops it.",
        default_note="unset",
        section=_METADATA,
    ),
    ConfigKey(
        "hoodie.metadata.index.column.stats.enable",
        Kind.BOOL,
        "A metadata table that is made here has the least and greatest value of each file's columns.",
        default_note=_BY_VERSION,
        section=_METADATA,
    ),
    ConfigKey(
        "hoodie.metadata.index.partition.stats.enable",
        Kind.BOOL,
        "A metadata table that is made here has the least and greatest value of each partition's columns (from version 8 "
        "on, with column statistics).",
        default_note=_BY_VERSION,
        section=_METADATA,
    ),
    ConfigKey(
        "hoodie.metadata.index.bloom.filter.enable",
        Kind.BOOL,
        "A metadata table that is made here has the bloom filter of each base file.",
        default=False,
        section=_METADATA,
    ),
    ConfigKey(
        "hoodie.metadata.global.record.level.index.enable",
        Kind.BOOL,
        "A metadata table that is made here has the place of each record key. It is written from what the stream's index "
        "has decided, whatever kind of index that is.",
        default=False,
        section=_METADATA,
        aliases=("hoodie.metadata.record.index.enable",),
    ),
    ConfigKey(
        "hoodie.metadata.global.record.level.index.min.filegroup.count",
        Kind.INT,
        "File groups of a record index that is made here; they stay for its life.",
        default=10,
        minimum=1,
        section=_METADATA,
        aliases=("hoodie.metadata.record.index.min.filegroup.count",),
    ),
    ConfigKey(
        "hoodie.metadata.record.level.index.enable",
        Kind.BOOL,
        "The same with file groups for each partition of the table, as Hudi 1.1 and later know it: partition and key name a "
        "row together (from version 8 on; not together with the global one).",
        default=False,
        section=_METADATA,
    ),
    ConfigKey(
        "hoodie.metadata.record.level.index.min.filegroup.count",
        Kind.INT,
        "File groups that a record index by partition gets for each partition; they stay for its life.",
        default=1,
        minimum=1,
        section=_METADATA,
        aliases=("hoodie.metadata.partitioned.record.index.min.filegroup.count",),
    ),
    ConfigKey(
        "hoodie.metadata.compact.max.delta.commits",
        Kind.INT,
        "Commits after which the metadata table is compacted, between two batches.",
        default=10,
        minimum=1,
        section=_METADATA,
    ),
)
