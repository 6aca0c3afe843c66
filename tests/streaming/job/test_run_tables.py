"""Three tables in one job: one of them is in trouble, the others are not."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.drills.stream_job import PROJECT
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table
from tests.support.process import Process

pytestmark = pytest.mark.spark
DEADLINE_S = 300


@pytest.mark.extended("processes that are killed, paused or ended; a minute of starts")
def test_one_tables_trouble_does_not_stop_the_others(tmp_path: Path) -> None:
    events = {name: list(ev.generate(300, ev.Mix(keys=40), seed=n)) for n, name in enumerate(("a", "b", "c"))}
    (tmp_path / "conf").mkdir()
    (tmp_path / "event.avsc").write_text(json.dumps(ev.AVRO_SCHEMA))
    for name, sent in events.items():
        ev.write_files(sent[:150], tmp_path / "in" / name, 150)
        own = {"hoodie.streamer.source.dfs.root": tmp_path / "in" / name}
        text = "".join(f"{key}={value}\n" for key, value in own.items())
        (tmp_path / "conf" / f"db_{name}_config.properties").write_text(text)
    (tmp_path / "in" / "b" / "events-00009.json").write_text("rubbish\n")
    common = {
        "hoodie.streamer.ingestion.tablesToBeIngested": "db.a,db.b,db.c",
        **ev.properties(),
        "hoodie.streamer.schemaprovider.source.schema.file": tmp_path / "event.avsc",
        "spark.sql.shuffle.partitions": 2,
        "index.local.dir": tmp_path / "local",
        "spark.driver.memory": "1g",
    }
    (tmp_path / "common.properties").write_text("".join(f"{key}={value}\n" for key, value in common.items()))
    command = [
        sys.executable, PROJECT / "run_stream.py", "--props", tmp_path / "common.properties", "--config-folder",
        tmp_path / "conf", "--base-path-prefix", tmp_path / "tables", "--checkpoint-dir", tmp_path / "checkpoints",
        "--source-class", "JsonDFSSource", "--table-type", "MERGE_ON_READ", "--source-limit", "1",
    ]  # fmt: skip
    with Process(command, tmp_path / "run-1.log", cwd=tmp_path) as process:
        code = process.wait(DEADLINE_S)
        assert code == 1, process.output()[-4000:]
        assert "1 of 3 tables have failed: db.b: 1 bad records" in process.output()
    for name in ("a", "c"):
        is_oracles(tmp_path / "tables" / "db" / name, events[name][:150])

    for name, sent in events.items():
        ev.write_files(sent[150:], tmp_path / "in" / name, 150, first=1)
    with Process([*command, "--commit-on-errors"], tmp_path / "run-2.log", cwd=tmp_path) as process:
        assert process.wait(DEADLINE_S) == 0, process.output()[-4000:]
    for name, sent in events.items():
        is_oracles(tmp_path / "tables" / "db" / name, sent)


def is_oracles(table: Path, events: list[ev.Event]) -> None:
    expected = ev.rows(ev.oracle(events).values())
    assert not (wrong := compare(expected, read_table(table, meta_columns=False), ["id"])), wrong
