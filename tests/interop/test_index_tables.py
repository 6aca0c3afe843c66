"""A table is written in turn by the stream and by real Hudi, both with the same index: no key is doubled or lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tagstream.index.registry import INDEX_TYPES
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tests.behaviours.conftest import conf_of as conf_of  # the fixture
from tests.behaviours.test_index_streams import mixed_events
from tests.interop.hudi_spark import HudiSpark
from tests.interop.test_foreign_commits import NULLABLE
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table

pytestmark = [pytest.mark.hudi_jar, pytest.mark.spark]
INDEXES = ["BLOOM", "GLOBAL_BLOOM", "SIMPLE", "GLOBAL_SIMPLE", "BUCKET"]
SETTINGS = {
    "BUCKET": {"hoodie.bucket.index.num.buckets": "3"},
    "GLOBAL_BLOOM": {"hoodie.bloom.index.update.partition.path": "true"},
    "GLOBAL_SIMPLE": {"hoodie.simple.index.update.partition.path": "true"},
}


def in_order(count: int, *, is_global: bool, seed: int) -> list[ev.Event]:
    """Events whose ordering rises with every one of a key: what is deleted never comes late."""
    bare = 0.03 if is_global else 0.0
    return list(
        ev.generate(
            count, ev.Mix(keys=60, late=0, late_deletes=0, deletes_without_partition=bare, equal_ordering=0), seed=seed
        )
    )


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("index", INDEXES)
def test_stream_and_hudi_take_turns(
    hudi: HudiSpark, spark: SparkSession, tmp_path: Path, index: str, table_type: str
) -> None:
    is_global = INDEX_TYPES[index].is_global
    settings = {"hoodie.index.type": index, **SETTINGS.get(index, {})}
    case = StreamCase(tmp_path, spark, table_type, settings, NULLABLE)
    events = in_order(900, is_global=is_global, seed=71)
    told: list[ev.Event] = []

    def stream(start: int, stop: int) -> None:
        ev.write_files(events[start:stop], case.source, 150, first=start // 150)
        told.extend(events[start:stop])
        case.run()

    def hudi_writes(start: int, stop: int) -> None:
        """Hudi's upsert takes no row of another kind: deletes go in a write of their own, after it."""
        batch = events[start:stop]
        last: dict[object, ev.Event] = {}
        for e in batch:
            if e.partition is not None:
                last[e.key if is_global else (e.partition, e.key)] = e
        winners = list(last.values())
        told.extend(winners)
        rows = pa.Table.from_pylist([e.row() for e in winners], ev.ARROW_SCHEMA)
        hudi.write(HoodieTable.open(str(case.table)), rows, {**settings, "hoodie.metadata.enable": "false"}, "upsert")

    def check(when: str) -> None:
        expected = ev.rows(ev.oracle(told, global_index=is_global).values())
        for who, found in (("hudi-rs", read_table(case.table)), (hudi.version, hudi.read(case.table))):
            wrong = compare(expected, found, ["id", "part"])
            assert not wrong, f"{when}, {who}: {wrong}"

    stream(0, 300)
    check("after the stream")
    hudi_writes(300, 450)
    check("after Hudi")
    stream(450, 600)
    check("after the stream went on")
    hudi_writes(600, 750)
    stream(750, 900)
    check("at the end")
    assert validate(HoodieTable.open(str(case.table))) == []


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("index", ["STATE", *sorted(INDEX_TYPES)])
def test_hudi_reads_what_every_index_wrote(
    hudi: HudiSpark,
    spark: SparkSession,
    tmp_path: Path,
    conf_of: Callable[[str], dict[str, str]],
    index: str,
    table_type: str,
) -> None:
    is_global = index == "STATE" or INDEX_TYPES[index].is_global
    events = mixed_events(is_global=is_global)
    case = StreamCase(tmp_path, spark, table_type, conf_of(index))
    ev.write_files(events, case.source, 600)
    case.run()
    expected = ev.rows(ev.oracle(events, global_index=is_global).values())
    assert not compare(expected, hudi.read(case.table), ["id", "part"])
