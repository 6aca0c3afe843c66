"""A program with a DataFrame of its own, killed at steps of its batches: each row is in the table once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tests.streaming.job import program
from tests.streaming.job.test_upsert import commit_records
from tests.support.hudi_rs import read_table
from tests.support.paths import ROOT
from tests.support.process import Process

pytestmark = [pytest.mark.spark, pytest.mark.platform("killed at each step")]
DEADLINE_S = 240
ONE_KILL = ["completed@2"]
ALL_KILLS = ["delta_durable@1", "files_published@2", "completed@3", "files_written@4", "commit_log@4"]


def start(folder: Path, number: int, batches: int, crash: str) -> Process:
    note = folder / f"run-{number}.note"
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": paths,
        "TAGSTREAM_CRASH": crash,
        "TAGSTREAM_CRASH_NOTE": str(note),
    }
    command = [sys.executable, "-m", "tests.streaming.job.program", str(folder), str(batches)]
    return Process(command, folder / f"run-{number}.log", cwd=ROOT, env=env)


@pytest.mark.extended("processes that are killed, paused or ended; a minute of starts")
@pytest.mark.parametrize("kills", [ONE_KILL, pytest.param(ALL_KILLS, marks=pytest.mark.drill)], ids=["one", "all"])
def test_killed_at_steps_of_its_batches(tmp_path: Path, kills: list[str]) -> None:
    for number, crash in enumerate(kills):
        with start(tmp_path, number, 99, crash) as process:
            code = process.wait(DEADLINE_S)
            assert code == -9, f"{crash}: ended with {code}\n{process.output()[-4000:]}"
            assert (tmp_path / f"run-{number}.note").read_text() == f"{crash}\n"
    with start(tmp_path, len(kills), 7, "") as process:
        assert process.wait(DEADLINE_S) == 0, process.output()[-4000:]
    done = [record["batch_id"] for record in commit_records(tmp_path / "table")]
    assert done == list(range(len(done))) and len(done) >= 7
    last = {value * 13 % program.KEYS: value for value in range(program.ROWS * len(done))}
    expected = sorted((key, f"p{value * 7 % 4}", value) for key, value in last.items() if value % 11)
    found = read_table(tmp_path / "table", meta_columns=False)
    assert sorted(zip(*(found[name].to_pylist() for name in ("id", "part", "ts")), strict=True)) == expected
    assert validate(HoodieTable.open(str(tmp_path / "table"))) == []
