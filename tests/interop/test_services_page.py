"""The commands of docs/operations/services.md, as printed, by real Hudi while a stream is between two batches."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.peers import home as peers
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table
from tests.support.paths import ROOT

pytestmark = [pytest.mark.hudi_jar, pytest.mark.spark]
PAGE = ROOT / "docs" / "operations" / "services.md"
RELEASE = "0.15.0"
BATCHES, PER_BATCH = 36, 20


def block(kind: str) -> str:
    of_kind = re.findall(rf"^```{kind}\n(.*?)^```", PAGE.read_text("utf-8"), flags=re.S | re.M)
    (found,) = (text for text in of_kind if kind != "sh" or "spark-sql" in text)
    return str(found)


def run_page(table: Path, folder: Path, table_type: str) -> str:
    """The page's file and command, but for the table's path and where the jar comes from."""
    folder.mkdir()
    assert "'/data/orders'" in block("sql")
    lines = block("sql").replace("/data/orders", str(table)).splitlines()
    if table_type == "COPY_ON_WRITE":  # as the page says
        lines = [line for line in lines if "run_compaction" not in line]
    (folder / "services.sql").write_text("\n".join(lines) + "\n")
    package = f"--packages org.apache.hudi:hudi-spark3.5-bundle_2.12:{RELEASE}"
    assert package in block("sh")
    command = block("sh").replace(package, f"--jars {peers.bundle(RELEASE)} --conf spark.ui.enabled=false")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
    env |= {"PATH": f"{peers.python().parent}:{env['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(["sh", "-c", command], cwd=folder, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-6000:]
    return done.stdout


@pytest.mark.table_versions(6)  # Hudi 0.15, which the page shows, knows no other
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_the_page_keeps_a_streamed_table_small(tmp_path: Path, spark: SparkSession, table_type: str) -> None:
    peers.set_up()
    off = {
        "hoodie.datasource.write.streaming.disable.compaction": "true", "hoodie.clean.automatic": "false",
        "hoodie.archive.automatic": "false",
    }  # fmt: skip
    case = StreamCase(tmp_path / "case", spark, table_type, off)
    events = list(ev.generate(BATCHES * PER_BATCH, ev.Mix(keys=60, tombstones=0.0), seed=17))
    told = 0
    for number, batches in enumerate((BATCHES - 2, 1, 1)):
        if number:
            run_page(case.table, tmp_path / f"services-{number}", table_type)
        more = events[told : told + batches * PER_BATCH]
        ev.write_files(more, case.source, PER_BATCH, first=told // PER_BATCH)
        told += len(more)
        assert len(case.run("--source-limit", "1")) == batches  # one file a batch
    wrong = compare(ev.rows(ev.oracle(events).values()), read_table(case.table, meta_columns=False), ["id"])
    assert not wrong
    table = HoodieTable.open(str(case.table))
    assert validate(table) == []
    actions = {i.action for i in table.timeline().instants if i.is_completed}
    assert ("clean" if table_type == "COPY_ON_WRITE" else "commit") in actions
    assert len(table.timeline().completed_writes) < BATCHES, "nothing was archived"
    if table_type == "MERGE_ON_READ":
        logs = [len(s.log_files) for p in table.view().partitions() for s in table.view().latest_merged_slices(p)]
        assert max(logs) <= 3, "nothing was compacted"
    assert case.run() == []
