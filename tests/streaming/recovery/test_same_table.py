"""A checkpoint is one table's: another table is refused before anything is changed, a moved one goes on."""

from __future__ import annotations

import io
import json
import os
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.errors import CheckpointError
from tagstream.streaming.job.dry_run import explain_start
from tagstream.streaming.options.cli import load_options
from tagstream.table.meta_client.properties import table_checksum, update_properties
from tagstream.table.storage.opening import open_storage
from tests.cli.running import run
from tests.cli.running import state_of as files_of
from tests.streaming.recovery.test_takeover import is_oracles
from tests.streaming.stream_case import StreamCase, now_ms
from tests.support import events as ev

pytestmark = pytest.mark.spark
EVENTS = list(ev.generate(300, ev.Mix(keys=40), seed=71))


def streamed(folder: Path, spark: SparkSession) -> StreamCase:
    """A stream that has taken a hundred events."""
    case = StreamCase(folder, spark)
    ev.write_files(EVENTS[:100], case.source, 100)
    case.run()
    return case


def meta(case: StreamCase) -> dict:
    return json.loads((case.checkpoint / "tagstream" / "meta.json").read_text())


@pytest.mark.extended("the same decisions over another real stream")
def test_another_table_is_refused_and_nothing_is_changed(tmp_path: Path, spark: SparkSession) -> None:
    a, b = streamed(tmp_path / "a", spark), streamed(tmp_path / "b", spark)
    assert meta(a)["table"] == {"name": "events", "path": str(a.table), "checkpoint": str(a.checkpoint)}
    folders = [folder for case in (a, b) for folder in (case.table, case.checkpoint)]
    before = files_of(*folders)
    wrong = ("--checkpoint-dir", str(a.checkpoint))
    belongs = f"checkpoint {a.checkpoint} belongs to table events at {a.table}, not to "
    with pytest.raises(
        CheckpointError, match=f"{belongs}table events at {b.table}. Set --checkpoint-dir to this table's"
    ):
        b.run(*wrong)
    with pytest.raises(CheckpointError, match=f"{belongs}{tmp_path}/c, where there is no table"):
        b.run(*wrong, "--target-base-path", str(tmp_path / "c"))
    with pytest.raises(CheckpointError, match=belongs):
        b.bootstrap(*wrong)
    with pytest.raises(CheckpointError, match=belongs):
        explain_start(load_options(b.arguments(*wrong, "--dry-run")), io.StringIO(), os.environ, now_ms())
    run("rescale", *wrong, "--target-base-path", b.table, "--to-checkpoint-dir", tmp_path / "d", "--key-groups", 3,
        code=1)  # fmt: skip
    assert files_of(*folders) == before
    assert not (tmp_path / "c").exists() and not (tmp_path / "d").exists()
    ev.write_files(EVENTS[100:], a.source, 100, first=1)
    assert [r.batch_id for r in a.run()] == [1, 2]
    is_oracles(a, EVENTS)


def test_a_moved_table_goes_on_and_its_copy_does_not(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    case = streamed(tmp_path, spark)
    moved = tmp_path / "moved"
    case.table.rename(moved)
    ev.write_files(EVENTS[100:], case.source, 100, first=1)
    at = ("--target-base-path", str(moved))
    said = io.StringIO()
    explain_start(load_options(case.arguments(*at, "--dry-run")), said, os.environ, now_ms())
    assert "taken over: checkpoint" in said.getvalue()
    assert [r.batch_id for r in case.run(*at)] == [1, 2]
    assert f"was written for table events at {case.table}; table events at {moved} has its commits" in caplog.text
    assert meta(case)["table"]["path"] == str(moved)
    os.symlink(moved, tmp_path / "link")  # another way to the same place
    assert case.run("--target-base-path", str(tmp_path / "link")) == []
    assert meta(case)["table"]["path"] == str(tmp_path / "link")
    shutil.copytree(moved, case.table)
    with pytest.raises(CheckpointError, match=f"belongs to table events at {tmp_path}/link, not to table events at"):
        case.run()
    is_oracles(case, EVENTS)


def test_a_renamed_table_goes_on(tmp_path: Path, spark: SparkSession) -> None:
    case = streamed(tmp_path, spark)
    names = {"hoodie.table.name": "facts", "hoodie.table.checksum": table_checksum("", "facts")}
    update_properties(open_storage(str(case.table)), names, 1)
    assert case.run("--target-table", "facts") == []
    assert meta(case)["table"]["name"] == "facts"


def test_an_index_that_was_loaded_goes_with_its_table(tmp_path: Path, spark: SparkSession) -> None:
    case = streamed(tmp_path, spark)
    shutil.rmtree(case.checkpoint)
    case.bootstrap()
    assert meta(case)["table"]["path"] == str(case.table)
    other = streamed(tmp_path / "other", spark)
    with pytest.raises(CheckpointError, match="belongs to table events"):
        other.run("--checkpoint-dir", str(case.checkpoint))
    moved = tmp_path / "moved"
    case.table.rename(moved)
    with pytest.raises(CheckpointError, match="belongs to table events"):  # the old place is empty, but so it stays
        other.run("--checkpoint-dir", str(case.checkpoint))
    case.bootstrap("--target-base-path", str(moved))
    assert meta(case)["table"]["path"] == str(moved)


def test_a_checkpoint_of_an_earlier_version_is_taken_over_and_an_empty_one_goes_anywhere(
    tmp_path: Path, spark: SparkSession
) -> None:
    case = streamed(tmp_path, spark)
    path = case.checkpoint / "tagstream" / "meta.json"
    doc = meta(case)
    path.write_text(json.dumps({**{k: v for k, v in doc.items() if k != "table"}, "version": 1}))
    assert case.run() == []
    assert meta(case) == doc
    new = StreamCase(tmp_path / "new", spark)
    assert new.run() == []
    new.table.rename(tmp_path / "typo")
    assert new.run() == []
