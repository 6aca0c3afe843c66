"""Tables in which the later event to arrive wins: their own property says so, or they have no ordering field."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.job.main import main
from tagstream.streaming.job.table_match import check_options
from tagstream.streaming.options.cli import load_options
from tagstream.streaming.source.source_checks import check_order, order_notes
from tagstream.table.errors import ConfigError, TableConfigMismatchError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import PAYLOAD_KEY, TableConfig
from tagstream.table.read.snapshot import read_snapshot
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.public_tables import unpack

COMMIT_TIME = "rs_mor_v9_mor_8i4u_commit_time"


def _write(case: StreamCase, number: int, *rows: dict[str, object], modified: int) -> None:
    case.source.mkdir(parents=True, exist_ok=True)
    ev.write_event_file(case.source, number, "".join(json.dumps(r) + "\n" for r in rows), modified=modified)


def _names(case: StreamCase) -> dict[str, str]:
    rows = read_snapshot(HoodieTable.open(str(case.table)), columns=["_hoodie_record_key", "name"]).to_pylist()
    return {row["_hoodie_record_key"]: row["name"] for row in rows}


@pytest.mark.spark
def test_commit_time_decides_whatever_the_ordering_field_holds(tmp_path: Path, spark: SparkSession) -> None:
    """An event with a smaller ordering value was dropped as late before, and nothing told of it."""
    case = StreamCase(tmp_path / "job", spark, existing=unpack(COMMIT_TIME, tmp_path))
    old = {"id": 6, "age": 1, "ts": "0", "city": "chi"}
    _write(case, 0, {**old, "name": "first"}, modified=1_700_000_000)
    _write(case, 1, {**old, "name": "second", "ts": "9"}, {**old, "name": "third", "ts": "1"}, modified=1_700_000_001)
    reports = case.run()
    assert [(r.updates, r.late) for r in reports] == [(1, 0), (1, 0)]
    assert _names(case)["6"] == "third"


@pytest.mark.spark
def test_files_count_in_the_order_of_their_modification_times(tmp_path: Path, spark: SparkSession) -> None:
    """In one batch, whatever their names are; a table without an ordering field was a dead end for files."""
    case = StreamCase(tmp_path / "job", spark, existing=unpack("hudi_hudi-v8-table-cow", tmp_path))
    row = {"id": "id6", "ts": 1, "partition": "2023-01-01"}
    _write(case, 0, {**row, "name": "newest"}, modified=1_700_000_003)
    _write(case, 1, {**row, "name": "oldest"}, modified=1_700_000_001)
    _write(case, 2, {**row, "name": "one line"}, {**row, "name": "the next"}, modified=1_700_000_002)
    (report,) = case.run("--source-limit", "1000000")
    assert (report.updates, report.late) == (1, 0)
    assert _names(case)["id6"] == "newest"


def _options(folder: Path, place: Path, *conf: str) -> list[str]:
    (folder / "in").mkdir(exist_ok=True)
    words = [w for x in (f"hoodie.streamer.source.dfs.root={folder / 'in'}", *conf) for w in ("--hoodie-conf", x)]
    at = ["--target-base-path", str(place), "--checkpoint-dir", str(folder / "c"), "--source-class", "JsonDFSSource"]
    return [*at, *words]


def test_a_dry_run_tells_what_orders_the_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = unpack(COMMIT_TIME, tmp_path)
    assert main([*_options(tmp_path, place), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "the one that arrives later wins, whatever the value of its ordering field ts" in " ".join(said.split())
    assert "files count in the order of their modification times" in " ".join(said.split())


def test_a_merge_mode_that_the_table_has_not_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = unpack("hudi_hudi-v8-table", tmp_path)
    argv = _options(tmp_path, place, "hoodie.write.record.merge.mode=COMMIT_TIME_ORDERING")
    assert main([*argv, "--dry-run"]) == 1
    assert "has hoodie.record.merge.mode=EVENT_TIME_ORDERING, but the job has COMMIT" in capsys.readouterr().err


def test_a_refusal_does_not_contradict_itself(tmp_path: Path) -> None:
    """Rows of a DataFrame have no order, and the table that is there has no field to give one."""
    options = load_options(_options(tmp_path, tmp_path / "t"))
    object.__setattr__(options.source, "kind", "frame")

    class Reads:
        ordering_kind = "none"

    own = TableConfig("t", raw={"hoodie.table.name": "t"})
    with pytest.raises(ConfigError, match="table t has no ordering field: send the records as files or to a topic"):
        check_order(options, own, Reads())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"set hoodie\.table\.ordering\.fields"):
        check_order(options, TableConfig("t"), Reads())  # type: ignore[arg-type]


def test_nothing_is_said_where_a_field_decides(tmp_path: Path) -> None:
    config = HoodieTable.open(str(unpack("hudi_hudi-v8-table", tmp_path))).config
    (field,) = config.deciding_fields
    options = load_options(_options(tmp_path, tmp_path / "t"))
    assert order_notes(options, config, "int64", pa.schema([(field, pa.int64())])) == ()
    (text,) = order_notes(options, config, "bytes", pa.schema([(field, pa.string())]))
    assert text.startswith(
        f"ordering field {field} is a text, and texts are compared character by character: '9' counts as newer"
    )


def _version_6(**more: str) -> TableConfig:
    own = {"hoodie.table.name": "t", "hoodie.table.version": "6", "hoodie.table.precombine.field": "ts"}
    return TableConfig.from_properties(own | more)


def test_version_6_says_where_hudi_would_overwrite_a_newer_row(tmp_path: Path) -> None:
    """Version 6 has no merge mode: its ordering field decides here, whatever the payload class of its writer did."""
    options, schema = load_options(_options(tmp_path, tmp_path / "t")), pa.schema([("ts", pa.int64())])
    latest = "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"
    for payload, named in ((latest, "OverwriteWithLatestAvroPayload"), ("", "none")):
        config = _version_6(**{PAYLOAD_KEY: payload})
        (note,) = order_notes(options, config, "column", schema)
        assert f"is of version 6 and its {PAYLOAD_KEY} is {named}" in note
        assert "this job keeps the row with the greater ts" in note
    by_event = _version_6(**{PAYLOAD_KEY: "org.apache.hudi.common.model.DefaultHoodieRecordPayload"})
    assert order_notes(options, by_event, "column", schema) == ()


def test_a_merge_mode_that_version_6_cannot_have_is_refused(tmp_path: Path) -> None:
    """It had no effect before, and nothing said so."""
    options = load_options(_options(tmp_path, tmp_path / "t", "hoodie.write.record.merge.mode=COMMIT_TIME_ORDERING"))
    with pytest.raises(TableConfigMismatchError, match="has the ordering field ts and no merge mode"):
        check_options(options, _version_6())
