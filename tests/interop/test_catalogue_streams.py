"""Spark SQL and Trino read a stream's table by its name in a catalogue while it changes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.peers import home as peers
from tests.interop.hudi_program import METASTORE
from tests.interop.hudi_spark import HudiSpark
from tests.interop.readers import Program
from tests.streaming.catalogue_history import DATABASE, History, check, thirty_commits
from tests.support.hive_metastore import VERSIONS, MetastoreServer
from tests.support.trino import TrinoServer

pytestmark = [pytest.mark.hudi_jar, pytest.mark.spark]
COLUMNS = ["id", "part", "name"]
Keys = dict[str, str]


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_by_name(tmp_path: Path, spark: SparkSession, version: str) -> None:
    """After every tenth of thirty commits. Spark's own client of a metastore does not know one of Hive 4."""
    server = MetastoreServer(tmp_path / "metastore", version)
    counts = []
    with ExitStack() as stack:
        trino = stack.enter_context(TrinoServer(tmp_path / "trino", server.uri))
        program = stack.enter_context(Program(tmp_path / "readers.log"))
        readers: list[Callable[[], Keys]] = [
            lambda: by_trino(program, trino, "hudi"),
            lambda: by_trino(program, trino, "hive"),
        ]
        if version == "3.1.3":
            peers.set_up()
        hudi = None
        for history in thirty_commits(tmp_path / "job", spark, server, "COPY_ON_WRITE"):
            if version == "3.1.3" and hudi is None:
                hudi = stack.enter_context(HudiSpark("1.2.0", tmp_path, settings={METASTORE: server.uri}))
                readers.append(partial(by_spark, hudi, history))
            check(history, server)
            assert [read() for read in readers] == [history.live] * len(readers)
            counts.append(len(history.live))
    assert len(counts) == 3


def by_trino(program: Program, trino: TrinoServer, connector: str) -> Keys:
    rows = program.read("trino", port=trino.port, name=f"{connector}.{DATABASE}.events", columns=COLUMNS)
    assert len(rows) == len({key for key, *_ in rows})
    return {key: part for key, part, _ in rows}


def by_spark(hudi: HudiSpark, history: History) -> Keys:
    name = f"{DATABASE}.events"
    rows = hudi.sql(history.case.table, f"refresh table {name}", f"select {','.join(COLUMNS)} from {name}")
    assert len(rows) == len({row["id"] for row in rows})
    return {row["id"]: row["part"] for row in rows}
