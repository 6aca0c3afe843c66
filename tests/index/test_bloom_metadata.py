"""Ranges and filters out of the metadata tables that real Hudi wrote are those of the files' footers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tagstream.index.base import TableAsOf
from tagstream.index.bloom import KeyRange, RangeCache
from tagstream.table.file_group.base_file import comparable_range, open_base_file, range_of, read_footer
from tagstream.table.file_group.names import split
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import (
    BLOOM_FILTERS_PARTITION,
    COLUMN_STATS_PARTITION,
    MetadataTable,
    bloom_filters,
)
from tests.table.metadata.test_metadata_table import WITH_METADATA
from tests.table.reference import unpack

KEYS = pa.array([f"k{number:04d}" for number in range(200)] + [f"id-{number}" for number in range(200)])


def opened(name: str, folder: Path, partition: str) -> tuple[HoodieTable, MetadataTable, list[str]]:
    table = HoodieTable.open(str(unpack(name, folder)))
    metadata = MetadataTable.open(table, table.timeline())
    assert metadata is not None
    if partition not in metadata.partitions:
        return table, metadata, []
    view = table.view()
    slices = [found for path in view.partitions() for found in view.latest_merged_slices(path)]
    return table, metadata, [s.base_path for s in slices if s.base_path is not None]


def footer_range(table: HoodieTable, path: str) -> KeyRange | None:
    """None where Java orders the ends otherwise: such ones are believed nowhere, and every key is a candidate."""
    with open_base_file(table.storage, path) as file:
        limits = comparable_range(*range_of(file.metadata))
    return None if limits is None else KeyRange(*limits)


@pytest.mark.parametrize("name", sorted(WITH_METADATA))
def test_filters(name: str, tmp_path: Path) -> None:
    table, metadata, paths = opened(name, tmp_path, BLOOM_FILTERS_PARTITION)
    found = bloom_filters(metadata, [split(path) for path in paths]) if paths else {}
    assert set(found) == {split(path) for path in paths}
    for path in paths:
        footer = read_footer(table.storage, path).bloom
        assert footer is not None
        assert np.array_equal(found[split(path)].might_contain(KEYS), footer.might_contain(KEYS))


@pytest.mark.parametrize("name", sorted(WITH_METADATA))
def test_ranges_and_no_footer_is_read(name: str, tmp_path: Path) -> None:
    table, _, paths = opened(name, tmp_path, COLUMN_STATS_PARTITION)
    timeline = table.timeline()
    no_spark: Any = None  # footers are read by Spark's tasks
    look = TableAsOf(no_spark, table, timeline, timeline.newest_completed, no_spark)
    alike = {path: limits for path in paths if (limits := footer_range(table, path)) is not None}
    assert RangeCache(use_metadata=True).of(look, list(alike)) == alike


def test_some_table_has_each(tmp_path: Path) -> None:
    """Else the two tests above would hold nothing."""
    for partition in (BLOOM_FILTERS_PARTITION, COLUMN_STATS_PARTITION):
        having = [name for name in sorted(WITH_METADATA) if opened(name, tmp_path / partition / name, partition)[2]]
        assert len(having) > 1
