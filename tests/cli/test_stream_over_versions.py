"""A stream whose table is brought to other versions between its runs: index, offsets and rows go on as if nothing was."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import MetadataTable
from tagstream.table.services.validate_metadata import validate_metadata
from tests.cli.running import run, run_json
from tests.streaming.recovery.test_takeover import is_oracles
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.table_version import metadata_wanted, using

pytestmark = pytest.mark.spark
MIX = ev.Mix(keys=120, late=0.2, deletes=0.15, late_deletes=0.05)
EVENTS = list(ev.generate(1200, MIX, seed=7))
STEP = 300


@pytest.mark.extended("more kinds of tables")
@pytest.mark.parametrize(("table_type", "versions"), [("COPY_ON_WRITE", [9, 6, 8]), ("MERGE_ON_READ", [8, 9, 8])])
def test_a_stream_goes_on(tmp_path: Path, spark: SparkSession, table_type: str, versions: list[int]) -> None:
    # hudi-rs passes over file groups without a base file that a metadata table of version 8 or later lists.
    conf = {"tagstream.inserts.to.base.files": "true"} if metadata_wanted() else {}
    case = StreamCase(tmp_path, spark, table_type, conf)
    with using(6):
        for number, to in enumerate([6, *versions]):
            now = HoodieTable.open(str(case.table)).config.version if number else 6
            if to != now:
                command = "upgrade" if to > now else "downgrade"
                done = run_json("table", command, "--target-base-path", case.table, "--to", to, "--yes")
                assert (done["before"], done["after"]) == (now, to)
            ev.write_files(EVENTS[number * STEP : (number + 1) * STEP], case.source, STEP // 2, first=number * 2)
            reports = case.run()
            assert len(reports) == 2
            assert HoodieTable.open(str(case.table)).config.version == to
            is_oracles(case, EVENTS[: (number + 1) * STEP])
    verified = run("index", "verify", "--checkpoint-dir", case.checkpoint, "--target-base-path", case.table)
    assert "differences" in verified


@pytest.mark.extended("the same decisions over another real stream")
def test_the_metadata_table_is_made_anew(tmp_path: Path, spark: SparkSession) -> None:
    """It is dropped with the change, and the stream that keeps one makes it in the new version."""
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE", {"hoodie.metadata.enable": "true"})
    with using(6):
        for number, to in enumerate([6, 9, 6]):
            if number:
                command = "upgrade" if to > 6 else "downgrade"
                done = run_json("table", command, "--target-base-path", case.table, "--to", to, "--yes")
                assert "files" in done["metadata_partitions"]
                assert not (case.table / ".hoodie/metadata").exists()
            ev.write_files(EVENTS[number * STEP : (number + 1) * STEP], case.source, STEP, first=number)
            case.run()
            table = HoodieTable.open(str(case.table))
            assert "files" in table.config.metadata_partitions
            metadata = MetadataTable.open(table, table.timeline())
            assert metadata is not None
            assert metadata.config.version == to
            assert validate_metadata(table) == []
            is_oracles(case, EVENTS[: (number + 1) * STEP])
