"""The command as a person meets it: wrong inputs give one clear line and an exit code, signals end it in order."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from tagstream.streaming.job.main import main
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import TableConfig
from tests.drills.stream_job import DEADLINE_S, PROJECT, StreamJob, chunks_of
from tests.support import events as ev
from tests.support.process import Process
from tests.support.table_version import table_version, timeline_of


def arguments(folder: Path, **conf: str) -> list[str]:
    """A right command line on files, with the keys of ``conf`` over it."""
    (folder / "in").mkdir(exist_ok=True)
    (folder / "event.avsc").write_text(json.dumps(ev.AVRO_SCHEMA))
    properties = {
        **ev.properties(),
        "hoodie.base.path": str(folder / "table"),
        "hoodie.table.name": "events",
        "hoodie.streamer.source.dfs.root": str(folder / "in"),
        "hoodie.streamer.schemaprovider.source.schema.file": str(folder / "event.avsc"),
        **conf,
    }
    pairs = [part for key, value in properties.items() for part in ("--hoodie-conf", f"{key}={value}")]
    return ["--checkpoint-dir", str(folder / "checkpoint"), "--source-class", "JsonDFSSource", *pairs]


def fails(argv: list[str], capsys: pytest.CaptureFixture[str], code: int) -> str:
    """The one line that a wrong command prints."""
    assert main(argv) == code
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("tagstream: error: ")]
    assert len(lines) == 1
    return lines[0]


def an_existing_table(folder: Path, **changes: object) -> None:
    config = {"name": "events", "record_key_fields": ("id",), "partition_fields": ("part",), "ordering_fields": ("ts",)}
    HoodieTable.create(str(folder / "table"), TableConfig(version=table_version(), **{**config, **changes}), 0)  # type: ignore[arg-type]
    (folder / "table" / "p0").mkdir()  # somebody has written: an empty table would take the job's settings


def test_a_source_folder_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = arguments(tmp_path, **{"hoodie.streamer.source.dfs.root": str(tmp_path / "nowhere")})
    assert "nowhere does not exist; correct hoodie.streamer.source.dfs.root" in fails(argv, capsys, 1)
    assert not (tmp_path / "table").exists()


def test_a_target_folder_that_holds_something_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "notes.txt").write_text("mine")
    assert "has files but is not a Hudi table" in fails(arguments(tmp_path), capsys, 1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"record_key_fields": ("name",)}, "hoodie.datasource.write.recordkey.field=name, but the job has id"),
        ({"table_type": "MERGE_ON_READ"}, "hoodie.datasource.write.table.type=MERGE_ON_READ"),
        ({"partition_fields": ("name",)}, "hoodie.datasource.write.partitionpath.field=name"),
        ({"ordering_fields": ("amount",)}, "hoodie.table.ordering.fields=amount"),
        ({"name": "other"}, "hoodie.table.name=other"),
    ],
)
def test_a_table_that_is_another_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, object], words: str
) -> None:
    an_existing_table(tmp_path, **changes)
    argv = arguments(tmp_path, **{"hoodie.datasource.write.table.type": "COPY_ON_WRITE"})
    assert words in fails(argv, capsys, 1)


def test_a_broker_that_does_not_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:  # bound and not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{taken.getsockname()[1]}"
        topic = {"bootstrap.servers": server, "hoodie.streamer.source.kafka.topic": "t"}
        argv = [*arguments(tmp_path, **topic), "--source-class", "JsonKafkaSource"]
        line = fails(argv, capsys, 1)
    assert f"no Kafka broker answers: {server}" in line
    assert "check bootstrap.servers" in line


def test_a_key_field_the_schema_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = arguments(tmp_path, **{"hoodie.datasource.write.recordkey.field": "order_id"})
    assert "record key field 'order_id' is not a column" in fails(argv, capsys, 2)
    assert not (tmp_path / "table").exists()


def test_a_schema_file_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = arguments(tmp_path)
    (tmp_path / "event.avsc").write_text("{")
    assert "event.avsc can't be used: the Avro schema is not JSON" in fails(argv, capsys, 2)


def test_an_option_that_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "index.state.tll" in fails(arguments(tmp_path, **{"index.state.tll": "1"}), capsys, 2)


def metrics(port: int) -> dict[str, float]:
    """What the job's Prometheus page says, by name; labels are left out."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
        lines = page.read().decode().splitlines()
    return {
        line.split("{")[0].split(" ")[0]: float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")
    }


def health(port: int) -> str:
    """What an orchestrator is told; nothing while nobody listens."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as page:
            return str(page.read().decode())
    except OSError:
        return ""


@pytest.mark.extended("processes that are killed, paused or ended; a minute of starts")
@pytest.mark.spark
def test_sigterm_to_all_processes_at_once_is_no_failure(tmp_path: Path) -> None:
    """As a terminal, `timeout` and some supervisors send it: the JVM ends before the driver does."""
    job = StreamJob(tmp_path, "COPY_ON_WRITE", chunks_of(list(ev.generate(200, ev.Mix(keys=60), seed=2)), 200))
    job.write_input(0, 1)
    with job.start("--continuous") as process:
        process.wait_for(lambda: len(job.commits()) == 1, DEADLINE_S, "a commit")
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0, process.output()[-3000:]
        assert "tagstream: error" not in process.output()
        assert process.output().count("end of run: batches 1, records 200") == 1
    assert job.check() == 1


@pytest.mark.extended("a process of its own")
@pytest.mark.spark
def test_sigterm_ends_a_continuous_job_after_its_batch_with_exit_code_0(tmp_path: Path) -> None:
    job = StreamJob(tmp_path, "COPY_ON_WRITE", chunks_of(list(ev.generate(600, ev.Mix(keys=60), seed=2)), 200))
    job.write_input(0, 2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with job.start("--continuous", "--metrics-port", str(port)) as process:  # the older name of --status-port
        process.wait_for(
            lambda: health(port).startswith("starting: "), DEADLINE_S, "an answer before Spark has started"
        )
        process.wait_for(lambda: len(job.commits()) == 2, DEADLINE_S, "two commits")
        job.write_input(2, 3)
        process.wait_for(lambda: len(job.commits()) == 3, DEADLINE_S, "the commit of a file that came later")
        process.wait_for(lambda: metrics(port).get("tagstream_records_total") == 600, 30, "metrics of the batches")
        assert metrics(port)["tagstream_index_keys"] > 0
        process.send(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0, process.output()[-3000:]
        assert "end of run: batches 3, records 600" in process.output()
    assert job.check() == 3
    with job.start("--status-port", str(port)) as process:
        process.wait_for(
            lambda: (
                health(port).startswith("starting: starting Spark")
                and "tagstream_last_commit_age_seconds" in metrics(port)
            ),
            DEADLINE_S,
            "the age of the last commit before Spark has started",
        )
    assert not list(timeline_of(job.table).glob("*.inflight.*"))
    logged = {p.name for p in (job.checkpoint / "commits").iterdir() if p.name.isdigit()}
    assert logged == {"0", "1", "2"}


@pytest.mark.spark
def test_a_spark_that_does_not_start_leaves_nothing(tmp_path: Path) -> None:
    argv = arguments(tmp_path, **{"spark.driver.memory": "nonsense"})
    before = sorted(p.name for p in tmp_path.iterdir())
    log = tmp_path.with_suffix(".log")
    with Process([sys.executable, PROJECT / "run_stream.py", *argv], log, cwd=tmp_path) as process:
        assert process.wait(DEADLINE_S) == 1, process.output()[-3000:]
    last = process.output().splitlines()[-1]
    assert last.startswith(
        "tagstream: error: Spark's JVM ended before it was ready, and its message is above; check JAVA_HOME"
    )
    assert "-Xmxnonsense" in process.output()
    assert sorted(p.name for p in tmp_path.iterdir()) == before


@pytest.mark.extended("processes that are killed, paused or ended; a minute of starts")
@pytest.mark.spark
def test_spark_submit_runs_the_same_job(tmp_path: Path) -> None:
    job = StreamJob(tmp_path, "MERGE_ON_READ", chunks_of(list(ev.generate(300, ev.Mix(keys=60), seed=6)), 150))
    job.write_input()
    submit = [Path(sys.executable).with_name("spark-submit"), "--master", "local[2,4]", "--driver-memory", "1g"]
    log = tmp_path / "submit.log"
    env = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
    }  # else the script looks for pyspark beside the PATH's python3
    with Process([*submit, PROJECT / "run_stream.py", *job.arguments()], log, cwd=tmp_path, env=env) as process:
        assert process.wait(DEADLINE_S) == 0, process.output()[-4000:]
        told = [line for line in process.output().splitlines() if " INFO " in line and " INFO tagstream: " not in line]
    assert len(told) <= 60, "Spark's own lines are kept to warnings once its context is there"
    assert job.check() == 2


@pytest.mark.extended("processes that are killed, paused or ended; a minute of starts")
@pytest.mark.spark
def test_a_run_says_what_matters_and_bad_records_give_one_line_without_a_trace(tmp_path: Path) -> None:
    job = StreamJob(tmp_path, "COPY_ON_WRITE", chunks_of(list(ev.generate(200, ev.Mix(keys=60), seed=6)), 100))
    job.write_input(0, 1)
    first = job.finish()
    assert "at their defaults" in first
    assert "(default)" not in first
    job.write_input(1, 2)
    (tmp_path / "in" / "z.json").write_text("rubbish\n")
    os.utime(tmp_path / "in" / "z.json", (1_700_000_000, 1_700_000_000))
    with job.start() as process:
        assert process.wait(DEADLINE_S) == 1
        told = process.output()
    lines = told.splitlines()
    assert "tagstream quarantine list --checkpoint-dir" in lines[-1]
    assert lines[-1].startswith("tagstream: error: 1 bad records in batch 2")
    for chatter in ("Traceback", "loadedMaps", "\tat ", "Caused by", "py4j"):
        assert chatter not in told, told
    after_options = lines[next(n for n, line in enumerate(lines) if line.endswith("at their defaults")) + 1 :]
    assert len(after_options) < 15, told
    last = job.finish("--commit-on-errors")
    assert "1 bad records were left out and are in" in last
    assert "loadedMaps" not in last
