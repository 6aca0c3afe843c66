"""The program of docs/dataframes.md, run twice; only its wait is longer where the machine is slow."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.streaming.frame.test_upsert import commit_records
from tests.support.hudi_rs import read_table
from tests.support.paths import ROOT
from tests.support.process import Process

pytestmark = pytest.mark.spark
ROWS_A_SECOND = 50
WAIT = "query.awaitTermination(20)"
UNTIL_ROWS = "while not any(batch.numInputRows for batch in query.recentProgress): query.awaitTermination(1)"


@pytest.mark.extended("a program of the documentation as printed, in a process")
def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "dataframes.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    program = tmp_path / "example.py"
    assert code.count(WAIT) == 1
    program.write_text(code.replace(WAIT, UNTIL_ROWS))
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    before = 0
    for run in range(2):
        command = [sys.executable, str(program), str(tmp_path / "out")]
        with Process(command, tmp_path / f"run-{run}.log", cwd=tmp_path, env=env) as process:
            assert process.wait(240) == 0, process.output()[-4000:]
            told = process.output()
        for line in ("opening the table", "batch 0 begins" if run == 0 else "begins", "records in", "has ended: "):
            assert re.search(f"INFO tagstream: .*{line}", told), f"{line}: a log that is silent\n{told}"
        assert "FOREACH_BATCH_USER_FUNCTION_ERROR" not in told and "Traceback" not in told, told
        done = commit_records(tmp_path / "out" / "readings")
        (seconds,) = done[-1]["end_offsets"]["sources"]
        count = ROWS_A_SECOND * int(seconds)
        assert count > before
        before = count
        newest = {number % 10: number for number in range(count)}
        expected = sorted((key, f"room {key % 3}", n) for key, n in newest.items() if n % 7)
        found = read_table(tmp_path / "out" / "readings", meta_columns=False)
        columns = (found[name].to_pylist() for name in ("device", "room", "number"))
        assert sorted(zip(*columns, strict=True)) == expected
