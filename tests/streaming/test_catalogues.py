"""Streams that keep their table's catalogue entries up to date: Glue by moto, and real Hive Metastores that go away."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.catalog.catalog import CatalogError
from tagstream.catalog.glue import GlueCatalog
from tagstream.streaming.job.preflight import SparkNeeds, check_start
from tagstream.streaming.options.cli import load_options
from tagstream.table.errors import ConfigError
from tests.streaming.catalogue_history import HIVE, check, cursor_of, event, newest, partitions, put, thirty_commits
from tests.streaming.stream_case import StreamCase, now_ms
from tests.support import events as ev
from tests.support.aws import aws_server, environment
from tests.support.hive_metastore import VERSIONS, MetastoreServer
from tests.support.hudi_rs import read_table
from tests.support.kafka_broker import free_ports

pytestmark = pytest.mark.spark
NO_SPARK = SparkNeeds(java=False, connector=False, master=None)
GLUE = ["--enable-sync", "--sync-tool-classes", "org.apache.hudi.aws.sync.AwsGlueCatalogSyncTool"]


@pytest.fixture
def glue() -> Iterator[GlueCatalog]:
    with aws_server() as settings, environment(settings):
        yield GlueCatalog()


@pytest.mark.extended("more kinds of tables", first=("MERGE_ON_READ",))
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_stream_and_its_entries(tmp_path: Path, spark: SparkSession, glue: GlueCatalog, table_type: str) -> None:
    case = StreamCase(tmp_path, spark, table_type, {f"{HIVE}database": tmp_path.name})
    for number in range(3):
        put(case, number, event(number, f"p{number}", number), event(9, f"p{number}", number))
    ready = check_start(load_options(case.arguments(*GLUE)), os.environ, now_ms(), NO_SPARK)
    assert any("read only its base files" in each for each in ready.warnings) is (table_type == "MERGE_ON_READ")
    case.run(*GLUE)
    entry = glue.table(tmp_path.name, "events")
    assert entry is not None
    assert cursor_of(entry) == newest(case)
    assert partitions(glue, tmp_path.name) == {"p0", "p1", "p2"}
    # A column more, a partition more; the same checkpoint.
    wider = {
        **ev.AVRO_SCHEMA,
        "fields": [*ev.AVRO_SCHEMA["fields"], {"name": "extra", "type": ["null", "long"], "default": None}],
    }
    again = StreamCase(tmp_path, spark, table_type, case.conf, wider)
    put(again, 3, event(3, "p3", 3, extra=7))
    again.run(*GLUE)
    found = glue.table(tmp_path.name, "events")
    assert found is not None
    assert ("extra", "bigint") in [(c.name, c.type) for c in found.columns]
    assert partitions(glue, tmp_path.name) == {"p0", "p1", "p2", "p3"}
    assert cursor_of(found) == newest(again)


@pytest.mark.extended("processes that are started, killed or paused")
def test_a_catalogue_that_is_away(tmp_path: Path, spark: SparkSession, glue: GlueCatalog) -> None:
    """The run commits all, ends with the error, and the next one brings the entry up to date."""
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE", {f"{HIVE}database": tmp_path.name})
    for number in range(2):
        put(case, number, event(number, f"p{number}", number))
    with environment({"AWS_ENDPOINT_URL_GLUE": f"http://127.0.0.1:{free_ports(1)[0]}", "AWS_MAX_ATTEMPTS": "1"}):
        with pytest.raises(CatalogError, match="Glue: get_database"):
            case.run(*GLUE)
        assert len(read_table(case.table)) == 2
        case.run(*GLUE, "--hoodie-conf", f"{HIVE}ignore_exceptions=true")
    case.run(*GLUE)
    assert partitions(glue, tmp_path.name) == {"p0", "p1"}


@pytest.mark.parametrize("package", ["boto3", "thriftpy2"])
def test_a_missing_package_is_found_before_the_start(
    tmp_path: Path, spark: SparkSession, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = StreamCase(tmp_path, spark)
    flags = GLUE if package == "boto3" else ["--enable-sync"]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"the package {package} .*pip install 'tagstream\["):
        check_start(load_options(case.arguments(*flags)), os.environ, now_ms(), NO_SPARK)


@pytest.mark.extended("needs a real Hive Metastore")
@pytest.mark.parametrize("version", VERSIONS)
def test_thirty_commits_and_a_metastore_that_is_killed(tmp_path: Path, spark: SparkSession, version: str) -> None:
    """New, emptied and dropped partitions, an added and a widened column; the metastore is away for a while."""
    server = MetastoreServer(tmp_path / "metastore", version)
    seen = []
    for history in thirty_commits(tmp_path / "job", spark, server, "COPY_ON_WRITE"):
        check(history, server)
        seen.append(len(history.live))
    assert len(seen) == 3
    assert seen == sorted(seen)
