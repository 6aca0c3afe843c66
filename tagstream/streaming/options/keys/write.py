"""Keys of file sizes, Parquet, bloom filters and the metadata table."""

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
        "(docs/tables.md).",
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
