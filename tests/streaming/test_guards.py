"""What stops a stream before it can do harm, and what it takes in its stride."""

from __future__ import annotations

import json
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.bootstrap.errors import IndexCoverageError
from tagstream.streaming.errors import CheckpointError
from tagstream.table.errors import ConfigError, LeaseLostError
from tagstream.table.file_group.names import next_instant
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.rollback import rollback
from tagstream.table.services.validate_metadata import validate_metadata
from tagstream.table.storage.opening import open_storage
from tagstream.table.timeline import lease
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.write import commit as protocol
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.foreign_writer import ForeignWriter
from tests.support.hudi_rs import read_table
from tests.support.table_version import completed_file, metadata_wanted, timeline_of

pytestmark = [pytest.mark.spark, pytest.mark.platform("other writers and damage")]


@pytest.fixture
def case(tmp_path: Path, spark: SparkSession) -> StreamCase:
    """A stream that has committed two batches; a third file waits."""
    case = StreamCase(tmp_path, spark)
    events = list(ev.generate(300, ev.Mix(keys=40), seed=8))
    ev.write_files(events[:200], case.source, 100)
    assert len(case.run()) == 2
    ev.write_files(events[200:], case.source, 100, first=2)
    return case


def foreign_commit(case: StreamCase, instant: str) -> None:
    """A completed commit of another writer."""
    table = HoodieTable.open(str(case.table))
    protocol.request(table, instant, "commit")
    protocol.inflight(table, instant, "commit")
    protocol.complete(table, instant, "commit", CommitMetadata.build([], {}, json.dumps(ev.AVRO_SCHEMA)))


def instants(case: StreamCase) -> list[str]:
    return sorted(p.name.split(".")[0].split("_")[0] for p in timeline_of(case.table).glob("2*.commit"))


def test_a_table_whose_last_commit_was_taken_away(case: StreamCase) -> None:
    last = instants(case)[-1]
    for path in timeline_of(case.table).glob(f"{last}[._]*"):
        path.unlink()
    with pytest.raises(IndexCoverageError, match=f"no longer has commit {last} of this stream"):
        replace(case, conf={"index.bootstrap.enabled": "false"}).run()


def damaged_metadata(case: StreamCase) -> Path:
    """The table says that it has a metadata table, whose folder is empty; the file in which it says so."""
    properties, folder = case.table / ".hoodie" / "hoodie.properties", case.table / ".hoodie" / "metadata"
    if folder.exists():
        shutil.rmtree(folder)
    else:
        properties.write_text(properties.read_text() + "hoodie.table.metadata.partitions=files\n")
    folder.mkdir()
    return properties


def test_a_table_that_is_refused_keeps_its_metadata_table(case: StreamCase) -> None:
    foreign_commit(case, "29990101000000000")
    properties = damaged_metadata(case)
    before = properties.read_text()
    with pytest.raises(IndexCoverageError):
        replace(case, conf={"index.bootstrap.enabled": "false"}).run()
    assert properties.read_text() == before
    assert (case.table / ".hoodie" / "metadata").is_dir()


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.parametrize("conf", [{"hoodie.metadata.enable": "false"}, {}], ids=["not wanted", "damaged"])
def test_a_metadata_table_that_is_not_kept_is_dropped(case: StreamCase, conf: dict[str, str]) -> None:
    damaged_metadata(case)
    assert len(replace(case, conf=conf).run()) == 1
    again = bool(metadata_wanted()) and not conf  # then the job makes another one
    table = HoodieTable.open(str(case.table))
    assert bool(table.config.metadata_partitions) is again
    assert (case.table / ".hoodie" / "metadata").exists() is again
    assert validate_metadata(table) == []


def test_a_checkpoint_of_another_query(tmp_path: Path, spark: SparkSession) -> None:
    case = StreamCase(tmp_path, spark)
    case.checkpoint.mkdir()
    (case.checkpoint / "metadata").write_text(json.dumps({"id": "5b0ea4b0-0b6c-4d42-b0f4-6f4c4f9d1b11"}))
    with pytest.raises(CheckpointError, match="checkpoint of another Spark query"):
        case.run()


def test_a_second_writer_is_told_who_the_first_is(case: StreamCase) -> None:
    storage = open_storage(str(case.table))
    owner = lease.LeaseOwner("other-host", "boot", 4711, 1, "stream orders")
    held = lease.acquire(storage, owner, 2**50, 60_000)
    with pytest.raises(LeaseLostError, match=r"process 4711 on other-host \(stream orders\)"):
        case.run()
    lease.release(storage, held)
    assert len(case.run()) == 1


def begin(case: StreamCase, instant: str, extra: dict[str, str]) -> list[Path]:
    """A pending write; the files it has on the timeline."""
    table = HoodieTable.open(str(case.table))
    protocol.request(table, instant, "commit")
    protocol.inflight(table, instant, "commit", CommitMetadata(extra=extra))
    temp = case.table / ".hoodie" / ".temp" / instant
    return [*timeline_of(case.table).glob(f"{instant}*"), *temp.iterdir()]


@pytest.mark.extended("more kinds of tables", first=("project",))
@pytest.mark.parametrize("whose", ["a run of this project", "a writer that has been silent for long"])
def test_leftovers_of_a_dead_writer_are_rolled_back(case: StreamCase, whose: str) -> None:
    own = whose.startswith("a run")
    files = begin(case, "20990101000000000", {protocol.WRITER_KEY: "{}"} if own else {})
    for path in [] if own else files:
        os.utime(path, (1, 1))
    (report,) = case.run()
    assert report.instant is not None
    assert report.instant > "20990101000000000"
    assert not list(timeline_of(case.table).glob("20990101000000000*"))


@pytest.mark.extended("the same decisions over another real stream")
def test_the_write_of_a_live_writer_is_waited_for_also_at_the_start(
    case: StreamCase, caplog: pytest.LogCaptureFixture
) -> None:
    table, instant = HoodieTable.open(str(case.table)), "20990101000000000"
    begin(case, instant, {})
    metadata = CommitMetadata.build([], {}, json.dumps(ev.AVRO_SCHEMA))
    timer = threading.Timer(1.0, lambda: protocol.complete(table, instant, "commit", metadata))
    timer.start()
    with caplog.at_level("WARNING", "tagstream"):
        (report,) = case.run()
    timer.join()
    assert any("another writer is active" in r.message for r in caplog.records)
    assert report.instant is not None
    assert report.instant > instant
    assert completed_file(case.table, instant).exists()


@pytest.mark.extended("the same decisions over another real stream")
def test_a_commit_whose_files_another_writer_rolled_back_is_read_again(case: StreamCase) -> None:
    assert len(case.run()) == 1
    table = HoodieTable.open(str(case.table))
    last = instants(case)[-1]
    completed = completed_file(case.table, last)
    content = completed.read_bytes()
    completed.unlink()
    begin_again = [completed.with_name(f"{last}.commit.requested"), completed.with_name(f"{last}.inflight")]
    assert all(path.exists() for path in begin_again)
    rollback(table, last, next_instant(0, table.timeline().newest))
    completed.write_bytes(content)  # completed while the other writer was deleting its files
    expected = sorted(read_table(case.table).column("id").to_pylist())
    reports = case.run()
    assert sum(r.records for r in reports) == 300  # files are all read again
    assert not completed.exists()
    assert len(read_table(case.table).column("id").to_pylist()) >= len(expected)
    oracle = ev.oracle(ev.generate(300, ev.Mix(keys=40), seed=8))
    assert sorted(read_table(case.table).column("id").to_pylist()) == sorted(e.key for e in oracle.values())


def test_a_new_column_comes_in_and_a_changed_one_does_not(case: StreamCase) -> None:
    fields = [*ev.AVRO_SCHEMA["fields"], {"name": "note", "type": ["null", "string"], "default": None}]
    case.schema = {**ev.AVRO_SCHEMA, "fields": fields}
    row = ev.Event("new", "p0", 10**9, name="x").row() | {"note": "hello"}
    ev.write_event_file(case.source, 3, json.dumps(row) + "\n", modified=1_700_000_000)
    before = case.run()
    assert len(before) == 2
    rows = {r["id"]: r for r in read_table(case.table).to_pylist()}
    assert rows["new"]["note"] == "hello"
    assert {r["note"] for k, r in rows.items() if k != "new"} == {None}

    narrowed = [{**f, "type": ["null", "float"]} if f["name"] == "amount" else f for f in fields]
    case.schema = {**ev.AVRO_SCHEMA, "fields": narrowed}
    with pytest.raises(ConfigError, match="column 'amount' is float, in the table it is double"):
        case.run()
    case.schema = {**ev.AVRO_SCHEMA, "fields": [f for f in fields if f["name"] != "id"]}
    with pytest.raises(ConfigError, match="'id' is not a column"):
        case.run()


@pytest.mark.extended("the same decisions over another real stream")
def test_a_column_that_only_the_table_has_stays(case: StreamCase, caplog: pytest.LogCaptureFixture) -> None:
    ForeignWriter(case.table, note=True).upsert([ev.Event("theirs", "p0", 1, name="x")])
    with caplog.at_level("WARNING", "tagstream"):
        case.run()
    assert sum("columns that" in r.message and "(note)" in r.message for r in caplog.records) == 1
    rows = {r["id"]: r for r in read_table(case.table).to_pylist()}
    assert rows["theirs"]["note"] == "x"
    assert {r["note"] for k, r in rows.items() if k != "theirs"} == {None}
