"""Tables whose files leave out the partition columns: rows are the input's by every reader, in every kind of table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import tagstream
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import DROP_KEY
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tests.cli.running import run, run_json
from tests.streaming.job.frame_case import FrameCase
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare

pytestmark = pytest.mark.spark
COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
PER_FILE = 250
HIVE, ENCODE = "hoodie.datasource.write.hive_style_partitioning", "hoodie.datasource.write.partitionpath.urlencode"
VERSION = "hoodie.write.table.version"
CLUSTERED = {
    "hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "2",
    "hoodie.clustering.plan.strategy.sort.columns": "name", "hoodie.parquet.small.file.limit": "0",
    "tagstream.inserts.to.base.files": "true",
}  # fmt: skip
STATISTICS = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
}
CASES = {
    "cow-9": (COW, {VERSION: "9", HIVE: "true", **STATISTICS}),
    "cow-6": (COW, {VERSION: "6", "hoodie.metadata.enable": "false"}),
    "cow-6-index": (COW, {VERSION: "6", "hoodie.metadata.enable": "true", "hoodie.index.type": "GLOBAL_SIMPLE"}),
    "cow-9-clustered": (COW, {VERSION: "9", **STATISTICS, **CLUSTERED}),
    "mor-8": (MOR, {VERSION: "8", "hoodie.metadata.enable": "false", "hoodie.compact.inline.max.delta.commits": "2"}),
    "mor-9-statistics": (
        MOR,
        {VERSION: "9", HIVE: "true", **STATISTICS, "hoodie.compact.inline.max.delta.commits": "3"},
    ),
    "mor-9-clustered": (MOR, {VERSION: "9", HIVE: "true", ENCODE: "true", **STATISTICS, **CLUSTERED}),
    "mor-9-logs": (MOR, {VERSION: "9", "hoodie.compact.inline": "false"}),
}


def base_files(table: Path) -> list[Path]:
    return [path for path in table.rglob("*.parquet") if ".hoodie" not in path.parts]


def check(place: Path, live: Mapping[str, ev.Event], column: str = "part") -> None:
    expected = ev.rows(live.values())
    table = HoodieTable.open(str(place))
    assert table.config.drops_partition_columns
    files = base_files(place)
    assert files or table.config.is_merge_on_read
    for path in files:
        assert column not in pq.read_schema(path).names
    assert f'"{column}"' not in (table.schema_json() or column)
    opened = tagstream.open_table(place)
    ours = opened.scan().to_arrow()
    assert ours.schema.names[-1] == column
    expected = expected.select([name for name in expected.schema.names if name in ours.schema.names])
    assert not (wrong := compare(expected, ours, ["id"])), wrong
    assert validate(table) == []
    if table.config.metadata_partitions:
        assert validate_metadata(table) == []
    one = opened.scan(["id"], filter="part = 'p1' and name >= 'n2'").to_arrow()
    wanted = [e.key for e in live.values() if e.partition == "p1" and (e.name or "") >= "n2"]
    assert sorted(one.column("id").to_pylist()) == sorted(wanted)
    assert not opened.scan(filter="part is null").to_arrow().num_rows


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.parametrize("name", CASES)
def test_a_disordered_stream_ends_in_the_oracles_rows(tmp_path: Path, spark: SparkSession, name: str) -> None:
    table_type, conf = CASES[name]
    events = list(ev.generate(6 * PER_FILE, ev.Mix(keys=120, partitions=3), seed=17))
    case = StreamCase(tmp_path, spark, table_type, {DROP_KEY: "true", **conf})
    moves = 0
    for begin, end in ((0, 3), (3, 6)):  # a start in between
        ev.write_files(events[begin * PER_FILE : end * PER_FILE], case.source, PER_FILE, first=begin)
        moves += sum(r.moves for r in case.run())
        check(case.table, ev.oracle(events[: end * PER_FILE]))
    assert moves > 50
    if name == "cow-9":  # the index is loaded from the table
        other = StreamCase(tmp_path / "other", spark, conf={DROP_KEY: "true"}, existing=case.table)
        more = list(ev.generate(8 * PER_FILE, ev.Mix(keys=120, partitions=3), seed=17))
        ev.write_files(more[6 * PER_FILE :], other.source, PER_FILE)
        other.run()
        check(case.table, ev.oracle(more))


def test_values_are_those_of_the_path_and_what_it_loses_is_bad(tmp_path: Path, spark: SparkSession) -> None:
    plain = [{"name": "id", "type": "string"}, {"name": "ts", "type": "long"}]
    two = [{"name": "year", "type": ["null", "int"], "default": None}, {"name": "place", "type": "string"}]
    schema = {"type": "record", "name": "r", "fields": [plain[0], *two, plain[1]]}
    conf = {"hoodie.datasource.write.partitionpath.field": "place,year", DROP_KEY: "true"}
    case = StreamCase(tmp_path, spark, conf=conf, schema=schema)
    rows: list[dict[str, Any]] = [
        {"id": "a", "year": 2024, "place": "x y", "ts": 1},
        {"id": "b", "year": None, "place": "ü", "ts": 1},
        {"id": "c", "year": 1, "place": "%41", "ts": 1},
        {"id": "d", "year": 1, "place": "a/b", "ts": 1},
    ]
    send(case, 0, rows)
    (report,) = case.run("--commit-on-errors")
    assert report.quarantined == 2
    wanted = [{**row, "year": None if row["year"] is None else str(row["year"])} for row in rows[:2]]
    assert found(case.table) == wanted

    # A column more, also without a row that has it, and one row that moves.
    schema["fields"].append({"name": "more", "type": ["null", "long"], "default": None})
    send(case, 1, [{"id": "a", "year": 2025, "place": "x y", "ts": 2, "more": 7}])
    case.run()
    table = HoodieTable.open(str(case.table))
    assert [f["name"] for f in json.loads(table.schema_json() or "")["fields"]] == ["id", "ts", "more"]
    assert found(case.table) == [
        {"id": "a", "year": "2025", "place": "x y", "ts": 2, "more": 7},
        {**wanted[1], "more": None},
    ]
    assert validate(table) == []


@pytest.mark.extended("the same steps over another source")
@pytest.mark.parametrize("table_type", [COW, MOR])
def test_a_dataframe(tmp_path: Path, spark: SparkSession, table_type: str) -> None:
    events = list(ev.generate(3 * PER_FILE, ev.Mix(keys=90, partitions=3), seed=11))
    case = FrameCase(tmp_path, spark, {"--table-type": table_type, DROP_KEY: "true", VERSION: "8"})
    for begin, end in ((0, 2), (2, 3)):
        ev.write_files(events[begin * PER_FILE : end * PER_FILE], case.source, PER_FILE, first=begin)
        case.run()
        check(case.table, ev.oracle(events[: end * PER_FILE]))


@pytest.mark.extended("commands over a table whose files other tests look at")
def test_commands_on_such_a_table(tmp_path: Path, spark: SparkSession) -> None:
    case = StreamCase(tmp_path, spark, conf={DROP_KEY: "true", VERSION: "8", "hoodie.metadata.enable": "true"})
    events = [ev.Event(f"k{n}", f"p{n % 3}", n, name=f"n{n}", amount=1.0) for n in range(12)]
    ev.write_files(events, case.source, 12)
    case.run()
    place = ("--target-base-path", case.table)
    shown = run_json("table", "rows", *place, "--where", "part='p1'", "--columns", "id,part")
    assert sorted(map(tuple, (row.values() for row in shown["rows"]))) == [(f"k{n}", "p1") for n in (1, 10, 4, 7)]
    assert shown["skipped"]["partitions_skipped"] == 2

    new = tmp_path / "new.json"
    replaced = [ev.Event("k1", "p1", 50, name="new", amount=2.0), ev.Event("other", "p1", 51, name="o", amount=3.0)]
    new.write_text("".join(json.dumps(event.row()) + "\n" for event in replaced))
    run("table", "insert-overwrite", *place, "--from", new, "--yes")
    run("table", "delete-partition", *place, "--partition", "p2", "--yes")
    left = [e for e in events if e.partition == "p0"] + replaced
    check(case.table, {e.key: e for e in left})


def send(case: StreamCase, number: int, rows: list[dict[str, Any]]) -> None:
    case.source.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    ev.write_event_file(case.source, number, text, modified=1_600_000_000 + number)


def found(table: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.table(tagstream.open_table(table).scan().to_arrow()).sort_by("id").to_pylist()
    return rows
