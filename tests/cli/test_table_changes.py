"""``tagstream table changes``: what it shows and writes is what the reader gives."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tagstream.table.file_group.change_file import LoggingMode
from tagstream.table.meta_client.table_config import COPY_ON_WRITE
from tests.cli.running import run, run_json
from tests.support.changes import change, of_ours
from tests.table.writer import Writer, row


def test_changes_are_shown_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE, settings={"change_logging": LoggingMode.DATA_BEFORE_AFTER})
    old, new = row(1, "p0", 1), row(1, "p0", 2, "new")
    first = writer.write([old, row(2, "p0", 1)])
    last = writer.write([new], ["k2"])
    table = ("table", "changes", "--target-base-path", tmp_path / "t")
    wanted = sorted([change("u", last, old, new), change("d", last, row(2, "p0", 1), None)])
    since = writer.table.timeline().completion_time(first)
    shown = run_json(*table, "--since", since)
    assert sorted(change(r["op"], r["ts_ms"], r["before"], r["after"]) for r in shown["changes"]) == wanted
    assert shown["more"] is False
    assert len(run_json(*table, "--limit", 1)["changes"]) == 1
    assert "no changes" in run(*table, "--since", last + "9")
    run(*table, "--since", since, "--out", tmp_path / "c.parquet")
    assert of_ours(pq.read_table(tmp_path / "c.parquet")) == wanted
    run(*table, "--out", tmp_path / "c.parquet", code=1)
    assert "c.parquet exists; give another --out" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["c.parquet"]
    assert run_json(*table, "--until", since)["changes"][0]["op"] == "i"
