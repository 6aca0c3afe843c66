"""What older releases of Spark lack: the way around it gives what the newest release gives."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tagstream import spark_release as release
from tagstream.state.layout import partition_labels

pytestmark = pytest.mark.platform("what older releases lack")
_ROWS = pa.table({"kg": pa.array([0, 1, 1], pa.int32()), "rows": pa.array([b"a", b"b", b"c"], pa.binary())})
_FOUND = pa.table({"kg": pa.array([1, 1, 2], pa.int32()), "ord": pa.array([2**60 + 1, None, 3], pa.int64())})
_KEYED = _ROWS.schema
_RESULT = "lane int, rows binary, status string"


@pytest.fixture(params=["this release", "without Arrow and ids"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The calls of the release that runs; and as releases before 4.0 must do it."""
    if request.param != "this release":
        monkeypatch.setattr(release, "_HAS_ARROW", False)
        monkeypatch.setattr(release, "_HAS_IDS", False)
    return request.param


@pytest.mark.spark
def test_a_table_goes_to_spark_and_comes_back(spark: SparkSession, way: str) -> None:
    frame = release.from_arrow(spark, _FOUND, "kg int, ord long")
    assert (
        release.to_arrow(frame).sort_by([("kg", "ascending"), ("ord", "ascending")]).to_pylist()
        == _FOUND.sort_by([("kg", "ascending"), ("ord", "ascending")]).to_pylist()
    )
    nothing = release.to_arrow(release.from_arrow(spark, _FOUND.slice(0, 0), "kg int, ord long"))
    assert nothing.num_rows == 0 and nothing.schema.types == _FOUND.schema.types


@pytest.mark.extended("more numbers of partitions", first=("3",))
@pytest.mark.spark
@pytest.mark.parametrize("partitions", [1, 3, 7])
def test_rows_go_to_the_partition_of_their_number(spark: SparkSession, way: str, partitions: int) -> None:
    rows = spark.range(0, 20).selectExpr(f"cast(id % {partitions} as int) AS lane")
    found = release.repartition_by_id(rows, partition_labels(partitions), "lane")
    places = found.selectExpr("lane", "spark_partition_id() AS at").distinct().collect()
    assert sorted((row.lane, row.at) for row in places) == [(n, n) for n in range(partitions)]


@pytest.mark.spark
def test_groups_and_pairs_of_groups(spark: SparkSession, way: str) -> None:
    rows = release.from_arrow(spark, _ROWS, "kg int, rows binary")
    found = release.from_arrow(spark, _FOUND, "kg int, ord long")

    def alone(key: tuple[pa.Scalar, ...], mine: pa.Table) -> pa.Table:
        return _made(key[0].as_py(), b"".join(sorted(mine.column("rows").to_pylist())), None)

    def joined(key: tuple[pa.Scalar, ...], mine: pa.Table, others: pa.Table) -> pa.Table:
        assert others.schema.field("ord").type == pa.int64()
        orders = sorted(str(order) for order in others.column("ord").to_pylist())
        return _made(key[0].as_py(), b"".join(sorted(mine.column("rows").to_pylist())), " ".join(orders))

    groups = release.apply_in_arrow(rows.groupBy("kg"), alone, _RESULT, _KEYED)
    pairs = release.cogroup_in_arrow(rows, found, "kg", joined, _RESULT, _KEYED)
    assert _plain(release.to_arrow(groups)) == [(0, b"a", None), (1, b"bc", None)]
    # A number beside a null stays what it is: by way of a float it would be another one.
    assert _plain(release.to_arrow(pairs)) == [(0, b"a", ""), (1, b"bc", f"{2**60 + 1} None"), (2, b"", "3")]


def _made(lane: int, rows: bytes, status: str | None) -> pa.Table:
    schema = pa.schema([("lane", pa.int32()), ("rows", pa.binary()), ("status", pa.string())])
    return pa.Table.from_pydict({"lane": [lane], "rows": [rows], "status": [status]}, schema)


def _plain(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted((row["lane"], row["rows"], row["status"]) for row in table.to_pylist())


@pytest.mark.parametrize(
    ("spark", "arrow", "distutils", "words"),
    [
        ("3.4.3", "25.0.1", True, "Spark 3.4.3 is too old"),
        ("4.1.3", "26.0.1", True, "pip install 'pyarrow<26'"),
        ("3.5.7", "26.0.0", True, "pip install 'pyarrow<26'"),
        ("3.5.7", "25.0.1", False, "pip install setuptools"),
    ],
)
def test_versions_that_do_not_fit_are_named(spark: str, arrow: str, distutils: bool, words: str) -> None:
    assert words in (release.problem(spark, arrow, distutils=distutils) or "")


@pytest.mark.parametrize(
    ("spark", "arrow"), [("3.5.7", "25.0.1"), ("4.0.4", "20.0.0"), ("4.1.3", "25.0.1"), ("4.2.0", "26.0.1")]
)
def test_versions_that_fit_are_not(spark: str, arrow: str) -> None:
    assert release.problem(spark, arrow, distutils=spark.startswith("3.")) is None


def test_what_runs_here_fits() -> None:
    assert release.running_problem() is None
    assert release.scala_version() in ("2.12", "2.13")
    assert release.OLDEST <= release.RELEASE


def test_without_a_folder_of_spark_scala_is_that_of_the_release(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As in a driver on YARN: PySpark's own search ends the process there, after a page of text."""

    def search() -> str:
        print("Could not find valid SPARK_HOME", file=sys.stderr)
        sys.exit(-1)

    monkeypatch.setattr(release, "find_spark_home", search)
    assert release.scala_version() == ("2.12" if release.RELEASE == (3, 5) else "2.13")
    assert capfd.readouterr().err == ""
