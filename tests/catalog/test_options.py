"""HoodieStreamer's flags and the keys of Hudi's sync tools."""

from __future__ import annotations

import pytest

from tagstream.streaming.options.options import Options
from tagstream.streaming.options.sync_options import sync_of
from tagstream.table.config import FROM_CONF, Entry
from tagstream.table.errors import ConfigError
from tests.streaming.options.test_options import conf, load

HIVE = "hoodie.datasource.hive_sync."


def job(*more: str) -> Options:
    return load(*more)


@pytest.mark.parametrize(
    ("arguments", "catalogs"),
    [
        ([], ()),
        (["--enable-sync"], ("hive",)),
        (["--enable-hive-sync"], ("hive",)),
        (conf(f"{HIVE}enable=true"), ("hive",)),
        (conf("hoodie.datasource.meta.sync.enable=true"), ("hive",)),
        (["--enable-sync", "--sync-tool-classes", "org.apache.hudi.aws.sync.AwsGlueCatalogSyncTool"], ("glue",)),
        (["--enable-sync", "--sync-tool-classes", "HiveSyncTool,AwsGlueCatalogSyncTool"], ("hive", "glue")),
        (
            conf(
                "hoodie.datasource.meta.sync.enable=true", "hoodie.meta.sync.client.tool.class=AwsGlueCatalogSyncTool"
            ),
            ("glue",),
        ),
        (conf("hoodie.meta.sync.client.tool.class=AwsGlueCatalogSyncTool"), ()),
    ],
    ids=str,
)
def test_which_catalogues(arguments: list[str], catalogs: tuple[str, ...]) -> None:
    assert job(*arguments).sync.catalogs == catalogs


def test_values() -> None:
    found = job(
        "--enable-sync",
        *conf(
            f"{HIVE}metastore.uris=thrift://a:1,thrift://b",
            f"{HIVE}database=d",
            f"{HIVE}table_properties=a=1\\nb=2=3",
            f"{HIVE}partition_extractor_class=org.apache.hudi.hive.SlashEncodedDayPartitionValueExtractor",
            f"{HIVE}mode=hms",
            f"{HIVE}use_jdbc=false",
        ),
    ).sync
    assert found.uris == ("thrift://a:1", "thrift://b")
    assert (found.database, found.extractor) == ("d", "SlashEncodedDayPartitionValueExtractor")
    assert found.table_properties == {"a": "1", "b": "2=3"}
    assert found.ignore_errors is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (conf(f"{HIVE}mode=jdbc"), "HiveServer2"),
        (conf(f"{HIVE}use_jdbc=true"), "HiveServer2"),
        (["--sync-tool-classes", "org.apache.hudi.gcp.bigquery.BigQuerySyncTool"], "not a tool of this version"),
        (conf(f"{HIVE}metastore.uris=http://a:1"), "thrift://host:port"),
        (conf(f"{HIVE}metastore.uris=thrift://a:x"), "thrift://host:port"),
        (conf(f"{HIVE}partition_extractor_class=com.example.Mine"), "not a class of this version"),
        (conf(f"{HIVE}create_managed_table=true"), "external"),
        (conf(f"{HIVE}table_properties=a"), "key=value"),
    ],
    ids=str,
)
def test_refused(arguments: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        job("--enable-sync", *arguments)


def test_a_command_takes_a_job_s_properties() -> None:
    found = sync_of([Entry(f"{HIVE}database", "d", "x.properties:1", FROM_CONF)])
    assert (found.catalogs, found.database) == (("hive",), "d")
    with pytest.raises(ConfigError, match="thrift://host:port"):
        sync_of([Entry(f"{HIVE}metastore.uris", "nowhere", "x.properties:1", FROM_CONF)])
