"""A record index by partition, kept by real Hudi 1.2 (hoodie.index.type=RECORD_LEVEL_INDEX) and by our stream in turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.peers import home as peers
from tagstream.table.file_group.names import parse_base_file_name
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tests.interop.hudi_spark import HudiSpark
from tests.interop.turns import PARTITIONS, Turns
from tests.streaming.stream_case import StreamCase
from tests.support.table_version import using

pytestmark = [pytest.mark.hudi_jar, pytest.mark.spark]
ROUNDS = 5
INDEXED = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.record.level.index.enable": "true",
    "hoodie.metadata.record.level.index.min.filegroup.count": "2",
}
BY_HUDI = {**INDEXED, "hoodie.index.type": "RECORD_LEVEL_INDEX"}


@pytest.fixture(scope="module")
def hudi12(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HudiSpark]:
    """Hudi 1.2.0, running."""
    peers.set_up()
    with HudiSpark("1.2.0", tmp_path_factory.mktemp("hudi-partitioned")) as running:
        yield running


def check_places(turns: Turns, partitions: list[str]) -> None:
    """Hudi's own look-up finds each key where its row is, in that partition and in no other."""
    rows = turns.hudi.read(turns.case.table).to_pylist()
    names = {r["_hoodie_record_key"]: (r["_hoodie_partition_path"], r["_hoodie_file_name"]) for r in rows}
    there = {}
    for key, (partition, name) in names.items():
        base = parse_base_file_name(name)  # a row of a log names the file group alone
        there[key] = (partition, base.file_id if base else name)
    keys = sorted(names)[::3]
    for partition in partitions:
        found = turns.hudi.locate(turns.case.table, [*keys, "nobody"], partition)
        assert found == {key: there[key] for key in keys if there[key][0] == partition}


@pytest.mark.parametrize(
    ("index", "table_type", "version"),
    [
        ("STATE", "MERGE_ON_READ", 9),
        ("RECORD_LEVEL_INDEX", "MERGE_ON_READ", 8),
        ("RECORD_LEVEL_INDEX", "COPY_ON_WRITE", 9),
    ],
)
def test_in_turn(
    hudi12: HudiSpark, spark: SparkSession, tmp_path: Path, index: str, table_type: str, version: int
) -> None:
    """Hudi has no dots in partitions of such an index of its own, but reads ours and goes on with them."""
    partitions = [f"2024-0{n}.x_y" for n in range(PARTITIONS)]
    with using(version):
        case = StreamCase(tmp_path, spark, table_type, conf={**INDEXED, "hoodie.index.type": index})
        turns = Turns(case, hudi12, BY_HUDI, moves=index == "STATE", partition=partitions.__getitem__)
        for turns.round in range(ROUNDS):
            turns.ours()
            turns.check("us")
            turns.theirs()
            turns.check("Hudi")
        check_places(turns, partitions)


def test_what_hudi_began(hudi12: HudiSpark, spark: SparkSession, tmp_path: Path) -> None:
    """Hudi adds the index to a table that has rows, and makes groups for a new partition; then it is our turn."""
    with using(9):
        case = StreamCase(tmp_path, spark, "MERGE_ON_READ")
        turns = Turns(case, hudi12, BY_HUDI, partition="p-{}".format)
        turns.ours()
        turns.partition = "q-{}".format
        turns.theirs()
        turns.check("Hudi")
        defined = (case.table / ".hoodie/.index_defs/index.json").read_text().replace(" ", "")
        assert '"isPartitioned":"true"' in defined
        for turns.round in range(1, 3):
            turns.ours()
            turns.check("us")
        check_places(turns, [f"{letter}-{n}" for letter in "pq" for n in range(PARTITIONS)])


def test_hudi_goes_on_with_one_made_of_what_a_table_has(hudi12: HudiSpark, spark: SparkSession, tmp_path: Path) -> None:
    with using(9):
        turns = Turns(StreamCase(tmp_path, spark, "MERGE_ON_READ"), hudi12, BY_HUDI, moves=False)
        turns.ours()
        assert "record_index" not in HoodieTable.open(str(turns.case.table)).config.metadata_partitions
        turns.case = StreamCase(tmp_path, spark, "MERGE_ON_READ", conf=INDEXED)
        turns.round = 1
        turns.ours()
        turns.check("us")
        turns.theirs()
        turns.check("Hudi")
        check_places(turns, [f"p{n}" for n in range(PARTITIONS)])
