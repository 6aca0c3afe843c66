"""Files that grow, change or are not whole, through the stream: every line once, or the job stops and names the file."""

from __future__ import annotations

import gzip
import json
import logging
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.errors import BadRecordsError, SourceError
from tagstream.streaming.job.failure import explain
from tagstream.streaming.job.source_files import SourceFiles
from tagstream.streaming.options.cli import load_options
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table

pytestmark = pytest.mark.spark


def line(key: str, ts: int = 1, **more: object) -> str:
    return json.dumps({"id": key, "part": "p0", "ts": ts, **more}) + "\n"


def append(case: StreamCase, name: str, text: str, *, tick: int) -> None:
    case.source.mkdir(parents=True, exist_ok=True)
    path = case.source / name
    with path.open("a") as f:
        f.write(text)
    os.utime(path, (1_600_000_000 + tick, 1_600_000_000 + tick))


def keys(case: StreamCase) -> list[str]:
    return sorted(read_table(case.table)["id"].to_pylist())


def records(case: StreamCase, *more: str) -> int:
    return sum(r.records for r in case.run(*more))


def test_lines_appended_to_a_file_that_was_read_come_with_the_next_run(tmp_path: Path, spark: SparkSession) -> None:
    case = StreamCase(tmp_path, spark)
    append(case, "a.json", line("a") + line("b"), tick=1)
    assert records(case) == 2
    append(case, "a.json", line("c") + '{"id": "d", "part"', tick=2)
    assert records(case) == 1
    append(case, "a.json", ': "p0", "ts": 1}', tick=3)  # whole, without its end of line
    assert records(case) == 1
    append(case, "a.json", "\n" + line("e"), tick=4)
    assert records(case) == 1
    assert records(case) == 0
    assert keys(case) == ["a", "b", "c", "d", "e"]


def test_a_large_file_is_shared_by_the_tasks(tmp_path: Path, spark: SparkSession) -> None:
    case = StreamCase(tmp_path, spark)
    append(case, "a.json", "".join(line(f"k{n:05d}", name="x" * 200) for n in range(12_000)), tick=1)
    (report,) = case.run()
    assert (report.records, report.inserts) == (12_000, 12_000)
    (plan,) = (case.root / "tagstream" / "source" / "plans").glob("*.jsonl")
    tasks = plan.read_text().splitlines()[1:]
    assert len(tasks) == spark.sparkContext.defaultParallelism
    assert len({len(task) for task in tasks}) == 1


def test_a_file_that_was_written_over_stops_the_job_by_name(tmp_path: Path, spark: SparkSession) -> None:
    case = StreamCase(tmp_path, spark)
    append(case, "a.json", line("a") + line("b"), tick=1)
    case.run()
    (case.source / "a.json").write_text(line("c"))
    with pytest.raises(SourceError, match=r"in/a\.json was overwritten: .*changed\.files=again"):
        case.run()
    case.conf = {"tagstream.source.dfs.changed.files": "again"}
    assert records(case) == 1
    assert keys(case) == ["a", "b", "c"]


def test_a_bad_record_is_mended_in_its_file(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    case = StreamCase(tmp_path, spark)
    append(case, "a.json", line("a") + "rubbish\n" + line("b"), tick=1)
    with pytest.raises(BadRecordsError):
        case.run()
    (case.source / "a.json").write_text(line("a") + line("mended and longer") + line("b"))
    with caplog.at_level(logging.WARNING, "tagstream"):
        assert records(case) == 3
    assert "None of its lines is in the table yet" in caplog.text
    assert keys(case) == ["a", "b", "mended and longer"]


@pytest.mark.extended("the same decisions over another real stream")
def test_a_file_that_goes_between_its_listing_and_its_batch(tmp_path: Path, spark: SparkSession) -> None:
    case = StreamCase(tmp_path, spark)
    append(case, "a.json", line("a"), tick=1)
    append(case, "b.json", line("b"), tick=2)

    def go(point: str, batch: int) -> None:
        if (point, batch) == ("profile_pinned", 1):
            (case.source / "b.json").unlink()

    with pytest.raises(Exception) as caught:
        case.run(at=go)
    text = explain(caught.value, load_options(case.arguments())).line
    assert f"source file {case.source}/b.json is gone" in text
    assert "restore it" in text
    append(case, "b.json", line("b"), tick=2)
    assert records(case) == 1
    assert keys(case) == ["a", "b"]


def test_a_compressed_file_and_one_that_only_looks_plain(tmp_path: Path, spark: SparkSession) -> None:
    case = StreamCase(tmp_path, spark)
    case.source.mkdir(parents=True)
    (case.source / "a.json.gz").write_bytes(gzip.compress((line("a") + line("b")[:-1]).encode()))
    assert records(case) == 2
    (case.source / "b.json").write_bytes(gzip.compress(line("c").encode()))
    with pytest.raises(SourceError, match=r"in/b\.json is gzip by its first bytes"):
        case.run()
    (case.source / "b.json").rename(case.source / "b.json.gz")
    assert records(case) == 1
    assert keys(case) == ["a", "b", "c"]


@pytest.mark.extended("the same decisions over another real stream")
def test_a_checkpoint_that_is_moved_with_a_batch_unfinished_goes_on(tmp_path: Path, spark: SparkSession) -> None:
    events = [e for e in ev.generate(600, seed=4) if not e.is_tombstone]
    case = StreamCase(tmp_path, spark)
    ev.write_files(events, case.source, 200)

    def stop(point: str, batch: int) -> None:
        if (point, batch) == ("files_written", 1):
            raise KeyError("killed")

    with pytest.raises(KeyError, match="killed"):
        case.run(at=stop)
    case.checkpoint.rename(tmp_path / "elsewhere")
    moved = StreamCase(tmp_path, spark)
    moved.place = tmp_path / "elsewhere"
    assert [(r.batch_id, r.records) for r in moved.run()] == [(1, 200), (2, 200)]
    assert not (
        wrong := compare(ev.rows(ev.oracle(events).values()), read_table(case.table, meta_columns=False), ["id"])
    ), wrong
    assert moved.run() == []


@pytest.mark.extended("the same decisions over another real stream")
def test_a_checkpoint_of_an_earlier_version_goes_on(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batches named files, the newest one not finished; a file that has grown meanwhile is read again."""
    events = [e for e in ev.generate(900, seed=8) if not e.is_tombstone]
    case = StreamCase(tmp_path, spark)
    ev.write_files(events[:600], case.source, 200)

    def stop(point: str, batch: int) -> None:
        if (point, batch) == ("files_written", 2):
            raise KeyError("killed")

    with monkeypatch.context() as patch, pytest.raises(KeyError, match="killed"):
        patch.setattr(SourceFiles, "open", lambda *_: None)  # Spark lists and reads the folder itself
        case.run(at=stop)
    ev.write_files(events[600:], case.source, 200, first=3)
    late = case.source / "events-00000.json"
    with late.open("a") as f:
        f.write(json.dumps(events[-1].row() | {"id": "grown", "part": "p0", "ts": 1}) + "\n")
    reports = case.run()
    assert [r.batch_id for r in reports] == [2, 3, 4, 5]
    expected = {e.key: e for e in ev.oracle(events).values()}
    found = read_table(case.table, meta_columns=False)
    rest = found.filter([key != "grown" for key in found["id"].to_pylist()])
    assert found.num_rows == rest.num_rows + 1
    assert not (wrong := compare(ev.rows(expected.values()), rest, ["id"])), wrong
    assert case.run() == []
