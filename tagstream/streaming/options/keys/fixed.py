"""Keys that no option has: their accepted values are what is done in any case."""

from __future__ import annotations

from tagstream.table.config import ConfigKey, Kind

_CLUSTERING = "Clustering"
_PACKAGE = "org.apache.hudi.client.clustering."
_EXECUTION = "SparkSortAndSizeExecutionStrategy"
RESIZE_PLAN = "SparkConsistentBucketClusteringPlanStrategy"
RESIZE_EXECUTION = "SparkConsistentBucketClusteringExecutionStrategy"
PLAN_KEY, EXECUTION_KEY = "hoodie.clustering.plan.strategy.class", "hoodie.clustering.execution.strategy.class"
_UPDATES = "SparkRejectUpdateStrategy"

FIXED_KEYS = (
    ConfigKey(
        "--schemaprovider-class",
        Kind.CHOICE,
        "The source of the table's schema: a schema file if one is named, or else the registry if one is named.",
        default="FilebasedSchemaProvider",
        flag="--schemaprovider-class",
        values={
            "FILEBASEDSCHEMAPROVIDER": "FilebasedSchemaProvider",
            "ORG.APACHE.HUDI.UTILITIES.SCHEMA.FILEBASEDSCHEMAPROVIDER": "FilebasedSchemaProvider",
            "SCHEMAREGISTRYPROVIDER": "SchemaRegistryProvider",
            "ORG.APACHE.HUDI.UTILITIES.SCHEMA.SCHEMAREGISTRYPROVIDER": "SchemaRegistryProvider",
        },
        refused_values={
            prefix + name.upper(): "this version reads the schema from a file; save it there, name it with "
            "hoodie.streamer.schemaprovider.source.schema.file, and remove the flag"
            for prefix in ("", "ORG.APACHE.HUDI.UTILITIES.SCHEMA.")
            for name in (
                "HiveSchemaProvider",
                "JdbcbasedSchemaProvider",
                "ProtoClassBasedSchemaProvider",
                "RowBasedSchemaProvider",
            )
        },
        section="Source",
    ),
    ConfigKey(
        "hoodie.logfile.data.block.format",
        Kind.CHOICE,
        "Format of the data blocks in log files.",
        default="parquet",
        values={"PARQUET": "parquet"},
        refused_values={
            "AVRO": "Avro blocks are read, and Parquet blocks are written; remove it",
            "HFILE": "HFile blocks are written to the metadata table only, and Parquet blocks to this one; remove it",
        },
        section="Files",
    ),
    ConfigKey(
        PLAN_KEY,
        Kind.CHOICE,
        "How file groups are chosen: by their sizes. With consistent hashing it is always "
        f"`{RESIZE_PLAN}`, which splits and merges buckets.",
        default="SparkSizeBasedClusteringPlanStrategy",
        values={
            f"{prefix}{name}".upper(): "SparkSizeBasedClusteringPlanStrategy"
            for prefix in ("", f"{_PACKAGE}plan.strategy.")
            for name in (
                "SparkSizeBasedClusteringPlanStrategy",
                "JavaSizeBasedClusteringPlanStrategy",
                "FlinkSizeBasedClusteringPlanStrategy",
            )
        }
        | {f"{prefix}{RESIZE_PLAN}".upper(): RESIZE_PLAN for prefix in ("", f"{_PACKAGE}plan.strategy.")},
        section=_CLUSTERING,
    ),
    ConfigKey(
        EXECUTION_KEY,
        Kind.CHOICE,
        "How a plan is executed: its rows are sorted, and split into files of the target size. With consistent hashing it "
        f"is always `{RESIZE_EXECUTION}`.",
        default=_EXECUTION,
        values={
            f"{prefix}{name}".upper(): name
            for prefix in ("", f"{_PACKAGE}run.strategy.")
            for name in (_EXECUTION, RESIZE_EXECUTION)
        },
        section=_CLUSTERING,
    ),
    ConfigKey(
        "hoodie.clustering.updates.strategy",
        Kind.CHOICE,
        "What a batch does if it has rows for a file group of a pending clustering: it waits until the "
        "clustering is done; a clustering that this project has planned is rolled back.",
        default=_UPDATES,
        values={f"{prefix}{_UPDATES}".upper(): _UPDATES for prefix in ("", f"{_PACKAGE}update.strategy.")},
        section=_CLUSTERING,
    ),
    ConfigKey(
        "hoodie.bucket.index.partition.rule.type",
        Kind.CHOICE,
        "BUCKET, simple engine: the kind of the expressions for numbers of buckets by partition.",
        default="regex",
        values={"REGEX": "regex"},
        section="Pull-type indexes",
    ),
)
