"""`--bootstrap-only`, and the stream that goes on with the index it loaded."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tagstream.bootstrap.errors import IndexCoverageError
from tagstream.bootstrap.report import BootstrapReport
from tagstream.state.checkpoint import INDEX
from tagstream.state.errors import StateError
from tagstream.state.index_loads import complete_catch_ups, read_marker
from tagstream.state.layout import StateLayout
from tagstream.streaming.errors import StopRequested
from tagstream.streaming.job.dry_run import explain_start
from tagstream.streaming.job.main import main
from tagstream.streaming.options.cli import load_options
from tagstream.streaming.process import StopFlag
from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.posix import PosixStorage
from tests.drills.stream_job import DEADLINE_S
from tests.streaming.recovery.test_takeover import is_oracles
from tests.streaming.stream_case import StreamCase, now_ms
from tests.streaming.test_guards import foreign_commit
from tests.streaming.test_kafka_stream import kafka_case, send
from tests.support import events as ev
from tests.support.kafka_broker import KafkaBroker
from tests.support.paths import ROOT
from tests.support.process import Process
from tests.table.reference import expected, unpack

# Deletes leave no trace in a copy-on-write table, so events older than a delete stay out.
MIX = ev.Mix(keys=60, late=0.0, late_deletes=0.0, duplicates=0.0, equal_ordering=0.0)


@pytest.fixture
def case(tmp_path: Path, spark: SparkSession) -> StreamCase:
    """A table of one commit by a stream whose checkpoint is lost; files of later events wait to be streamed."""
    case = StreamCase(tmp_path, spark)
    ev.write_files(events_of()[:300], case.source, 300)
    case.run()
    (tmp_path / "checkpoint").rename(tmp_path / "lost")
    for path in case.source.iterdir():
        path.unlink()
    ev.write_files(events_of()[300:], case.source, 100, first=3)
    return case


def events_of() -> list[ev.Event]:
    return list(ev.generate(500, MIX, seed=51))


def loaded(case: StreamCase) -> list[BootstrapReport]:
    """Reports of the generations in the checkpoint, in order."""
    layout = StateLayout(PosixStorage(str(case.checkpoint)).below(INDEX), "")
    markers = [read_marker(layout, index_load) for index_load in range(1, 5)]
    return [BootstrapReport.from_dict(marker.report) for marker in markers if marker is not None]


def dry_run(case: StreamCase) -> str:
    """What `--dry-run` says that a start would do."""
    out = io.StringIO()
    assert explain_start(load_options(case.arguments("--dry-run")), out, os.environ, now_ms())
    return next(line for line in out.getvalue().splitlines() if line.startswith("would do: "))


def meta(case: StreamCase) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((case.checkpoint / "tagstream" / "meta.json").read_text())
    return found


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.spark
def test_the_stream_adopts_the_index(case: StreamCase, caplog: pytest.LogCaptureFixture) -> None:
    before = case.files()
    with caplog.at_level(logging.INFO, "tagstream"):
        case.bootstrap()
        case.bootstrap()
    said = [r.getMessage() for r in caplog.records]
    (line,) = [text for text in said if text.startswith("index loaded in ")]
    (report,) = loaded(case)
    assert f"{report.live:,} keys (" in line
    assert f"{report.rows:,} rows scanned in {report.files:,} files ({report.rows:,} by the commits)" in line
    assert "; 0 keys found twice" in line
    assert "bytes a key" in line
    assert [text for text in said if "covers table" in text and "already" in text]
    assert case.files() == before
    assert meta(case)["stream_id"] == ""
    assert (
        dry_run(case)
        == f"would do: use the index that was loaded as of {report.instant} ({report.live:,} keys); stream"
    )

    reports = case.run()
    assert sum(r.updates + r.moves for r in reports) > 50, "the loaded index knows no key"
    is_oracles(case, events_of())
    assert len(loaded(case)) == 1, "it was loaded a second time"
    assert dry_run(case) == (
        f"would do: continue: the index in the checkpoint covers the table (batch {reports[-1].batch_id} is its newest); "
        "stream"
    )
    assert meta(case)["stream_id"] == str(case.source)


@pytest.mark.spark
@pytest.mark.kafka
def test_a_topic_goes_on_where_the_table_ends(tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker) -> None:
    kafka_broker.create_topic("adopted", partitions=2)
    events = events_of()
    send(kafka_broker, "adopted", events[:300], 2)
    case = kafka_case(tmp_path, spark, kafka_broker, "adopted")
    case.run()
    (tmp_path / "checkpoint").rename(tmp_path / "lost")
    case.bootstrap()
    send(kafka_broker, "adopted", events[300:], 2)
    assert sum(r.records for r in case.run()) == 200
    is_oracles(case, events)
    assert (len(loaded(case)), meta(case)["stream_id"]) == (1, "adopted")


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.spark
def test_what_the_checkpoint_fixes_must_be_kept(case: StreamCase) -> None:
    identifier = "hoodie.datasource.write.streaming.checkpoint.identifier"
    case.bootstrap(index_key_groups="6", **{identifier.replace(".", "_"): "orders"})
    assert (meta(case)["key_groups"], meta(case)["stream_id"]) == (6, "orders")
    for key, value, words in (
        ("index.key.groups", "4", "fixes key_groups as 6, but index.key.groups is now 4"),
        (identifier, "others", "fixes stream_id as 'orders'"),
        ("index.global.enabled", "false", "fixes global_index as True"),
    ):
        with pytest.raises(StateError, match=words):
            replace(case, conf={identifier: "orders", key: value}).run()
    assert len(replace(case, conf={identifier: "orders", "index.key.groups": "6"}).run()) == 2
    is_oracles(case, events_of())


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.spark
def test_an_index_of_other_partitions_is_not_adopted(case: StreamCase) -> None:
    case.bootstrap(index_partition_regex="p0")
    case.run()
    assert [r.partition_regex for r in loaded(case)] == ["p0", ".*"]
    is_oracles(case, events_of())


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.spark
def test_a_table_that_has_changed_is_caught_up_with(case: StreamCase) -> None:
    case.bootstrap()
    foreign_commit(case, "29990101000000000")
    case.bootstrap()
    assert len(loaded(case)) == 1
    layout = StateLayout(PosixStorage(str(case.checkpoint)).below(INDEX), "")
    assert [e.instants for e in complete_catch_ups(layout, 1)] == [("29990101000000000",)]
    case.run()
    is_oracles(case, events_of())
    assert len(loaded(case)) == 1


@pytest.mark.spark
def test_corrupt_files_end_it_or_are_skipped_as_asked(case: StreamCase, caplog: pytest.LogCaptureFixture) -> None:
    victim, empty, *_ = sorted(case.table.rglob("p*/*.parquet"))
    whole = victim.read_bytes()
    victim.write_bytes(whole[:100])
    empty.write_bytes(b"")
    with pytest.raises(CorruptFileError, match=victim.name):
        case.bootstrap()
    with caplog.at_level(logging.INFO, "tagstream"):
        case.bootstrap(index_bootstrap_corrupt_files="skip")
    (report,) = loaded(case)
    # An empty file is of a writer that died, but where a metadata table lists it with its size: then its rows are lost.
    listed = bool(HoodieTable.open(str(case.table)).config.metadata_partitions)
    assert len(report.skipped) == 1 + listed and any(victim.name in text for text in report.skipped)
    said = [r.getMessage() for r in caplog.records]
    assert [text for text in said if "skipped: " in text and victim.name in text]
    word = "skipped: " if listed else "left out: "
    assert [text for text in said if word in text and empty.name in text]
    assert [text for text in said if f"{1 + listed} files skipped" in text]
    with pytest.raises(CorruptFileError, match=victim.name):  # a stream that does not skip does not adopt it
        case.run()


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.spark
def test_a_stop_ends_the_load_and_the_next_one_goes_on(case: StreamCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StopFlag, "requested", True)
    with pytest.raises(StopRequested, match="while the index was loaded"):
        case.bootstrap()
    monkeypatch.undo()
    case.bootstrap()
    assert len(case.run()) == 2
    is_oracles(case, events_of())


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.spark
def test_without_leave_a_stream_loads_nothing_but_adopts(case: StreamCase) -> None:
    unwilling = replace(case, conf={"index.bootstrap.enabled": "false"})
    with pytest.raises(IndexCoverageError, match="index.bootstrap.enabled=false"):
        unwilling.run()
    case.bootstrap()
    assert len(unwilling.run()) == 2
    is_oracles(case, events_of())


@pytest.mark.spark
@pytest.mark.parametrize("name", ["mor_v6_bucket"])
def test_a_table_that_is_only_read_can_be_loaded_and_is_not_streamed_into(
    name: str, tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    case = StreamCase(tmp_path / "job", spark, existing=unpack(name, tmp_path))
    before = case.files()
    case.bootstrap()
    assert loaded(case)[0].live == len(expected(case.table)["records"])
    assert [r.getMessage() for r in caplog.records if "a stream will not start" in r.getMessage()]
    words = "it is bucketed .*shown by 0000000"
    with pytest.raises(UnsupportedTableError, match=f"cannot write table {name} .*{words}"):
        case.run()
    assert case.files() == before  # its metadata table above all
    assert HoodieTable.open(str(case.table)).config.metadata_partitions or "v6" in name


def test_what_contradicts_it_or_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = ["--bootstrap-only", "--target-base-path", str(tmp_path / "t"), "--checkpoint-dir", str(tmp_path / "c")]
    for more, code, words in (
        (["--continuous"], 2, "--bootstrap-only contradicts --continuous"),
        (["--hoodie-conf", "index.bootstrap.enabled=false"], 2, "contradicts index.bootstrap.enabled = false"),
        ([], 1, "is not a Hudi table"),
    ):
        assert main([*paths, *more]) == code
        assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.extended("processes that are killed, paused or ended; a minute of starts")
@pytest.mark.spark
@pytest.mark.kill
def test_a_killed_command_goes_on_where_it_stopped(tmp_path: Path, spark: SparkSession) -> None:
    case = StreamCase(tmp_path / "job", spark, existing=unpack("cow_v6_hive_alltypes", tmp_path))
    command = [sys.executable, str(ROOT / "run_stream.py"), *case.bootstrap_arguments("--spark-master", "local[1]")]
    index = case.checkpoint / "tagstream" / "index"
    with Process(command, tmp_path / "first.log", cwd=ROOT, env=dict(os.environ)) as process:
        process.wait_for(lambda: any(index.glob("gen-1/scan/*.json")), DEADLINE_S, "a task that is done")
        process.send(signal.SIGKILL)
        process.wait(DEADLINE_S)
    first = (index / "gen-1" / "complete.json").exists()
    with Process(command, tmp_path / "second.log", cwd=ROOT, env=dict(os.environ)) as process:
        assert process.wait(DEADLINE_S) == 0, process.output()
    (report,) = loaded(case)
    assert (report.live, first or report.resumed > 0) == (len(expected(case.table)["records"]), True)
