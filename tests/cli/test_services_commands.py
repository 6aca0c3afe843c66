"""`tagstream table clean`, `archive`, `savepoint`, `restore`, `rollback`, `delete-partition`, `ttl`: shown, then done."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tagstream.streaming.lease_keeper import LeaseKeeper
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.validate import validate
from tests.cli.running import run, run_json, state_of
from tests.table.buckets.ring_writer import RingWriter
from tests.table.writer import START_MS, Writer, row

pytestmark = pytest.mark.table_versions(6, 9)


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return filled(Writer.create(tmp_path, "COPY_ON_WRITE"))


def filled(found: Writer) -> Writer:
    for number in range(8):
        found.write([row(key, f"p{key % 2}", number) for key in range(4)])
    return found


def both(writer: Writer, command: str, *more: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a dry run says, which changes nothing, and what is said when it is done."""
    at = ("--target-base-path", writer.table.base_path)
    before = state_of(Path(writer.table.base_path))
    run("table", command, *at, *more, code=2)
    planned = run_json("table", command, *at, *more, "--dry-run")
    assert state_of(Path(writer.table.base_path)) == before
    done = run_json("table", command, *at, *more, "--yes")
    assert (planned["changed"], done["changed"]) == (False, True)
    assert validate(writer.table.reload()) == []
    return planned, done


def rows(writer: Writer) -> list[dict[str, Any]]:
    found = read_snapshot(writer.table.reload()).select(writer.schema.names).to_pylist()
    return sorted(found, key=lambda r: str(r["id"]))


def test_clean_and_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = filled(
        Writer.without_metadata(tmp_path, "COPY_ON_WRITE")
    )  # one that is not compacted holds archiving back
    planned, done = both(writer, "clean", "--commits", 2)
    assert planned["files"] == done["files"] == 5 * 2
    assert planned["bytes"] > 0
    assert planned["earliest"] == done["earliest"] == writer.table.timeline().completed_writes[-2].time
    planned, done = both(writer, "archive", "--min-commits", 3, "--max-commits", 4, "--commits", 2)
    assert planned["actions"] == done["actions"]
    assert len(done["actions"]) == 8 - 3
    assert rows(writer) == list(writer.live.values())
    at = ("--target-base-path", writer.table.base_path)
    assert run_json("table", "clean", *at, "--commits", 2, "--yes")["changed"] is False
    run("table", "archive", *at, "--min-commits", 3, "--max-commits", 4, "--commits", 3, "--yes", code=2)
    assert "--min-commits is 3 and --commits 3: the commits that the cleaner retains" in capsys.readouterr().err


def test_there_and_back(writer: Writer) -> None:
    at = ("--target-base-path", writer.table.base_path)
    wanted = rows(writer)
    _, made = both(writer, "savepoint", "--user", "me", "--comment", "before the load")
    (found,) = run_json("table", "savepoints", *at)["savepoints"]
    assert (found["instant"], found["user"], found["comment"]) == (made["instant"], "me", "before the load")
    writer.now_ms += 10**12  # the command has the machine's clock
    time = writer.write([row(1, "p1", 50)])
    after = rows(writer)
    newest = writer.write([row(2, "p0", 51)])
    planned, _ = both(writer, "rollback", "--instant", newest)
    assert (planned["files"], planned["drops_metadata"]) == (1, False)
    assert rows(writer) == after
    planned, done = both(writer, "restore", "--savepoint", made["instant"])
    assert [each["instant"] for each in planned["undone"]] == done["undone"] == [time]
    assert rows(writer) == wanted
    both(writer, "savepoint", "--instant", made["instant"], "--delete")
    assert run_json("table", "savepoints", *at)["savepoints"] == []


def test_delete_partition(writer: Writer) -> None:
    planned, _ = both(writer, "delete-partition", "--partition", "p1")
    assert planned["partitions"] == [{"partition_path": "p1", "file_groups": 1}]
    assert {r["part"] for r in rows(writer)} == {"p0"}
    run("table", "delete-partition", "--target-base-path", writer.table.base_path, "--partition", "q", "--yes", code=1)


def test_partitions_that_are_too_old(writer: Writer, capsys: pytest.CaptureFixture[str]) -> None:
    at = ("--target-base-path", writer.table.base_path)
    writer.now_ms += 10**12  # later than the machine's clock
    writer.write([row(1, "p1", 50)])
    wanted = [r for r in rows(writer) if r["part"] == "p1"]
    planned, done = both(writer, "ttl", "--days", 3)
    assert [each["partition_path"] for each in planned["partitions"]] == ["p0"]
    assert done["partitions"] == [{"partition_path": "p0"}]
    assert rows(writer) == wanted
    again = run_json("table", "ttl", *at, "--hoodie-conf", "hoodie.partition.ttl.strategy.days.retain=3", "--yes")
    assert (again["partitions"], again["changed"]) == ([], False)
    run("table", "ttl", *at, "--yes", code=2)
    assert "need hoodie.partition.ttl.strategy.days.retain" in capsys.readouterr().err


def test_a_running_job_keeps_its_table(writer: Writer, capsys: pytest.CaptureFixture[str]) -> None:
    clock = itertools.count(START_MS * 10)
    lease = LeaseKeeper(writer.table.storage, lambda: next(clock))
    lease.acquire("a job")
    try:
        run("table", "clean", "--target-base-path", writer.table.base_path, "--commits", 1, "--yes", code=1)
        assert "a job" in capsys.readouterr().err
    finally:
        lease.release()


def test_compact_plan_and_execution(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, "MERGE_ON_READ")
    for number in range(3):
        writer.write([row(key, f"p{key % 2}", number) for key in range(4)])
    planned, done = both(writer, "compact", "--schedule")
    assert len(planned["operations"]) == 2
    assert all(found["log_files"] for found in planned["operations"])
    at = ("--target-base-path", writer.table.base_path)
    run("table", "compact", *at, "--execute", "20200101000000000", "--yes", code=2)
    run("table", "compact", *at, "--execute", done["planned"], "--schedule", "--yes", code=2)
    planned, executed = both(writer, "compact", "--execute", done["planned"])
    assert (executed["instants"], executed["files"]) == ([done["planned"]], len(planned["operations"]))
    assert rows(writer) == list(writer.live.values())
    assert run_json("table", "compact", *at, "--yes")["changed"] is False


def test_health(tmp_path: Path) -> None:
    writer = Writer.without_metadata(tmp_path, "MERGE_ON_READ")
    for number in range(4):
        writer.write([row(key, "p", number) for key in range(4)])
    at = ("--target-base-path", writer.table.base_path)
    sound = run_json("table", "health", *at)
    assert (sound["findings"], sound["active"], sound["deepest_log"]) == ([], 4, 4)
    ill = run_json("table", "health", *at, "--max-log-files", 3, code=1)
    assert "4 log files" in ill["findings"][0]["what"]
    assert "tagstream table compact" in ill["findings"][0]["remedy"]


def test_cluster(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, "COPY_ON_WRITE", groups=3)
    writer.write([row(key, f"p{key % 2}", 1) for key in range(12)])
    wanted, at = rows(writer), ("--target-base-path", writer.table.base_path)
    planned, done = both(writer, "cluster", "--sort-columns", "name,id")
    assert [(g["partition_path"], g["outputs"]) for g in planned["groups"]] == [("p0", 1), ("p1", 1)]
    assert done["replaced"] == sum(g["file_groups"] for g in planned["groups"]) > done["files"] == 2
    assert rows(writer) == wanted
    assert run_json("table", "cluster", *at, "--sort-columns", "name,id", "--yes")["changed"] is False
    instant = run_json("table", "cluster", *at, "--schedule", "--yes")["planned"]
    assert run_json("table", "cluster", *at, "--dry-run", "--execute", instant)["pending"] == [instant]
    run("table", "cluster", *at, "--yes", "--execute", "20200101000000000", code=2)
    assert run_json("table", "cluster", *at, "--yes", "--take-back", instant)["taken_back"] == instant
    assert rows(writer) == wanted
    assert not writer.table.timeline().pending_clusterings


def test_cluster_resizes_buckets(tmp_path: Path) -> None:
    writer = RingWriter.of(tmp_path).fill()
    wanted, at = rows(writer), ("--target-base-path", writer.table.base_path)
    run_json("table", "cluster", *at, "--yes")  # by default every partition keeps its number of buckets
    writer.judge(0, {2})
    planned, done = both(writer, "cluster", "--max-buckets", "4", "--split-threshold", "0.000001")
    assert [(g["partition_path"], g["file_groups"], g["outputs"]) for g in planned["groups"]] == [
        (partition, 1, 2) for partition in ("p0", "p1", "p2") for _ in range(2)
    ]
    assert done["replaced"] == 6
    writer.judge(1, {4})
    merge = ("--min-buckets", "1", "--merge-threshold", "9")
    instant = run_json("table", "cluster", *at, *merge, "--schedule", "--yes")["planned"]
    run("table", "cluster", *at, "--execute", instant, "--hash-fields", "part", "--yes", code=2)
    assert run_json("table", "cluster", *at, "--execute", instant, "--hash-fields", "id", "--yes")["instants"] == [
        instant
    ]
    writer.judge(2, range(1, 4))
    assert rows(writer) == wanted


def test_what_a_killed_command_left_goes_with_the_next_one(writer: Writer) -> None:
    """It died between its commit and the deletion of its markers."""
    time = writer.table.timeline().completed_writes[-1].time
    writer.table.storage.write_new(f".hoodie/.temp/{time}/MARKERS0", b"")
    assert validate(writer.table) != []
    run_json("table", "savepoint", "--target-base-path", writer.table.base_path, "--yes")
    assert validate(writer.table.reload()) == []
