"""INSERT_OVERWRITE_TABLE: one batch of a run replaces all rows of the table."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tagstream
from tagstream.streaming.options.cli import load_options
from tagstream.table.errors import ConfigError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tests.streaming.stream_case import StreamCase
from tests.streaming.test_inserts import OPERATION, as_rows, commits, found_rows
from tests.support import events as ev

pytestmark = pytest.mark.spark
WHOLE = {OPERATION: "INSERT_OVERWRITE_TABLE", "hoodie.index.type": "SIMPLE"}
TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")


class OneBatch(StreamCase):
    """A case without ``--source-limit``, which this operation refuses."""

    def arguments(self, *more: str) -> list[str]:
        words = super().arguments(*more)
        at = words.index("--source-limit")
        return words[:at] + words[at + 2 :]


class StoppedError(Exception):
    """What ends a run in the middle of a batch."""


def old_table(folder: Path, spark: SparkSession, table_type: str) -> StreamCase:
    made = StreamCase(folder, spark, table_type, {"hoodie.index.type": "SIMPLE"})
    ev.write_files([ev.Event(f"old{i}", f"p{i % 4}", i) for i in range(200)], made.source, 100)
    made.run()
    return made


def new_events(first: int, count: int = 120) -> list[ev.Event]:
    """Events in two of the old partitions and a new one."""
    return [ev.Event(f"new{i}", ("p0", "p1", "p9")[i % 3], i) for i in range(first, first + count)]


@pytest.mark.extended(
    "more kinds of tables and settings",
    first=(
        "v6-MERGE_ON_READ",
        "v9-COPY_ON_WRITE",
    ),
)
@pytest.mark.table_versions(6, 9, also=(8,))
@pytest.mark.parametrize("table_type", TYPES)
def test_a_run_replaces_the_table(tmp_path: Path, spark: SparkSession, version: int, table_type: str) -> None:
    made = old_table(tmp_path / "old", spark, table_type)
    case = OneBatch(tmp_path, spark, conf=WHOLE, existing=made.table)
    ev.write_files(new_events(0), case.source, 30)
    (report,) = case.run()
    assert report.inserts == 120
    assert found_rows(made.table) == as_rows(new_events(0))
    newest = commits(made.table)[-1]
    assert newest.operation == "INSERT_OVERWRITE_TABLE"
    assert sorted(newest.replaced) == ["p0", "p1", "p2", "p3"]
    table = HoodieTable.open(str(made.table))
    assert validate(table) == []
    assert validate_metadata(table) == []
    ev.write_files(new_events(500), case.source, 30, first=10)
    case.run()
    assert found_rows(made.table) == as_rows(new_events(500))


def test_a_run_that_was_killed_replaces_the_table_once(tmp_path: Path, spark: SparkSession) -> None:
    """Files that came meanwhile are another batch. It does not replace the rows of the first in the same run."""
    made = old_table(tmp_path / "old", spark, "COPY_ON_WRITE")
    before = found_rows(made.table)
    case = OneBatch(tmp_path, spark, conf=WHOLE, existing=made.table)
    ev.write_files(new_events(0), case.source, 30)

    def stop(step: str, _: int) -> None:
        if step == "files_published":
            raise StoppedError

    with pytest.raises(StoppedError):
        case.run(at=stop)
    assert found_rows(made.table) == before
    ev.write_files(new_events(500), case.source, 30, first=10)
    assert len(case.run()) == 1
    assert found_rows(made.table) == as_rows(new_events(0))
    assert len(case.run()) == 1
    assert found_rows(made.table) == as_rows(new_events(500))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--continuous"], "with --continuous each batch would replace the rows of the one before"),
        (["--source-limit", "5"], "all records of a run are one batch"),
        (["--hoodie-conf", "hoodie.index.type=STATE"], "STATE has its own storage"),
    ],
)
def test_a_run_that_would_replace_its_own_rows_is_refused(
    tmp_path: Path, spark: SparkSession, more: list[str], why: str
) -> None:
    case = (
        StreamCase(tmp_path, spark, conf=WHOLE) if "--source-limit" in more else OneBatch(tmp_path, spark, conf=WHOLE)
    )
    with pytest.raises(ConfigError, match=why):
        load_options([*case.arguments(), *more])


def test_a_dataframe_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    rows = spark.readStream.schema("id string, part string").json(str(tmp_path))
    with pytest.raises(ConfigError, match="a DataFrame decides itself what a batch is"):
        tagstream.upsert(rows, tmp_path / "t", tmp_path / "c", key="id", partition_by="part", options=WHOLE)
