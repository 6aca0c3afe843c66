"""Keys of what is written: file sizes, Parquet, bloom filters, and the table's metadata table.

The keys of the metadata table have Hudi's names, and Hudi's defaults for the version of the table. The keys of a
job that writes several tables are here, too.
"""

from __future__ import annotations

from tagstream.table.config import ConfigKey, Kind

_WRITE = "Files"

WRITE_KEYS = (
    ConfigKey(
        "hoodie.parquet.max.file.size",
        Kind.BYTES,
        "Size a base file grows to.",
        default=125_829_120,
        minimum=1,
        section=_WRITE,
    ),
    ConfigKey(
        "hoodie.parquet.small.file.limit",
        Kind.BYTES,
        "Base files smaller than this take inserts; 0: none does.",
        default=104_857_600,
        section=_WRITE,
    ),
    ConfigKey(
        "hoodie.parquet.compression.codec",
        Kind.CHOICE,
        "Codec of Parquet pages, in base files and log blocks. Hudi's default is gzip, which takes two to four times "
        "as long to write; every engine reads zstd.",
        default="zstd",
        section=_WRITE,
        values={"GZIP": "gzip", "SNAPPY": "snappy", "ZSTD": "zstd", "UNCOMPRESSED": "uncompressed", "": "uncompressed"},
        refused_values=dict.fromkeys(
            ("LZO", "BROTLI", "LZ4", "LZ4_RAW"), "Hudi's readers do not all have it; use gzip, snappy or zstd"
        ),
    ),
    ConfigKey(
        "hoodie.parquet.block.size",
        Kind.BYTES,
        "Most bytes of a row group.",
        default=125_829_120,
        minimum=1024,
        section=_WRITE,
    ),
    ConfigKey(
        "hoodie.copyonwrite.record.size.estimate",
        Kind.BYTES,
        "Bytes of a record while no commit tells better.",
        default=1024,
        minimum=1,
        section=_WRITE,
    ),
    ConfigKey(
        "hoodie.record.size.estimation.threshold",
        Kind.FLOAT,
        "A commit counts for the average record size when it wrote more than this share of the small file limit.",
        default=1.0,
        minimum=0,
        section=_WRITE,
    ),
    ConfigKey(
        "hoodie.copyonwrite.insert.split.size",
        Kind.INT,
        "Most inserts that go to one new file.",
        default=500_000,
        minimum=1,
        section=_WRITE,
    ),
    ConfigKey(
        "hoodie.logfile.to.parquet.compression.ratio",
        Kind.FLOAT,
        "Expected size of a log's bytes after compaction, for the choice of small files.",
        default=0.35,
        minimum=0,
        section=_WRITE,
    ),
    ConfigKey(
        "hoodie.logfile.data.block.format",
        Kind.CHOICE,
        "Format of the data blocks in log files.",
        default="parquet",
        section=_WRITE,
        values={"PARQUET": "parquet"},
        refused_values=dict.fromkeys(("AVRO", "HFILE"), "this version writes Parquet data blocks"),
    ),
    ConfigKey(
        "hoodie.bloom.index.filter.type",
        Kind.CHOICE,
        "Kind of bloom filter in a base file's footer.",
        default="DYNAMIC_V0",
        section=_WRITE,
        values={"DYNAMIC_V0": "DYNAMIC_V0", "SIMPLE": "SIMPLE"},
        aliases=("hoodie.bloom.filter.type",),
    ),
    ConfigKey(
        "hoodie.index.bloom.num_entries",
        Kind.INT,
        "Keys a bloom filter is sized for.",
        default=60_000,
        minimum=1,
        section=_WRITE,
        aliases=("hoodie.bloom.filter.num_entries",),
    ),
    ConfigKey(
        "hoodie.index.bloom.fpp",
        Kind.FLOAT,
        "False positive rate of a bloom filter.",
        default=1e-9,
        minimum=1e-18,
        maximum=0.5,
        section=_WRITE,
        aliases=("hoodie.bloom.filter.fpp",),
    ),
    ConfigKey(
        "hoodie.bloom.index.filter.dynamic.max.entries",
        Kind.INT,
        "Keys up to which a dynamic filter grows.",
        default=100_000,
        minimum=1,
        section=_WRITE,
        aliases=("hoodie.bloom.filter.dynamic.max.entries",),
    ),
)

_JOB = "Job"

TABLES_KEYS = (
    ConfigKey(
        "--config-folder",
        Kind.PATH,
        "Several tables in one job, as HoodieMultiTableStreamer: the folder of the tables' own properties files "
        "(docs/guide/dataframes.md#several-tables).",
        default_note="one table",
        flag="--config-folder",
        section=_JOB,
    ),
    ConfigKey(
        "--base-path-prefix",
        Kind.PATH,
        "Several tables in one job: a table lies at `PREFIX/DATABASE/TABLE`.",
        default_note="one table",
        flag="--base-path-prefix",
        section=_JOB,
    ),
    ConfigKey(
        "hoodie.streamer.ingestion.tablesToBeIngested",
        Kind.LIST,
        "Several tables in one job: their names, `DATABASE.TABLE`. "
        "`hoodie.streamer.ingestion.DATABASE.TABLE.configFile` names the file of one that is not "
        "`DATABASE_TABLE_config.properties` in the config folder, `hoodie.streamer.ingestion.targetBasePath`"
        " in it its place.",
        default=(),
        section=_JOB,
    ),
)


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
