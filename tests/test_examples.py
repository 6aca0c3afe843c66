"""The programs of ``examples/``, run as they are, each against what it must come to."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import tagstream
from tests.streaming.job.test_upsert import commit_records
from tests.support.hudi_rs import read_table
from tests.support.kafka_broker import KafkaBroker
from tests.support.paths import ROOT
from tests.support.process import Process

EXAMPLES = ROOT / "examples"
ROWS_A_SECOND = 50
WAIT = "query.awaitTermination(20)"
UNTIL_ROWS = "while not any(batch.numInputRows for batch in query.recentProgress): query.awaitTermination(1)"


def environment() -> dict[str, str]:
    """A reader's: the package is found, and no variable says which Python Spark's workers run."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    return {**env, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}


def run(program: Path, *arguments: object, cwd: Path) -> str:
    command = [sys.executable, str(program), *map(str, arguments)]
    with Process(command, cwd / "program.log", cwd=cwd, env=environment()) as process:
        assert process.wait(240) == 0, process.output()[-4000:]
        return process.output()


def test_every_example_is_listed_and_run() -> None:
    files = {path.name for path in EXAMPLES.iterdir() if path.name != "README.md"}
    assert set(re.findall(r"^\| \[([\w.]+)\]\(\1\)", (EXAMPLES / "README.md").read_text("utf-8"), flags=re.M)) == files
    mine = Path(__file__).read_text("utf-8")
    assert [name for name in sorted(files) if f'EXAMPLES / "{name}"' not in mine] == []


def test_the_page_shows_the_program_that_is_run() -> None:
    page = (ROOT / "docs" / "guide" / "dataframes.md").read_text("utf-8")
    program = (EXAMPLES / "dataframe.py").read_text("utf-8")
    (shown, *_) = re.findall(r"^```python\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    assert program.partition('"""\n\n')[2] == shown


@pytest.mark.spark
@pytest.mark.extended("programs as printed, in processes")
def test_a_dataframe_twice_and_read_with_duckdb(tmp_path: Path) -> None:
    text = (EXAMPLES / "dataframe.py").read_text("utf-8")
    assert text.count(WAIT) == 1
    program = tmp_path / "example.py"
    program.write_text(text.replace(WAIT, UNTIL_ROWS))  # where a machine is slow, 20 seconds may be too short
    before = 0
    for number in range(2):
        told = run(program, tmp_path / "out", cwd=tmp_path)
        for line in ("opening the table", "begins" if number else "batch 0 begins", "records in", "has ended: "):
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
    said = run(EXAMPLES / "read_duckdb.py", tmp_path / "out" / "readings", cwd=tmp_path)
    assert "<tagstream.Table readings at" in said and re.search(r"room 0 +│ +[1-4] │", said), said
    rows = len(tagstream.open_table(tmp_path / "out" / "readings").scan().to_arrow())
    assert 0 < int(re.findall(r"after the first commit: (\d+)", said)[0]) <= rows


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.extended("a broker, and a program as printed")
def test_orders_of_a_topic_joined_with_a_file(tmp_path: Path, kafka_broker: KafkaBroker) -> None:
    from kafka import KafkaProducer

    def order(number: int, customer: int, amount: float, changed: int, **more: Any) -> dict[str, Any]:
        return {"id": f"o-{number}", "customer": customer, "amount": amount, "changed": changed, **more}

    sent = [order(1, 4, 9.5, 1), order(2, 0, 3.0, 1), order(1, 4, 11.5, 3), order(1, 4, 10.0, 2), order(3, 99, 1.0, 1),
            order(2, 0, 3.0, 2, cancelled=True)]  # fmt: skip
    broker, topic = kafka_broker, "orders-of-an-example"
    broker.create_topic(topic, partitions=2)
    producer = KafkaProducer(bootstrap_servers=broker.address())
    for row in sent:
        producer.send(topic, key=row["id"].encode(), value=json.dumps(row).encode())
    producer.flush()
    jars = tmp_path / "jars"
    with Process(
        [sys.executable, "-m", "tagstream", "fetch-jars", "--kafka", "--out", str(jars)],
        tmp_path / "jars.log",
        cwd=tmp_path,
        env=environment(),
    ) as process:
        assert process.wait(240) == 0, process.output()
    said = run(EXAMPLES / "kafka_join.py", broker.address(), topic, tmp_path / "out", jars, cwd=tmp_path)
    rows = [line.split() for line in said.splitlines() if line.lstrip().startswith("o-")]
    assert rows == [["o-1", "DE", "11.5"], ["o-3", "unknown", "1.0"]]


@pytest.mark.spark
@pytest.mark.extended("a notebook's kernel with a Spark of its own")
def test_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PYSPARK")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    notebook = nbformat.read(EXAMPLES / "orders.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "results are not kept: they would be old ones"
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    tables = [
        output["data"]["text/plain"]
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if output["output_type"] == "execute_result"
    ]
    found = [sorted(re.findall(r"o-\d|new|sent", table)) for table in tables]
    assert found == [["new", "new", "o-1", "o-2"], ["new", "o-1", "o-3", "sent"], ["new", "new", "o-1", "o-2"],
                     ["new", "o-1", "o-3", "sent"]]  # fmt: skip


@pytest.mark.spark
@pytest.mark.extended("spark-submit as printed")
def test_spark_submit(tmp_path: Path) -> None:
    for name in (".venv", "examples", "tagstream", "conf", "run_stream.py", "streaming", "state", "bootstrap"):
        (tmp_path / name).symlink_to(sys.prefix if name == ".venv" else ROOT / name)
    # The script goes to the folder above its own, which a link does not lead out of.
    script = (EXAMPLES / "spark_submit.sh").read_text("utf-8").replace('cd "$(dirname "$0")/.."', f"cd {tmp_path}")
    (tmp_path / "script.sh").write_text(script)
    env = {**environment(), "PYTHONPATH": ""}
    with Process(
        ["sh", str(tmp_path / "script.sh"), str(tmp_path / "out")], tmp_path / "log", cwd=tmp_path, env=env
    ) as p:
        assert p.wait(240) == 0, p.output()[-4000:]
        assert re.search(r"o-1 +2026-01-06 +9 +sent", p.output()), p.output()[-2000:]
