"""Real Hudi with its HBASE index and ours on one HBase: each finds what the other one put.

Hudi 0.15 only; later releases have no such index.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from bench.peers import home as peers
from tagstream.index.hbase_index import HbaseIndex, RebalancedHbaseIndex
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tests.index.case import Case, Place
from tests.interop.hudi_spark import HudiSpark
from tests.support.hbase import LOOPBACK, HbaseServer
from tests.table.writer import Row, row

pytestmark = [pytest.mark.hudi_jar, pytest.mark.hbase, pytest.mark.spark]
pytestmark.append(pytest.mark.table_versions(6))  # Hudi 0.15 knows no other
# Hudi's bundle has HBase's classes under names of its own and tells them to the server, which knows no codec of such a
# name (apache/hudi#6509). An empty name means none; as an attribute, because Hadoop passes over an empty element.
NO_CODEC = '<property name="hbase.client.default.rpc.codec" value=""/></configuration>'
FEW_TRIES = "<property><name>hbase.client.retries.number</name><value>3</value></property>"


@pytest.fixture(scope="module")
def hudi_015(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HudiSpark]:
    """Hudi 0.15 that can speak to HBase."""
    peers.set_up()
    folder = tmp_path_factory.mktemp("hudi-hbase")
    conf = folder / "conf"
    conf.mkdir()
    with zipfile.ZipFile(peers.bundle("0.15.0")) as bundle:
        site = bundle.read("hbase-site.xml").decode()
    (conf / "hbase-site.xml").write_text(site.replace("</configuration>", FEW_TRIES + NO_CODEC))
    with HudiSpark("0.15.0", folder, [conf]) as hudi:
        yield hudi


class Both:
    """One table and one HBase table that Hudi and we write in turn."""

    def __init__(self, case: Case, hudi: HudiSpark) -> None:
        self.case = case
        self.hudi = hudi

    def upsert(self, rows: list[Row], operation: str = "upsert", **options: str) -> None:
        """Hudi writes."""
        case, server = self.case, self.case.server
        settings = {
            "hoodie.index.type": "HBASE",
            "hoodie.index.hbase.zkquorum": LOOPBACK,
            "hoodie.index.hbase.zkport": str(server.zookeeper_port),
            "hoodie.index.hbase.zknode.path": "/hbase",
            "hoodie.index.hbase.table": case.index.options.table,
            "hoodie.hbase.index.update.partition.path": str(case.index.update_partition_path).lower(),
            "hoodie.metadata.enable": "false",
        }
        if isinstance(case.index, RebalancedHbaseIndex):
            settings["hoodie.index.class"] = case.index.java_classes[0]
        table = pa.Table.from_pylist(list(rows), schema=case.writer.schema)
        self.hudi.write(case.writer.table, table, {**settings, **options}, operation)

    def rows(self) -> dict[str, tuple[str, str, int]]:
        """Partition, file id and value of each key, as Hudi reads the table; no key is there twice."""
        names = ["_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name", "ver"]
        read = self.hudi.read(self.case.writer.table.base_path).select(names).to_pylist()
        # A base file's name goes on with the write token, a record that a log holds has the file id alone.
        found = {r[names[0]]: (r[names[1]], r[names[2]].split("_")[0], r["ver"]) for r in read}
        assert len(found) == len(read)
        return found

    def tagged_as_read(self, *absent: str) -> dict[str, Place]:
        """Our tag of all keys, which is where Hudi reads them."""
        rows = self.rows()
        tagged = self.case.tag(*rows, *absent)
        assert {key: place[:2] for key, place in tagged.items()} == {key: place[:2] for key, place in rows.items()}
        return tagged

    def adopt(self) -> None:
        """The oracle of our writer takes over what Hudi did."""
        rows, writer = self.rows(), self.case.writer
        writer.where = {key: place[:2] for key, place in rows.items()}
        writer.live = {key: {"id": key, "part": place[0], "ver": place[2]} for key, place in rows.items()}
        writer.now_ms = int(self.case.spark.sql("SELECT unix_millis(now())").collect()[0][0])


@pytest.fixture
def both(hbase_server: HbaseServer, spark: SparkSession, tmp_path: Path, hudi_015: HudiSpark) -> Callable[..., Both]:
    """Makes a pair; the arguments are those of ``Case.make``."""
    make = partial(Case.make, hbase_server, spark, tmp_path)
    return lambda **changes: Both(make(**changes), hudi_015)


@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
@pytest.mark.parametrize("kind", [HbaseIndex, RebalancedHbaseIndex])
def test_we_find_what_hudi_put(both: Callable[..., Both], table_type: str, kind: type[HbaseIndex]) -> None:
    pair = both(table_type=table_type, kind=kind, update_partition_path=True)
    pair.upsert([row(n, f"p{n % 3}", 1) for n in range(30)])
    first = pair.tagged_as_read("k30", "k99")
    pair.upsert([row(n, f"p{n % 3}", 2) for n in range(20, 40)])
    second = pair.tagged_as_read("k99")
    assert {key: second[key] for key in first} == first  # an update stays where and of when it was
    pair.upsert([row(n, "p9", 3) for n in range(5)])
    moved = pair.tagged_as_read()
    assert {place[0] for key, place in moved.items() if key in ("k0", "k1", "k2", "k3", "k4")} == {"p9"}
    pair.upsert([row(7, "p1", 4), row(8, "p2", 4)], operation="delete")
    assert "k7" not in pair.tagged_as_read("k7", "k8")
    # And on from there: our move, our delete.
    pair.adopt()
    pair.case.commit([row(0, "p0", 5), row(50, "p0", 5)], deletes=["k9"])
    assert pair.tagged_as_read("k9")["k0"][0] == "p0"


@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
@pytest.mark.parametrize("kind", [HbaseIndex, RebalancedHbaseIndex])
def test_hudi_finds_what_we_put(both: Callable[..., Both], table_type: str, kind: type[HbaseIndex]) -> None:
    pair = both(table_type=table_type, kind=kind, rollback_sync=True, update_partition_path=True)
    case = pair.case
    case.commit([row(n, f"p{n % 3}", 1) for n in range(30)])
    case.commit([row(n, "p3", 2) for n in range(3)], deletes=["k29"])
    case.fail([row(n, "p4", 3) for n in range(10, 13)] + [row(77, "p4", 3)])
    where = dict(case.writer.where)
    # Updates, a key that we deleted, one of our write that failed, a new one, and moves of keys that we put.
    pair.upsert([row(n, f"p{n % 3}", 4) for n in range(3, 20)] + [row(29, "p2", 4), row(77, "p1", 4), row(90, "p0", 4)])
    pair.upsert([row(20, "p8", 5), row(0, "p8", 5)])
    rows = pair.rows()
    assert set(rows) == {f"k{n}" for n in (*range(30), 77, 90)}
    assert {key: rows[key][:2] for key in where if key not in ("k20", "k0")} == {
        key: place for key, place in where.items() if key not in ("k20", "k0")
    }
    assert [rows[f"k{n}"][2] for n in (1, 3, 19, 20, 21, 29, 77, 90)] == [2, 4, 4, 5, 1, 4, 4, 4]
    assert (rows["k20"][0], rows["k0"][0]) == ("p8", "p8")
    pair.tagged_as_read()
