"""A start that names a higher table version brings the table to it; the stream goes on where it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tests.streaming.stream_case import UNSET, StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table

pytestmark = pytest.mark.spark
EVENTS = list(ev.generate(400, ev.Mix(keys=80), seed=16))
VERSION = "hoodie.write.table.version"


@pytest.mark.extended("more kinds of tables")
@pytest.mark.parametrize("to", ["8", "9"])
def test_the_stream_goes_on_in_the_new_version(to: str, tmp_path: Path, spark: SparkSession) -> None:
    """Without a full load: the index covers the same commits, under their new names."""
    case = StreamCase(tmp_path, spark, conf={VERSION: "6"})
    ev.write_files(EVENTS[:300], case.source, 100)
    assert len(case.run()) == 3
    later = StreamCase(tmp_path, spark, conf={VERSION: to, "hoodie.metadata.enable": "true"})
    ev.write_files(EVENTS[300:], later.source, 100, first=3)
    assert len(later.run()) == 1
    table = HoodieTable.open(str(case.table))
    assert table.config.version == int(to)
    assert len(table.timeline().completed_writes) == 4
    assert not list((case.checkpoint / "tagstream/index").glob("gen-1*"))
    assert not compare(ev.rows(ev.oracle(EVENTS).values()), read_table(case.table, meta_columns=False), ["id"])
    assert validate(table) == []
    assert validate_metadata(table) == []


@pytest.mark.extended("more kinds of tables")
@pytest.mark.parametrize(
    "conf", [{VERSION: UNSET}, {VERSION: "9", "hoodie.write.auto.upgrade": "false"}, {VERSION: "6"}]
)
def test_else_a_table_keeps_its_version(conf: dict[str, str], tmp_path: Path, spark: SparkSession) -> None:
    case = StreamCase(tmp_path, spark, conf={VERSION: "8"})
    ev.write_files(EVENTS[:100], case.source, 100)
    case.run()
    later = StreamCase(tmp_path, spark, conf=conf)
    ev.write_files(EVENTS[100:200], later.source, 100, first=1)
    later.run()
    assert HoodieTable.open(str(case.table)).config.version == 8
