"""The index commands on checkpoints of real streams: what they say is what the stream's events lead to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tagstream.cli.main import main
from tagstream.state.checkpoint import TABLE_INDEX, open_or_create_meta
from tagstream.streaming.batch.report import BatchReport
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.storage.posix import PosixStorage
from tests.cli.running import run, run_json, state_of
from tests.cli.stream import copied, deleted_keys, streamed
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev

pytestmark = pytest.mark.spark

EVENTS = list(ev.generate(900, ev.Mix(keys=120), seed=51))
BY_PARTITION = list(ev.generate(600, ev.Mix(keys=60, deletes_without_partition=0.0), seed=53))


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> StreamCase:
    return streamed(tmp_path_factory.mktemp("global"), spark, EVENTS)


@pytest.fixture(scope="module")
def by_partition(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> StreamCase:
    return streamed(tmp_path_factory.mktemp("partitioned"), spark, BY_PARTITION, global_index=False)


def places(case: StreamCase) -> set[tuple[str, str, str]]:
    """(record key, partition path, file id) of every live row, by the table."""
    columns = ["_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name"]
    rows = read_snapshot(HoodieTable.open(str(case.table)), columns).to_pylist()
    return {(r[columns[0]], r[columns[1]], r[columns[2]].lstrip(".").split("_")[0]) for r in rows}


@pytest.mark.extended("the same decisions over another real stream")
def test_get_finds_each_key(case: StreamCase) -> None:
    at = ("--checkpoint-dir", case.checkpoint)
    live = ev.oracle(EVENTS)
    assert len(live) > 80
    for key, partition, file_id in sorted(places(case)):
        found = run_json("index", "get", key, *at)
        assert (found["found"], found["deleted"]) == (True, False)
        assert (found["partition_path"], found["file_id"], found["ordering"]) == (
            partition,
            file_id,
            live[key].ordering,
        )
    gone = deleted_keys(EVENTS)
    assert len(gone) > 3
    for key in sorted(gone):
        found = run_json("index", "get", key, *at)
        assert (found["deleted"], found["partition_path"], found["file_id"]) == (True, None, None)
        assert found["ordering"] == max(e.ordering for e in EVENTS if e.key == key and e.ordering is not None)
    assert run_json("index", "get", "nobody", *at, code=1)["found"] is False
    assert main(["index", "get", "k", *map(str, at), "--partition", "p0"]) == 2


def test_get_by_partition(by_partition: StreamCase, capsys: pytest.CaptureFixture[str]) -> None:
    at = ("--checkpoint-dir", by_partition.checkpoint)
    for (partition, key), event in list(ev.oracle(BY_PARTITION, global_index=False).items())[::5]:
        found = run_json("index", "get", key, "--partition", partition, *at)
        assert (found["partition_path"], found["ordering"], found["deleted"]) == (partition, event.ordering, False)
    assert main(["index", "get", "k0000001", *map(str, at)]) == 2
    assert "name the partition with --partition" in capsys.readouterr().err


def test_stats(case: StreamCase) -> None:
    found = run_json("index", "stats", "--checkpoint-dir", case.checkpoint)
    assert (found["keys"], found["tombstones"]) == (len(ev.oracle(EVENTS)), len(deleted_keys(EVENTS)))
    assert (found["stream_id"], found["global"], found["batch_id"]) == ("events", True, 2)
    assert len(found["groups"]) == found["key_groups"] == 8
    assert sum(g["keys"] for g in found["groups"]) == found["keys"]
    sizes = sum(p.stat().st_size for p in (case.checkpoint / "tagstream" / "index").rglob("*.sst"))
    assert found["bytes"] == sizes
    assert "key group" in run("index", "stats", "--checkpoint-dir", case.checkpoint)


@pytest.mark.parametrize("name", ["case", "by_partition"])
def test_export(name: str, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> None:
    case: StreamCase = request.getfixturevalue(name)
    argv = ["index", "export", "--checkpoint-dir", str(case.checkpoint), "--out"]
    run(*argv, tmp_path / "live.parquet")
    live = pq.read_table(tmp_path / "live.parquet")
    assert live.column_names == ["record_key", "partition_path", "file_id", "instant", "ordering"]
    assert {tuple(r.values())[:3] for r in live.to_pylist()} == places(case)
    assert live.num_rows == len(places(case))
    instants = {i.time for i in HoodieTable.open(str(case.table)).timeline().completed_writes}
    assert set(live["instant"].to_pylist()) <= instants

    told = run_json(*argv, tmp_path / "all.parquet", "--all")
    rows = pq.read_table(tmp_path / "all.parquet")
    assert rows.filter(pc.invert(rows["deleted"])).drop_columns(["deleted"]).equals(live)
    dead = rows.filter(rows["deleted"])
    assert dead.num_rows == told["tombstones"] > 0
    assert dead["file_id"].null_count == dead.num_rows
    if name == "case":
        assert set(dead["record_key"].to_pylist()) == deleted_keys(EVENTS)
    else:
        assert dead["partition_path"].null_count == 0
    assert main([*argv, str(tmp_path / "all.parquet")]) == 1
    assert "all.parquet exists" in capsys.readouterr().err
    assert {p.name for p in tmp_path.iterdir()} == {"live.parquet", "all.parquet"}


@pytest.mark.parametrize("name", ["case", "by_partition"])
def test_verify_finds_nothing_in_a_sound_pair(name: str, request: pytest.FixtureRequest) -> None:
    case: StreamCase = request.getfixturevalue(name)
    at = ("--checkpoint-dir", case.checkpoint, "--target-base-path", case.table)
    found = run_json("index", "verify", *at)
    assert (found["equal"], found["differences"]) == (True, [])
    assert found["table_keys"] == found["index_keys"] == len(places(case))


def change_rows(case: StreamCase, change: Callable[[str, pa.Table], pa.Table]) -> None:
    """Rewrite the newest base files of a copy-on-write table behind its back."""
    table = HoodieTable.open(str(case.table))
    view = table.view()
    for partition in view.partitions():
        for found in view.latest_merged_slices(partition):
            path = table.storage.where(found.base_path or "")
            before = pq.read_table(path)
            after = change(partition, before)
            if after is not before:
                pq.write_table(after, path)


def test_verify_finds_every_injected_difference(case: StreamCase, tmp_path: Path) -> None:
    mine = copied(case, tmp_path)
    by_place: dict[str, list[str]] = {}
    for key, partition, _ in sorted(places(case)):
        by_place.setdefault(partition, []).append(key)
    first, second, *_ = sorted(by_place)
    lost, moved, doubled = by_place[first][:3]
    carried: list[pa.Table] = []

    def change(partition: str, rows: pa.Table) -> pa.Table:
        keys = rows["_hoodie_record_key"]
        if partition == first:
            carried.append(rows.filter(pc.is_in(keys, pa.array([moved, doubled]))))
            return rows.filter(pc.invert(pc.is_in(keys, pa.array([lost, moved]))))
        if partition == second and carried:
            intruder = rows.slice(0, 1)
            place = intruder.schema.get_field_index("_hoodie_record_key")
            intruder = intruder.set_column(place, "_hoodie_record_key", pa.array(["intruder"]))
            rows = pa.concat_tables([rows, carried.pop(), intruder])
        return rows

    change_rows(mine, change)
    at = ("--checkpoint-dir", mine.checkpoint, "--target-base-path", mine.table)
    found = run_json("index", "verify", *at, code=1)
    assert found["equal"] is False
    listed = {(d["difference"], d["record_key"]) for d in found["differences"]}
    assert listed == {
        ("not_in_table", lost),
        ("not_in_index", "intruder"),
        ("other_place", moved),
        ("twice_in_table", doubled),
    }
    (other,) = [d for d in found["differences"] if d["difference"] == "other_place"]
    assert (other["table_partition_path"], other["index_partition_path"]) == (second, first)
    assert found["difference_count"] == len(found["differences"]) == 4
    short = run_json("index", "verify", *at, "--limit", 1, code=1)
    assert len(short["differences"]) == 1
    assert {k: v for k, v in short.items() if k != "differences"} == {
        k: v for k, v in found.items() if k != "differences"
    }
    assert "the first 1 of 4 differences" in run("index", "verify", *at, "--limit", 1, code=1)


@pytest.mark.extended("the same decisions over another real stream")
def test_a_live_job_is_read_and_neither_it_nor_its_files_notice(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    case = StreamCase(tmp_path, spark)
    ev.write_files(EVENTS[:300], case.source, 100)
    seen: list[dict[str, Any]] = []

    def look(report: BatchReport) -> None:
        # Spark tidies its own state store in the background; the lease is renewed by the job.
        folders, leave_out = (case.table, case.checkpoint), ("state",)
        before = state_of(*folders, leave_out=leave_out)
        at, of = ("--checkpoint-dir", case.checkpoint), ("--target-base-path", case.table)
        for command in ("timeline", "commits", "files", "rows", "validate"):
            run_json("table", command, *of)
        run_json("index", "stats", *at)
        run_json("index", "export", *at, "--out", tmp_path / f"keys-{report.batch_id}.parquet")
        seen.append(run_json("index", "verify", *at, *of))
        key = EVENTS[0].key
        assert run_json("index", "get", key, *at, code=int(report.batch_id == 0))["found"] is (report.batch_id > 0)
        to = str(tmp_path / "other")
        assert main(["rescale", *map(str, (*at, *of)), "--to-checkpoint-dir", to, "--key-groups", "2"]) == 1
        assert "is being written by process" in capsys.readouterr().err
        after = state_of(*folders, leave_out=leave_out)
        for state in (before, after):
            for path in [p for p in state if "/.tagstream_lease." in p or p.endswith("/.hoodie")]:
                state.pop(path)
        assert after == before

    assert len(case.run(on_batch=look)) == 3
    assert [s["equal"] for s in seen] == [True, True, True]
    assert seen[-1]["table_keys"] == len(ev.oracle(EVENTS[:300]))
    assert [s["batch_id"] for s in seen] == [0, 1, 2]


def test_a_checkpoint_whose_stream_asks_the_table_holds_no_index(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    open_or_create_meta(
        PosixStorage(str(tmp_path)), shuffle_partitions=2, key_groups=4, stream_id="s", ordering="int64", global_index=True,
        index=TABLE_INDEX, table_name="t", table_path="/t",
    )  # fmt: skip
    for command in (["index", "stats"], ["index", "get", "k"]):
        run(*command, "--checkpoint-dir", tmp_path, code=1)
        assert "has no index: its stream looks keys up in the table" in capsys.readouterr().err
