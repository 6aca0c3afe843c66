"""The catalogues that options name, and warnings about their readers."""

from __future__ import annotations

import ssl

from tagstream.catalog.catalog import Catalog
from tagstream.catalog.entry import entry_names
from tagstream.catalog.glue import GlueCatalog
from tagstream.catalog.hive_metastore import HiveMetastore
from tagstream.catalog.options import GLUE, SyncOptions
from tagstream.table.errors import ConfigError
from tagstream.table.meta_client.table_config import TableConfig


def open_catalogs(options: SyncOptions, user: str) -> list[Catalog]:
    """One for each name in ``options.catalogs``; they are not connected yet. ``user``: the user of the calls.

    ConfigError for a missing package, or a file of certificates that cannot be read.
    """
    return [_open(name, options, user) for name in options.catalogs]


def _open(name: str, options: SyncOptions, user: str) -> Catalog:
    if name == GLUE:
        return GlueCatalog(catalog_id=options.glue_catalog_id, skip_archive=options.glue_skip_archive)
    return HiveMetastore(options.uris, user, tls=tls_context(options.tls_ca_file))


def tls_context(ca_file: str | None) -> ssl.SSLContext | None:
    """What checks a metastore's certificate; None without TLS. ConfigError for a file that cannot be read."""
    if ca_file is None:
        return None
    path = None if ca_file == "system" else ca_file.removeprefix("file://")
    try:
        return ssl.create_default_context(cafile=path)
    except (OSError, ssl.SSLError) as e:
        raise ConfigError(f"tagstream.hive.metastore.tls.ca.file = {ca_file}: {e}; give a PEM file, or system") from e


def reader_warnings(config: TableConfig, options: SyncOptions) -> list[str]:
    """Wrong results without an error in engines that read through the catalogue (docs/operations/catalogues.md)."""
    found = []
    if options.catalogs and config.is_merge_on_read:
        names = ", ".join(name for name, _, _ in entry_names(config, options))
        found.append(
            f"table {config.name} is merge-on-read, and Trino, Athena and ClickHouse read only its base files, without an "
            f"error, through each of its entries ({names}): rows and deletes in log files are missing there until a "
            "compaction. For these readers use --table-type COPY_ON_WRITE for a new table, or let them read the entry "
            "with only base files and compact often (hoodie.compact.inline.max.delta.commits). Spark with Hudi, Flink "
            "and hudi-rs read all rows"
        )
    if GLUE in options.catalogs and config.has_completion_times:
        found.append(
            f"table {config.name} has version {config.version}, and Athena's Hudi support ends with version 6: create "
            "tables for Athena with hoodie.write.table.version=6"
        )
    return found
