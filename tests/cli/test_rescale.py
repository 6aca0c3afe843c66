"""A checkpoint carried over to another number of key groups, or through a file: the stream goes on as if nothing was."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tagstream.cli.main import main
from tagstream.state.checkpoint import META_FILE, begin_building, is_unfinished
from tagstream.streaming.recovery.takeover import QueryIndexLoad, write_query_index_load
from tagstream.streaming.source.file_lister import FileLister, ListerOptions
from tagstream.streaming.source.file_plans import PlanLog
from tagstream.table.storage.posix import PosixStorage
from tests.cli.killed import killed_at
from tests.cli.running import run, run_json, state_of
from tests.cli.stream import copied, deleted_keys, streamed
from tests.streaming.recovery.test_takeover import is_oracles
from tests.streaming.stream_case import StreamCase
from tests.streaming.test_guards import foreign_commit
from tests.streaming.test_kafka_stream import kafka_case, send
from tests.support import events as ev
from tests.support.foreign_writer import ForeignWriter
from tests.support.kafka_broker import KafkaBroker
from tests.support.table_version import timeline_of

pytestmark = pytest.mark.spark

# Many events come late, many of these behind a delete: they stay out only if ordering values and tombstones are kept.
MIX = ev.Mix(keys=120, late=0.2, deletes=0.15, late_deletes=0.05)
EVENTS = list(ev.generate(1000, MIX, seed=61))
BEFORE, AFTER = EVENTS[:600], EVENTS[600:900]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> StreamCase:
    return streamed(tmp_path_factory.mktemp("stream"), spark, BEFORE)


def arguments(case: StreamCase, to: Path, *more: str) -> list[str]:
    return [
        *("rescale", "--checkpoint-dir", str(case.checkpoint), "--target-base-path", str(case.table)),
        *("--to-checkpoint-dir", str(to), "--key-groups", "3", *more),
    ]


def fails(argv: list[str], to: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The line of a refusal, after which nothing is there."""
    assert main(argv) == 1
    assert [*to.rglob("*")] == []
    (line,) = capsys.readouterr().err.splitlines()
    return line


def exported(checkpoint: Path, out: Path) -> pa.Table:
    """Everything an index holds, in the order of the keys."""
    run("index", "export", "--all", "--checkpoint-dir", checkpoint, "--out", out)
    return pq.read_table(out).sort_by([("record_key", "ascending"), ("partition_path", "ascending")])


def revived_by_a_wrong_index() -> set[str]:
    """Keys whose later events are all older than their delete: only a tombstone keeps them out."""
    newest = {e.key: e.ordering for e in BEFORE if e.key in deleted_keys(BEFORE) and e.deleted}
    return {e.key for e in AFTER if e.key in newest and not e.deleted and (e.ordering or 0) < (newest[e.key] or 0)}


@pytest.mark.extended("more kinds of tables", first=("import",))
@pytest.mark.parametrize("way", ["rescale", "rescale by two processes", "import"])
def test_a_stream_goes_on_on_the_new_checkpoint(case: StreamCase, tmp_path: Path, way: str) -> None:
    mine = copied(case, tmp_path / "job")
    ev.write_files(BEFORE, mine.source, 200)  # as they were read
    before = exported(mine.checkpoint, tmp_path / "before.parquet")
    old = tmp_path / "old"
    mine.checkpoint.rename(old)
    untouched = state_of(old)
    to = ("--target-base-path", mine.table, "--to-checkpoint-dir", mine.checkpoint, "--key-groups", 3)
    to += ("--shuffle-partitions", 3)
    by = ("--processes", 2) if way == "rescale by two processes" else ()
    if way != "import":
        told = run_json("rescale", "--checkpoint-dir", old, *to, *by)
    else:
        told = run_json("index", "import", "--from", tmp_path / "before.parquet", *to)
    assert state_of(old) == untouched
    assert (told["keys"], told["tombstones"]) == (len(ev.oracle(BEFORE)), len(deleted_keys(BEFORE)))
    assert exported(mine.checkpoint, tmp_path / "after.parquet").equals(before)
    found = run_json("index", "stats", "--checkpoint-dir", mine.checkpoint)
    assert (found["key_groups"], found["shuffle_partitions"], found["stream_id"]) == (3, 3, "events")
    assert run_json("index", "verify", "--checkpoint-dir", mine.checkpoint, *to[:2])["equal"]

    assert len(revived_by_a_wrong_index()) >= 3, "events that only a tombstone keeps out: else the test proves little"
    # An option of loading an index from a table; nothing is loaded from the table here.
    conf = {"spark.sql.shuffle.partitions": "3", "index.partition.regex": "p[01]"}
    mine = replace(mine, conf={**mine.conf, **conf})
    ev.write_files(AFTER, mine.source, 150, first=10)
    if way != "import":  # a plan that no batch of the old checkpoint has taken is taken by the new one
        log, options = PlanLog(PosixStorage(str(old))), ListerOptions(1 << 30, 2, "fail")
        looked = FileLister(PosixStorage(str(mine.source)), log, options, lambda: 10**15)
        assert looked.look() == 1
        shutil.rmtree(mine.checkpoint)
        assert run_json("rescale", "--checkpoint-dir", old, *to)["positions"]
    ev.write_files(EVENTS[900:], mine.source, 150, first=20)
    reports = mine.run()
    again = 0 if way != "import" else len(BEFORE)  # an exported file does not say how far files were read
    assert sum(r.records for r in reports) == len(EVENTS[600:]) + again
    assert sum(r.late for r in reports) > 15
    is_oracles(mine, EVENTS)
    assert run_json("index", "verify", "--checkpoint-dir", mine.checkpoint, *to[:2])["equal"]
    assert mine.run() == []


def test_a_topic_goes_on_exactly_where_its_newest_commit_ended(
    tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker
) -> None:
    kafka_broker.create_topic("rescaled", partitions=2)
    send(kafka_broker, "rescaled", BEFORE[300:], 2)
    case = kafka_case(tmp_path, spark, kafka_broker, "rescaled")
    case.run()
    old = case.checkpoint.rename(tmp_path / "old")
    at = ("--checkpoint-dir", old, "--target-base-path", case.table)
    run("rescale", *at, "--to-checkpoint-dir", case.checkpoint, "--key-groups", 3)
    send(kafka_broker, "rescaled", AFTER, 2)
    reports = case.run()
    assert sum(r.records for r in reports) == len(AFTER)
    is_oracles(case, EVENTS[300:900])


@pytest.mark.extended("the same decisions over another real stream")
def test_other_writers_commits_are_carried_over_with_the_rest(case: StreamCase, tmp_path: Path) -> None:
    mine, new = copied(case, tmp_path / "job"), tmp_path / "new"
    at = ("--target-base-path", mine.table, "--checkpoint-dir")
    live = sorted(ev.oracle(BEFORE).items())
    foreign = [
        *(replace(e, ordering=(e.ordering or 0) + 50_000, name="theirs") for _, e in live[:20]),
        *(replace(e, partition=f"p{(int((e.partition or 'p0')[1]) + 1) % 5}") for _, e in live[20:40]),
        *(replace(e, deleted=True) for _, e in live[40:50]),
        *(ev.Event(f"theirs{n}", "p0", 1, name="theirs") for n in range(10)),
    ]
    ForeignWriter(mine.table).upsert(foreign)
    behind = run_json("index", "verify", *at, mine.checkpoint, "--limit", 0, code=1)
    kinds = Counter(d["difference"] for d in behind["differences"])
    assert kinds == {"other_place": 20, "not_in_table": 10, "not_in_index": 10}

    # One event reaches one key group; the others have the catch-up still before them.
    ev.write_files([ev.Event("fresh", "p1", 1, name="ours")], mine.source, 1, first=10)
    assert len(mine.run()) == 1
    stats = run_json("index", "stats", "--checkpoint-dir", mine.checkpoint)
    assert stats["epoch"] == 1 and {g["epoch"] for g in stats["groups"]} == {0, 1}
    caught_up = run_json("index", "verify", *at, mine.checkpoint)
    assert caught_up["equal"] and caught_up["table_keys"] == stats["keys"] == len(live) - 10 + 10 + 1
    assert run_json("index", "get", live[0][0], "--checkpoint-dir", mine.checkpoint)["ordering"] == foreign[0].ordering

    run(*arguments(mine, new))
    assert run_json("index", "verify", *at, new)["equal"]
    before = exported(mine.checkpoint, tmp_path / "before.parquet")
    assert exported(new, tmp_path / "after.parquet").equals(before)


def test_memory_is_that_of_a_key_range(case: StreamCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tagstream.cli.index_load.RUN_ROWS", 7)
    run(*arguments(case, tmp_path / "new"))
    before = exported(case.checkpoint, tmp_path / "before.parquet")
    assert exported(tmp_path / "new", tmp_path / "after.parquet").equals(before)


@pytest.mark.extended("processes that are killed, paused or ended; a minute of starts")
def test_a_rescale_that_was_killed_leaves_nothing_in_the_way(case: StreamCase, tmp_path: Path) -> None:
    """Killed at some of its changes of the new checkpoint: it is none until the last, and the next run begins anew."""
    whole = exported(case.checkpoint, tmp_path / "before.parquet")
    points = [1, 2, 7, *range(9, 40, 5)]
    alive = 0
    for n in points:
        to = tmp_path / f"new{n}"
        code = killed_at(n, arguments(case, to), to, tmp_path / f"faults{n}")
        if code == 0:
            alive += 1
            continue
        assert code == -signal.SIGKILL
        unfinished = PosixStorage(str(to))
        if unfinished.exists(META_FILE):  # killed in the very last step
            assert exported(to, tmp_path / f"after{n}.parquet").equals(whole)
            continue
        assert is_unfinished(unfinished) or n == 1
        run("index", "stats", "--checkpoint-dir", to, code=1)
        run(*arguments(case, to))
        assert exported(to, tmp_path / f"after{n}.parquet").equals(whole)
        assert {p.name for p in (to / "tagstream").iterdir()} == {"meta.json", "index", "takeover", "source"}
    assert 0 < alive < len(points), "the points do not reach from the begin to the end"


@pytest.mark.extended("the same decisions over another real stream")
def test_a_stream_on_what_a_killed_rescale_left_begins_anew(case: StreamCase, tmp_path: Path) -> None:
    mine = copied(case, tmp_path / "job")
    mine.checkpoint.rename(tmp_path / "old")
    begin_building(PosixStorage(str(mine.checkpoint)), "a test")
    shutil.copytree(tmp_path / "old" / "tagstream" / "index", mine.checkpoint / "tagstream" / "index")
    write_query_index_load(PosixStorage(str(mine.checkpoint)), QueryIndexLoad(1))
    ev.write_files(AFTER[:50], mine.source, 150, first=10)
    mine.run()
    assert run_json("index", "verify", "--checkpoint-dir", mine.checkpoint, "--target-base-path", mine.table)["equal"]


def test_a_folder_that_is_not_empty(case: StreamCase, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "notes.txt").write_text("mine")
    assert main(arguments(case, tmp_path / "new")) == 1
    assert "new exists; give --to-checkpoint-dir a folder that does not" in capsys.readouterr().err
    assert [p.name for p in tmp_path.rglob("*")] == ["new", "notes.txt"]


def test_a_checkpoint_the_table_has_left_behind(
    case: StreamCase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, new = copied(case, tmp_path / "job"), tmp_path / "new"
    newest = max(timeline_of(mine.table).glob("*.commit"))
    instant = newest.stem.split("_")[0]

    foreign_commit(mine, "29990101000000000")
    assert "has 1 commit that the index lacks (29990101000000000; by another writer" in fails(
        arguments(mine, new), new, capsys
    )
    for path in timeline_of(mine.table).glob("29990101000000000*"):
        path.unlink()

    shutil.copy(newest, tmp_path / newest.name)
    newest.unlink()
    assert f"no longer has commit {instant} of this stream: it was restored" in fails(arguments(mine, new), new, capsys)
    shutil.copy(tmp_path / newest.name, newest)

    for name in ("offsets", "commits"):
        for path in (mine.checkpoint / name).glob("*2*"):
            path.unlink()
    assert f"({instant}; by another writer, or by a newer copy" in fails(arguments(mine, new), new, capsys)


def test_a_checkpoint_of_another_query(case: StreamCase, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine, new = replace(copied(case, tmp_path / "job"), existing=case.table), tmp_path / "new"
    (mine.checkpoint / "metadata").write_text('{"id":"6b1a3f0e-0000-4000-8000-000000000000"}')
    assert "has no commit of the query of checkpoint" in fails(arguments(mine, new), new, capsys)


def test_an_index_whose_newest_batch_was_undone_is_not_imported(
    case: StreamCase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its ordering values are those of records that the stream will read again."""
    mine, new, file = copied(case, tmp_path / "job"), tmp_path / "new", tmp_path / "index.parquet"
    exported(mine.checkpoint, file)
    instant = max(timeline_of(mine.table).glob("*.commit")).stem.split("_")[0]
    run("table", "rollback", "--target-base-path", mine.table, "--instant", instant, "--yes")
    argv = ["index", "import", "--from", str(file), "--target-base-path", str(mine.table)]
    said = fails([*argv, "--to-checkpoint-dir", str(new)], new, capsys)
    assert f"as of commit {instant}, which table {mine.table} does not have: it was rolled back" in said


def test_what_is_imported_must_be_an_index_of_the_table(
    case: StreamCase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = exported(case.checkpoint, tmp_path / "good.parquet")
    bad, new = tmp_path / "bad.parquet", tmp_path / "new"
    argv = ["index", "import", "--from", str(bad), "--target-base-path", str(case.table)]
    argv += ["--to-checkpoint-dir", str(new)]

    def refused(rows: pa.Table) -> str:
        pq.write_table(rows, bad)
        return fails(argv, new, capsys)

    def with_column(name: str, values: pa.Array) -> pa.Table:
        return good.set_column(good.schema.get_field_index(name), name, values)

    key = good["record_key"][0].as_py()
    live = good.filter(pa.compute.invert(good["deleted"]))
    n = good.num_rows
    assert f"record key {key!r} is there twice" in refused(pa.concat_tables([good, good.slice(0, 1)]))
    assert "column file_id is missing" in refused(good.drop_columns(["file_id"]))
    assert "column ordering is double" in refused(with_column("ordering", good["ordering"].cast(pa.float64())))
    assert "row 1 (record key None) has no record_key" in refused(with_column("record_key", pa.nulls(n, pa.string())))
    assert "has no instant" in refused(with_column("instant", pa.array(["soon"] * n)))
    assert "has no partition_path or no file_id" in refused(with_column("file_id", pa.nulls(n, pa.string())))
    elsewhere = refused(with_column("file_id", pa.array(["nowhere-0"] * n)))
    assert "file groups that the table does not have, first nowhere-0 of partition" in elsewhere
    assert "1 not in the index" in (line := refused(live.slice(1))) and repr(live["record_key"][0].as_py()) in line
    extra = pa.concat_tables([good, live.slice(0, 1).set_column(0, "record_key", pa.array(["intruder"]))])
    assert "1 not in the table" in refused(extra)
    assert "was not made by `tagstream index export`" in refused(good.replace_schema_metadata(None))
    bad.write_bytes(b"PAR1")
    assert "is not a readable Parquet file" in fails(argv, new, capsys)
    bad.unlink()
    assert "bad.parquet does not exist" in fails(argv, new, capsys)

    pq.write_table(good, bad)
    run(*argv)
    assert exported(new, tmp_path / "again.parquet").equals(good)
