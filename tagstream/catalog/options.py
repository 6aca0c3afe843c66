"""How a table is registered in a catalogue: HoodieStreamer's and HiveSyncTool's keys, with their defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from tagstream.catalog.partition_values import EXTRACTOR_KEY, extractor_name
from tagstream.table.config import ConfigKey, Kind
from tagstream.table.errors import ConfigError
from tagstream.table.option_fields import derived, option

Strategy = Literal["ALL", "RO", "RT"]

HIVE, GLUE = "hive", "glue"
# Short names of the tools for --sync-tool-classes, and their catalogues.
TOOLS = {"HiveSyncTool": HIVE, "AwsGlueCatalogSyncTool": GLUE}
_PACKAGES = {"HiveSyncTool": "org.apache.hudi.hive.", "AwsGlueCatalogSyncTool": "org.apache.hudi.aws.sync."}

_HIVE = "hoodie.datasource.hive_sync."
ENABLE_FLAGS = ("--enable-sync", "--enable-hive-sync")
ENABLE_KEYS = (f"{_HIVE}enable", "hoodie.datasource.meta.sync.enable")
TOOLS_KEY = "--sync-tool-classes"
URIS_KEY = f"{_HIVE}metastore.uris"
_DEFAULT_PORT = 9083
MODE_KEY, IGNORE_KEY = f"{_HIVE}mode", f"{_HIVE}ignore_exceptions"


def _pairs(text: str) -> dict[str, str]:
    """Hudi's form of a map: one ``key=value`` per line."""
    found = {}
    for line in text.replace("\\n", "\n").split("\n"):
        if not line.strip():
            continue
        name, marker, value = line.partition("=")
        if not marker or not name.strip():
            raise ConfigError(f"{line.strip()!r} must be key=value; separate several with line breaks")
        found[name.strip()] = value.strip()
    return found


def _extractor(text: str) -> str:
    return extractor_name(text, 1)


def metastore_addresses(uris: Sequence[str]) -> list[tuple[str, int]]:
    """Hosts and ports of ``thrift://host:port``; ConfigError for anything else."""
    found = []
    for uri in uris:
        parts = urlsplit(uri.strip())
        try:
            port = parts.port or _DEFAULT_PORT
        except ValueError:
            port = 0
        if parts.scheme != "thrift" or not parts.hostname or not port:
            raise ConfigError(f"{URIS_KEY} = {uri}: it must be thrift://host:port; separate several with commas")
        found.append((parts.hostname, port))
    return found


def _uris(text: str) -> tuple[str, ...]:
    found = tuple(uri.strip() for uri in text.split(","))
    metastore_addresses(found)
    return found


@dataclass(frozen=True, kw_only=True)
class SyncOptions:
    """The registered entries and their catalogues.

    ``catalogs``: names of catalogues (:data:`TOOLS`); none: nothing is registered. ``table``: None for the table's own
    name. ``partition_fields``: None for the table's own. ``extractor``: None for Hudi's choice. ``batch``: partitions
    in one call. ``ignore_errors``: None where the user said nothing.
    """

    catalogs: tuple[str, ...] = derived(
        ConfigKey(
            ENABLE_FLAGS[0],
            Kind.BOOL,
            "Register the table in a catalogue, and keep its schema and partitions there up to date.",
            default=False,
            flag=ENABLE_FLAGS[0],
            flag_aliases=ENABLE_FLAGS[1:],
        ),
        ConfigKey(
            ENABLE_KEYS[0],
            Kind.BOOL,
            "The same as `--enable-sync`, with the Hive Metastore among the tools.",
            default=False,
        ),
        ConfigKey(ENABLE_KEYS[1], Kind.BOOL, "The same as `--enable-sync`.", default=False),
        ConfigKey(
            TOOLS_KEY,
            Kind.LIST,
            "Hudi's tools whose catalogues are written: `org.apache.hudi.hive.HiveSyncTool` (Hive Metastore) and "
            "`org.apache.hudi.aws.sync.AwsGlueCatalogSyncTool` (AWS Glue).",
            default_note="HiveSyncTool",
            flag=TOOLS_KEY,
        ),
        ConfigKey(
            "hoodie.meta.sync.client.tool.class",
            Kind.LIST,
            "The same as `--sync-tool-classes`.",
            default_note="HiveSyncTool",
        ),
        ConfigKey(
            MODE_KEY,
            Kind.CHOICE,
            "Protocol for the Hive Metastore; only its own is supported.",
            default="hms",
            values={"HMS": "hms"},
            refused_values=dict.fromkeys(
                ("JDBC", "HIVEQL"),
                "it needs a HiveServer2. Use hms, and set the metastore in hoodie.datasource.hive_sync.metastore.uris",
            ),
        ),
        default=(),
    )
    uris: tuple[str, ...] = option(
        URIS_KEY,
        Kind.STRING,
        "Addresses of the Hive Metastore, `thrift://host:port`, separated by commas; the first one that answers is "
        "used.",
        default="thrift://localhost:9083",
        convert=_uris,
    )
    tls_ca_file: str | None = option(
        "tagstream.hive.metastore.tls.ca.file",
        Kind.PATH,
        "The metastore speaks TLS, with a certificate of these authorities (a PEM file); `system`: those of the system.",
        default_note="no TLS",
    )
    database: str = option(f"{_HIVE}database", Kind.STRING, "Database of the catalogue.", default="default")
    table: str | None = option(
        f"{_HIVE}table", Kind.STRING, "Name of the table in the catalogue.", default_note="the table's own name"
    )
    partition_fields: tuple[str, ...] | None = option(
        f"{_HIVE}partition_fields", Kind.LIST, "Partition keys in the catalogue.", default_note="the table's own"
    )
    extractor: str | None = option(
        EXTRACTOR_KEY,
        Kind.STRING,
        "Class that derives the values of the partition keys from a partition path. Tables partitioned by time with "
        "slashes (`2026/01/31`) and one key need `org.apache.hudi.hive.SlashEncodedDayPartitionValueExtractor`.",
        default_note="MultiPartKeysValueExtractor: the parts of the path, without `name=`",
        convert=_extractor,
    )
    auto_create_database: bool = option(
        f"{_HIVE}auto_create_database", Kind.BOOL, "Create the database if it does not exist.", default=True
    )
    strategy: Strategy = option(
        f"{_HIVE}table.strategy",
        Kind.CHOICE,
        "Entries of a merge-on-read table: `ALL` creates `<name>_ro` (only base files), `<name>_rt` and `<name>`; "
        "`RO` and `RT` create only `<name>`.",
        default="ALL",
        values={"ALL": "ALL", "RO": "RO", "RT": "RT"},
    )
    skip_ro_suffix: bool = option(
        f"{_HIVE}skip_ro_suffix",
        Kind.BOOL,
        "The entry with only base files is `<name>`, not `<name>_ro`.",
        default=False,
    )
    snapshot_with_table_name: bool = option(
        "hoodie.meta.sync.sync_snapshot_with_table_name",
        Kind.BOOL,
        "A merge-on-read table also has the entry `<name>`.",
        default=True,
    )
    support_timestamp: bool = option(
        f"{_HIVE}support_timestamp",
        Kind.BOOL,
        "Timestamps are `timestamp` in Hive; without this key `bigint`. Spark reads timestamps in both cases.",
        default=False,
    )
    as_datasource: bool = option(
        f"{_HIVE}sync_as_datasource", Kind.BOOL, "Write Spark's schema and provider into the entry.", default=True
    )
    schema_length: int = option(
        f"{_HIVE}schema_string_length_thresh",
        Kind.INT,
        "Number of characters in one part of Spark's schema.",
        default=4000,
        minimum=100,
    )
    table_properties: Mapping[str, str] | None = option(
        f"{_HIVE}table_properties",
        Kind.STRING,
        "More parameters of the entry: `key=value`, separated by `\\n`.",
        default_note="none",
        convert=_pairs,
    )
    serde_properties: Mapping[str, str] | None = option(
        f"{_HIVE}serde_properties",
        Kind.STRING,
        "More parameters of its serde: `key=value`, separated by `\\n`.",
        default_note="none",
        convert=_pairs,
    )
    omit_meta_fields: bool = option(
        f"{_HIVE}omit_metadata_fields", Kind.BOOL, "Leave out Hudi's five meta columns.", default=False
    )
    comments: bool = option(
        f"{_HIVE}sync_comment",
        Kind.BOOL,
        "Write the `doc` of the schema's fields as column comments.",
        default=False,
    )
    incremental: bool = option(
        "hoodie.meta.sync.incremental",
        Kind.BOOL,
        "Check only the partitions of new commits; without this key all partitions.",
        default=True,
    )
    conditional: bool = option(
        "hoodie.datasource.meta_sync.condition.sync",
        Kind.BOOL,
        "Write `last_commit_time_sync` only if schema, parameters or partitions changed.",
        default=False,
    )
    decode_partition: bool = option(
        "hoodie.meta.sync.decode_partition", Kind.BOOL, "Decode `%xx` in partition values.", default=False
    )
    touch: bool = option(
        "hoodie.meta.sync.touch.partitions.enabled",
        Kind.BOOL,
        "Write changed partitions again, so that their time in the catalogue is that of the sync.",
        default=False,
    )
    recreate_on_error: bool = option(
        f"{_HIVE}recreate_table_on_error",
        Kind.BOOL,
        "Drop the entry and create it again if the catalogue refuses its new columns, or if it has another location.",
        default=False,
    )
    spark_version: str | None = option(
        "hoodie.meta_sync.spark.version", Kind.STRING, "`spark.sql.create.version` of the entry.", default_note="none"
    )
    batch: int = option(
        f"{_HIVE}batch_num", Kind.INT, "Largest number of partitions in one call.", default=1000, minimum=1
    )
    ignore_errors: bool | None = option(
        IGNORE_KEY,
        Kind.BOOL,
        "What an error of a sync does. `true`: it is only reported. `false`: it ends the run, and the commits are "
        "kept. Not given: a continuous run reports it and tries again with the next commit; a run that ends has exit "
        "code 1.",
        default_note="depends on the run",
    )
    glue_catalog_id: str | None = option(
        "hoodie.datasource.meta.sync.glue.catalogId",
        Kind.STRING,
        "Account of the Glue catalogue.",
        default_note="that of the credentials",
    )
    glue_skip_archive: bool = option(
        "hoodie.datasource.meta.sync.glue.skip_table_archive",
        Kind.BOOL,
        "Glue does not keep earlier versions of a changed entry.",
        default=True,
    )


def tools_of(names: Sequence[str]) -> tuple[str, ...]:
    """The catalogues of Hudi's sync tools; ConfigError for a tool that this version does not have."""
    found = []
    for name in names:
        short = name.rpartition(".")[2]
        if short not in TOOLS or name not in (short, _PACKAGES[short] + short):
            known = ", ".join(_PACKAGES[each] + each for each in TOOLS)
            raise ConfigError(f"{TOOLS_KEY} = {name} is not a tool of this version: {known}. Run it after the job")
        found.append(TOOLS[short])
    return tuple(dict.fromkeys(found))
