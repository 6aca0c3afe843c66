"""Real Hudi 1.2 with all its defaults and our stream write one table in turn: rows, files and metadata table after each.

Hudi builds on our metadata table and we on its: upserts, deletes, compaction, clustering, cleaning and archiving of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.peers import home as peers
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tests.interop.hudi_spark import HudiSpark
from tests.interop.turns import INDEXED, Turns
from tests.streaming.stream_case import StreamCase
from tests.support.table_version import using

pytestmark = [pytest.mark.hudi_jar, pytest.mark.spark]
ROUNDS = 10


@pytest.fixture(scope="module")
def hudi12(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HudiSpark]:
    """Hudi 1.2.0, running."""
    peers.set_up()
    with HudiSpark("1.2.0", tmp_path_factory.mktemp("hudi-turns")) as running:
        yield running


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("version", [9, 8])
def test_ten_rounds(hudi12: HudiSpark, spark: SparkSession, tmp_path: Path, version: int, table_type: str) -> None:
    with using(version):
        turns = Turns(StreamCase(tmp_path, spark, table_type, conf=INDEXED), hudi12)
        for turns.round in range(ROUNDS):
            turns.ours()
            turns.check("us")
            turns.theirs()
            turns.check("Hudi")
    done = [i.action for i in HoodieTable.open(str(turns.case.table)).timeline().instants]
    assert "clean" in done
    assert list((turns.case.table / ".hoodie/timeline/history").glob("*.parquet")), "Hudi has archived"
