"""One suite for every index, the state index among them: each case a batch of a real stream, the table read after each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tagstream.index.registry import INDEX_TYPES
from tagstream.state.errors import StateError
from tagstream.streaming.batch.report import BatchReport
from tagstream.streaming.job import sink
from tagstream.table.errors import ConfigError, TableConfigMismatchError, UnsupportedTableError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.write.commit import complete
from tests.behaviours.index_cases import (
    CONSISTENT,
    LAYOUTS,
    SCHEMA,
    Case,
    Expected,
    Layout,
    Row,
    cases_for,
    check_after,
    combined,
    marked,
    row,
    write_case,
)
from tests.streaming.stream_case import StreamCase
from tests.support.hudi_rs import read_table
from tests.support.table_version import has_metadata, table_version

pytestmark = pytest.mark.spark
STATE = "STATE"
INDEXES = [STATE, CONSISTENT, *sorted(INDEX_TYPES)]
BUCKETS = ("BUCKET", CONSISTENT)
Make = Callable[..., StreamCase]
NAMES = [f["name"] for f in SCHEMA["fields"]]


def is_global(index: str) -> bool:
    return index == STATE or (index != CONSISTENT and INDEX_TYPES[index].is_global)


def keeps_deletes(index: str, table_type: str) -> bool:
    """Named expectation: only the state index remembers deletes.

    In a merge-on-read log the delete is still there for readers, and stands where the key's next row goes to the same
    file group: always in a bucket, and here also with the indexes that put inserts into logs, since each partition has one
    small group. The others put an insert into a new base file, as all but the bucket do where a metadata table of version
    8 or later lists the files.
    """
    into_logs = BUCKETS if table_version() >= 8 and has_metadata() else (*BUCKETS, "INMEMORY", "HBASE")
    return index == STATE or (index in into_logs and table_type == "MERGE_ON_READ")


@pytest.fixture(params=marked(INDEXES))
def index(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param


@pytest.fixture
def make_case(spark: SparkSession, conf_of: Callable[[str], dict[str, str]]) -> Make:
    """Makes a stream with an index, keys and partitions, and table type."""

    def make(folder: Path, index: str, layout: Layout, table_type: str) -> StreamCase:
        # A compaction takes deletes out of the logs, where the indexes without tombstones find them.
        logs_stay = {"hoodie.datasource.write.streaming.disable.compaction": "true"}
        return StreamCase(folder, spark, table_type, {**conf_of(index), **layout.conf(), **logs_stay}, schema=SCHEMA)

    return make


def read_rows(case: StreamCase) -> list[Row]:
    rows: list[Row] = read_snapshot(HoodieTable.open(str(case.table)), columns=NAMES).to_pylist()
    return rows


# One of each family, and none that others end with.
# Each case in a batch of its own, of one index of each family; the others are a matrix.
APART = ("STATE", "BUCKET", CONSISTENT, "GLOBAL_BLOOM", "RECORD_INDEX")
IN_FIRST = ("STATE", "RECORD_INDEX", "BUCKET", CONSISTENT, "GLOBAL_SIMPLE", "GLOBAL_BLOOM")


@pytest.mark.platform("each index", only=("one partition field-MERGE_ON_READ-together",))
@pytest.mark.extended(
    "each case in a batch of its own, more layouts and indexes",
    first=(
        *(f"{name}-one partition field-MERGE_ON_READ-together" for name in IN_FIRST),
        "STATE-two partition fields, complex key-COPY_ON_WRITE-together",
        "GLOBAL_BLOOM-no partition-COPY_ON_WRITE-together",
    ),
    second=("-together", *(f"{name}-one partition field-MERGE_ON_READ-apart" for name in APART)),
)
@pytest.mark.parametrize("batches", ["together", "apart"])
@pytest.mark.parametrize(
    ("layout", "table_type"),
    [
        ("one partition field", "MERGE_ON_READ"),
        ("no partition", "COPY_ON_WRITE"),
        ("two partition fields, complex key", "COPY_ON_WRITE"),
    ],
)
def test_every_case(tmp_path: Path, make_case: Make, index: str, layout: str, table_type: str, batches: str) -> None:
    shape = LAYOUTS[layout]
    table_type = "MERGE_ON_READ" if index == CONSISTENT else table_type
    case = make_case(tmp_path, index, shape, table_type)
    cases = cases_for(shape, is_global=is_global(index))
    cases = combined(cases) if batches == "together" else cases
    for number, one in enumerate(cases):
        write_case(case.source, number, one)
    expected = Expected(is_global(index), bool(shape.partitions), keeps_deletes(index, table_type))
    check = check_after(expected, cases, lambda: read_rows(case))
    reports = case.run(on_batch=lambda report: check(report.batch_id))

    assert [r.batch_id for r in reports] == list(range(len(cases)))
    judged = read_table(case.table).select(NAMES).to_pylist()
    assert sorted(judged, key=lambda r: (r["id"], r["part"])) == expected.rows()
    replayed(case, expected)


def replayed(case: StreamCase, expected: Expected) -> None:
    """Spark has lost its record of the last batch: it comes again, and nothing of the table changes."""
    commits = case.checkpoint / "commits"
    newest = max(int(p.name) for p in commits.iterdir() if p.name.isdigit())
    (commits / str(newest)).unlink()
    (commits / f".{newest}.crc").unlink(missing_ok=True)
    before = case.files()
    reports = case.run()
    assert [(r.batch_id, r.replayed) for r in reports] == [(newest, True)]
    assert {n: f for n, f in case.files().items() if n in before} == before
    assert sorted(read_rows(case), key=lambda r: (r["id"], r["part"])) == expected.rows()


@pytest.mark.platform("a failed commit")
@pytest.mark.extended("more indexes of the same family", first=("STATE", "BUCKET", CONSISTENT))
def test_a_failed_commit_is_rolled_back_and_done_again(
    tmp_path: Path, make_case: Make, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second commit fails after everything was written; the next start takes it back and does the batch again."""
    layout, table_type = LAYOUTS["one partition field"], "MERGE_ON_READ"
    case = make_case(tmp_path, index, layout, table_type)
    batches = [
        Case("one", (row("a", "p0", 1, "x"), row("b", "p1", 1, "x"), row("c", "p1", 1, "x"))),
        Case("two", (row("a", "p1", 2, "y"), row("b", "p1", 2, "", deleted=True), row("d", "p0", 2, "y"))),
    ]
    expected = Expected(is_global(index), True, keeps_deletes(index, table_type))
    for number, one in enumerate(batches):
        write_case(case.source, number, one)
        expected.apply(one.events)
    calls = []

    def failing(*arguments: Any, **named: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise OSError("the disk is full")
        return complete(*arguments, **named)

    monkeypatch.setattr(sink.protocol, "complete", failing)
    with pytest.raises(OSError, match="disk is full"):
        case.run()
    reports: list[BatchReport] = case.run()
    assert [(r.batch_id, r.replayed) for r in reports] == [(1, False)]
    assert sorted(read_rows(case), key=lambda r: (r["id"], r["part"])) == expected.rows()
    rolled_back = [i for i in HoodieTable.open(str(case.table)).timeline().instants if i.action == "rollback"]
    assert len(rolled_back) == 1


@pytest.mark.extended("more indexes of the same family", first=("GLOBAL_BLOOM",))
@pytest.mark.parametrize("index", marked(name for name in sorted(INDEX_TYPES) if name != "BUCKET"))
def test_a_table_whose_inserts_are_in_logs_is_continued(
    tmp_path: Path, make_case: Make, conf_of: Callable[[str], dict[str, str]], index: str
) -> None:
    """The state index put them there; Hudi's own bloom and simple indexes would not see them and double the keys."""
    layout = LAYOUTS["one partition field"]
    first = make_case(tmp_path / "first", STATE, layout, "MERGE_ON_READ")
    write_case(first.source, 0, Case("", tuple(row(f"k{n}", f"p{n % 2}", 10, "new") for n in range(20))))
    write_case(first.source, 1, Case("", (row("k1", "p1", 20, "", deleted=True), row("k2", "p1", 20, "moved"))))
    first.run()
    second = StreamCase(tmp_path / "second", first.spark, "MERGE_ON_READ", conf_of(index), SCHEMA, existing=first.table)
    write_case(second.source, 0, Case("", tuple(row(f"k{n}", f"p{n % 2}", 30, "again") for n in (0, 1, 3))))
    write_case(second.source, 1, Case("", (row("k2", "p1", 30, "again"), row("k4", "p0", 5, "late"))))
    second.run()
    expected = Expected(is_global(index), True, False)
    expected.apply([row(f"k{n}", f"p{n % 2}", 10, "new") for n in range(20) if n not in (1, 2)])
    expected.apply([row("k2", "p1", 20, "moved")])
    expected.apply([row(f"k{n}", f"p{n % 2}", 30, "again") for n in (0, 1, 3)] + [row("k2", "p1", 30, "again")])
    assert sorted(read_rows(second), key=lambda r: (r["id"], r["part"])) == expected.rows()


@pytest.mark.extended("more kinds of tables", first=("MERGE_ON_READ-BUCKET",))
@pytest.mark.parametrize("index", ["BUCKET", "BLOOM"])
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_an_overwrite_takes_the_place_of_its_partitions(
    tmp_path: Path, make_case: Make, index: str, table_type: str
) -> None:
    case = make_case(tmp_path, index, LAYOUTS["one partition field"], table_type)
    write_case(case.source, 0, Case("", tuple(row(f"k{n}", f"p{n % 3}", 10, "new") for n in range(12))))
    write_case(case.source, 1, Case("", (row("k0", "p0", 20, "updated"),)))
    case.run()
    write_case(
        case.source, 2, Case("", (row("k3", "p0", 5, "over"), row("n", "p0", 5, "over"), row("k1", "p3", 5, "over")))
    )
    write_case(case.source, 3, Case("", (row("m", "p1", 5, "over"), row("k4", "p1", 6, "", deleted=True))))
    case.run("--op", "INSERT_OVERWRITE")
    kept = [row(f"k{n}", "p2", 10, "new") for n in (2, 5, 8, 11)]
    over = [
        row("k3", "p0", 5, "over"),
        row("n", "p0", 5, "over"),
        row("k1", "p3", 5, "over"),
        row("m", "p1", 5, "over"),
    ]
    expected = sorted(kept + over, key=lambda r: (r["id"], r["part"]))
    for found in (read_rows(case), read_table(case.table).select(NAMES).to_pylist()):
        assert sorted(found, key=lambda r: (r["id"], r["part"])) == expected
    table = HoodieTable.open(str(case.table))
    timeline = table.timeline()
    newest = [i for i in timeline.completed_writes if i.action == "replacecommit"]
    assert len(newest) == 2
    replaced = timeline.metadata(table.storage, newest[0])
    assert replaced.operation == "INSERT_OVERWRITE" and list(replaced.replaced) == ["p0"]
    # And an upsert goes on from there.
    write_case(case.source, 4, Case("", (row("n", "p0", 30, "updated"), row("m", "p1", 30, "updated"))))
    case.run()
    now = {r["id"]: r["v"] for r in read_rows(case) if r["id"] in ("n", "m", "k3")}
    assert now == {"n": "updated", "m": "updated", "k3": "over"}


@pytest.mark.extended("more indexes of the same family", first=("RECORD_INDEX",))
@pytest.mark.parametrize("index", marked(["GLOBAL_BLOOM", "GLOBAL_SIMPLE", "HBASE", "RECORD_INDEX"]))
def test_a_record_may_be_kept_in_the_partition_its_key_is_in(
    tmp_path: Path, make_case: Make, conf_of: Callable[[str], dict[str, str]], index: str
) -> None:
    """With "update partition path" off a row goes where its key is, whatever partition it names."""
    keys = {"GLOBAL_BLOOM": "bloom.index", "GLOBAL_SIMPLE": "simple.index", "HBASE": "hbase.index",
            "RECORD_INDEX": "record.index"}  # fmt: skip
    conf_of(index)[f"hoodie.{keys[index]}.update.partition.path"] = "false"
    case = make_case(tmp_path, index, LAYOUTS["one partition field"], "COPY_ON_WRITE")
    write_case(case.source, 0, Case("", tuple(row(f"k{n}", "p0", 10, "new") for n in range(3))))
    write_case(case.source, 1, Case("", (row("k0", "p1", 20, "elsewhere"), row("k9", "p1", 20, "new"))))
    write_case(case.source, 2, Case("", (row("k1", "p1", 30, "", deleted=True),)))
    reports = case.run()
    assert [r.moves for r in reports] == [0, 0, 0]
    columns = ["id", "v", "_hoodie_partition_path"]
    found = read_snapshot(HoodieTable.open(str(case.table)), columns=columns).to_pylist()
    assert sorted(tuple(r.values()) for r in found) == [
        ("k0", "elsewhere", "p0"),
        ("k2", "new", "p0"),
        ("k9", "new", "p1"),
    ]


def test_an_overwrite_needs_an_index_that_lies_in_the_table(tmp_path: Path, make_case: Make) -> None:
    case = make_case(tmp_path, STATE, LAYOUTS["one partition field"], "COPY_ON_WRITE")
    with pytest.raises(ConfigError, match="STATE has its own storage"):
        case.run("--op", "INSERT_OVERWRITE")


def test_a_checkpoint_goes_on_with_another_pull_type_index_but_not_with_the_state_index(
    tmp_path: Path, make_case: Make
) -> None:
    layout = LAYOUTS["one partition field"]
    case = make_case(tmp_path, "GLOBAL_SIMPLE", layout, "COPY_ON_WRITE")
    write_case(case.source, 0, Case("", tuple(row(f"k{n}", f"p{n % 3}", 10, "new") for n in range(12))))
    case.run()
    other = make_case(tmp_path, "GLOBAL_BLOOM", layout, "COPY_ON_WRITE")
    write_case(case.source, 1, Case("", (row("k0", "p1", 20, "moved"),)))
    assert [r.moves for r in other.run()] == [1]
    state = make_case(tmp_path, STATE, layout, "COPY_ON_WRITE")
    with pytest.raises(
        StateError, match="fixes index as one that looks keys up in the table .*, but hoodie.index.type is now STATE"
    ):
        state.run()


def test_a_bucketed_table_is_not_written_with_other_settings(tmp_path: Path, make_case: Make) -> None:
    layout = LAYOUTS["one partition field"]
    case = make_case(tmp_path, "BUCKET", layout, "COPY_ON_WRITE")
    write_case(case.source, 0, Case("", tuple(row(f"k{n}", f"p{n % 2}", 10, "new") for n in range(40))))
    case.run()
    for buckets, message in (("2", "is not one of the buckets 0 to 1|belongs to bucket"), ("5", "belongs to bucket")):
        other = make_case(tmp_path, "BUCKET", layout, "COPY_ON_WRITE")
        other.conf = {**case.conf, "hoodie.bucket.index.num.buckets": buckets}
        with pytest.raises(TableConfigMismatchError, match=message):
            other.run()
    with pytest.raises(UnsupportedTableError, match="it is bucketed"):
        make_case(tmp_path, "BLOOM", layout, "COPY_ON_WRITE").run()


def test_manifests_and_profiles_of_old_batches_are_collected(
    tmp_path: Path, make_case: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = make_case(tmp_path, "SIMPLE", LAYOUTS["one partition field"], "COPY_ON_WRITE")
    monkeypatch.setattr(case.spark.conf, "get", _retaining_two(case.spark.conf.get))
    for number in range(6):
        write_case(case.source, number, Case("", (row("k", "p0", number, "x"),)))
    case.run()
    for name in ("manifests", "profiles"):
        left = sorted(int(re.split("[.-]", p.name)[0]) for p in (case.checkpoint / "tagstream" / name).iterdir())
        assert left == [3, 4, 5], name


def _retaining_two(get: Callable[..., Any]) -> Callable[..., Any]:
    return lambda key, *default: "2" if key == "spark.sql.streaming.minBatchesToRetain" else get(key, *default)
