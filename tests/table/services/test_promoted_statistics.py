"""Statistics of a column whose type was promoted: ranges of numbers beside ranges of texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.column_ranges import ColumnRange, is_unknown, merged_ranges
from tagstream.table.metadata.records import COLUMN_STATS, LAST_TEXT, merged
from tagstream.table.services.validate_metadata import validate_metadata
from tests.cli.running import run_json
from tests.support.public_tables import unpack

PROMOTED = (
    "rs_cow_v9_timebasedkeygen_epochmillis", "rs_cow_v9_timebasedkeygen_unixtimestamp",
    "hudi_timestamp_keygen_pt_epoch_to_yyyy_mm_dd_hh_v8_mor",
)  # fmt: skip


@pytest.mark.parametrize("name", PROMOTED)
def test_a_clustering_leaves_ends_that_every_value_is_between(name: str, tmp_path: Path) -> None:
    """The ends were none before, which readers take for a column without values."""
    place = unpack(name, tmp_path)
    before = {*validate_metadata(HoodieTable.open(str(place)))}
    assert run_json("table", "cluster", "--target-base-path", place, "--yes")["changed"]
    after = {*validate_metadata(HoodieTable.open(str(place)))}
    assert not [text for text in after - before if "_stats" in text]


def _range(kind: str, low: Any, high: Any) -> ColumnRange:
    return ColumnRange(kind, low, high, 2, 0)


@pytest.mark.parametrize(
    ("numbers", "ends"),
    [
        (_range("long", 1705311000, 1705315500), ("1705311000", "1705400000")),
        (_range("int", 9, 10), ("", LAST_TEXT)),  # as texts 10 is before 9
        (_range("long", -5, 7), ("", LAST_TEXT)),
        (_range("double", 1.5, 2.5), ("", LAST_TEXT)),
        (_range("timestamp-millis", 1, 2), ("", LAST_TEXT)),
        (ColumnRange("long", None, None, 2, 2), ("1705400000", "1705400000")),
    ],
)
def test_a_range_over_numbers_and_texts(numbers: ColumnRange, ends: tuple[str, str]) -> None:
    text = _range("string", "1705400000", "1705400000")
    for parts in ((numbers, text), (text, numbers)):
        found = merged_ranges(parts)
        assert (found.kind, found.low, found.high, found.rows) == ("string", *ends, 4)
        assert is_unknown(found) is (ends[1] == LAST_TEXT)


def _record(wrapper: str, low: Any, high: Any, ordinal: int | None) -> dict[str, Any]:
    name = f"org.apache.hudi.avro.model.{wrapper}Wrapper"
    kind = None if ordinal is None else {"typeOrdinal": ordinal, "additionalInfo": None}
    stats = {
        "fileName": "p", "columnName": "c", "minValue": (name, {"value": low}), "maxValue": (name, {"value": high}),
        "valueCount": 1, "nullCount": 0, "totalSize": 0, "totalUncompressedSize": 0, "isDeleted": False,
        "isTightBound": False, "valueType": kind,
    }  # fmt: skip
    return {"type": 6, COLUMN_STATS: stats}


@pytest.mark.parametrize(
    ("ordinal", "ends"),
    [
        (4, ("1705311000", "1705400000")),
        (3, ("1705311000", "1705400000")),
        (12, ("", LAST_TEXT)),
        (None, ("", LAST_TEXT)),
    ],
)
def test_records_of_numbers_and_texts(ordinal: int | None, ends: tuple[str, str]) -> None:
    """Where a record does not tell that its number is one, it may be a date's."""
    old = _record("Long", 1705311000, 1705315500, ordinal)
    new = _record("String", "1705400000", "1705400000", None if ordinal is None else 7)
    found = merged(old, new)
    assert found is not None
    stats = found[COLUMN_STATS]
    assert (stats["minValue"][1]["value"], stats["maxValue"][1]["value"]) == ends
    assert stats["minValue"][0].endswith(".StringWrapper")
