"""The same generated stream through every index ends in the oracle's rows, judged by hudi-rs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, zip_longest
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.index.registry import INDEX_TYPES
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tests.behaviours.index_cases import marked
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table

pytestmark = pytest.mark.spark
BATCHES, PER_FILE = 4, 300


def mixed_events(*, is_global: bool) -> list[ev.Event]:
    """Late events for keys that are never deleted, deletes for keys whose events come in order.

    Together they are what an index without tombstones can get right: an event older than a delete brings the row back.
    """
    half = BATCHES * PER_FILE // 2
    late = ev.generate(half, ev.Mix(keys=80, late=0.2, deletes=0, late_deletes=0, deletes_without_partition=0), seed=5)
    bare = 0.1 if is_global else 0
    gone = ev.generate(
        half, ev.Mix(keys=80, late=0, late_deletes=0, deletes=0.15, deletes_without_partition=bare), seed=6
    )
    renamed: Iterator[ev.Event] = (replace(e, key=f"d{e.key}") for e in gone)
    return [e for e in chain.from_iterable(zip_longest(late, renamed)) if e is not None]


@pytest.mark.extended(
    "more indexes of the same family, more kinds of tables",
    first=("GLOBAL_BLOOM-MERGE_ON_READ",),
    second=("MERGE_ON_READ", "GLOBAL_SIMPLE-COPY_ON_WRITE", "BLOOM-COPY_ON_WRITE"),
)
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("index", marked(sorted(INDEX_TYPES)))
def test_the_stream_ends_in_the_oracles_rows(
    tmp_path: Path, spark: SparkSession, conf_of: Callable[[str], dict[str, str]], table_type: str, index: str
) -> None:
    is_global = INDEX_TYPES[index].is_global
    events = mixed_events(is_global=is_global)
    case = StreamCase(tmp_path, spark, table_type, conf_of(index))
    ev.write_files(events, case.source, PER_FILE)
    reports = case.run()

    assert sum(r.records for r in reports) == len(events)
    expected = ev.rows(ev.oracle(events, global_index=is_global).values())
    if is_global:
        assert sum(r.moves for r in reports) > 20
    ours = read_snapshot(HoodieTable.open(str(case.table)), columns=ev.ARROW_SCHEMA.names)
    assert not compare(expected, ours, key=("id", "part"))
    assert not compare(expected, read_table(case.table), key=("id", "part"))
    table = HoodieTable.open(str(case.table))
    assert validate(table) == [] and validate_metadata(table) == []


@pytest.mark.extended(
    "more kinds of tables",
    first=("SIMPLE-GLOBAL_BLOOM-9",),
    second=("DYNAMIC_V0-BLOOM-9", "DYNAMIC_V0-GLOBAL_BLOOM-6", "SIMPLE-BLOOM-6"),
)
@pytest.mark.parametrize("version", ["6", "9"])
@pytest.mark.parametrize("index", ["BLOOM", "GLOBAL_BLOOM"])
@pytest.mark.parametrize("filters", ["DYNAMIC_V0", "SIMPLE"])
def test_filters_and_ranges_out_of_the_metadata_table(
    tmp_path: Path, spark: SparkSession, index: str, version: str, filters: str
) -> None:
    """Among them those of base files that the stream itself has told the metadata table of."""
    events = mixed_events(is_global=INDEX_TYPES[index].is_global)
    conf = {
        "hoodie.index.type": index, "hoodie.write.table.version": version, "hoodie.metadata.enable": "true",
        "hoodie.bloom.index.use.metadata": "true", "hoodie.metadata.index.bloom.filter.enable": "true",
        "hoodie.metadata.index.column.stats.enable": "true", "hoodie.bloom.index.filter.type": filters,
    }  # fmt: skip
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE", conf)
    ev.write_files(events, case.source, PER_FILE)
    case.run()
    expected = ev.rows(ev.oracle(events, global_index=INDEX_TYPES[index].is_global).values())
    assert not compare(expected, read_table(case.table), key=("id", "part"))
    table = HoodieTable.open(str(case.table))
    assert validate(table) == [] and validate_metadata(table) == []
