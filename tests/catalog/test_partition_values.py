"""Partition values by the classes that users name."""

from __future__ import annotations

import pytest

from tagstream.catalog.hive_metastore import partition_name
from tagstream.catalog.partition_values import extractor_name, partition_values
from tagstream.table.errors import ConfigError, TableConfigMismatchError

HIVE = "org.apache.hudi.hive."


@pytest.mark.parametrize(
    ("extractor", "path", "fields", "values"),
    [
        (None, "p1", ("a",), ("p1",)),
        (None, "a=p1", ("a",), ("p1",)),
        (None, "a=x/b=y", ("a", "b"), ("x", "y")),
        (None, "x/y", ("a", "b"), ("x", "y")),
        (None, "", (), ()),
        (None, "a=x=y", ("a",), ("x=y",)),
        ("MultiPartKeysValueExtractor", "a=", ("a",), ("__HIVE_DEFAULT_PARTITION__",)),
        ("HiveStylePartitionValueExtractor", "a=p1", ("a",), ("p1",)),
        ("SinglePartPartitionValueExtractor", "2026/01/02", ("a",), ("2026/01/02",)),
        ("SlashEncodedDayPartitionValueExtractor", "2026/1/2", ("day",), ("2026-01-02",)),
        ("SlashEncodedDayPartitionValueExtractor", "y=2026/m=01/d=02", ("day",), ("2026-01-02",)),
        ("SlashEncodedHourPartitionValueExtractor", "2026/01/02/03", ("hour",), ("2026-01-02-03",)),
        ("NonPartitionedExtractor", "p1", (), ()),
    ],
)
def test_values(extractor: str | None, path: str, fields: tuple[str, ...], values: tuple[str, ...]) -> None:
    given = None if extractor is None else HIVE + extractor
    assert partition_values(path, fields, extractor_name(given, len(fields)), decode=False) == values


@pytest.mark.parametrize(
    ("extractor", "path", "fields"),
    [
        ("MultiPartKeysValueExtractor", "2026/01/02", ("day",)),
        ("MultiPartKeysValueExtractor", "p1", ("a", "b")),
        ("SlashEncodedDayPartitionValueExtractor", "2026-01-02", ("day",)),
        ("SlashEncodedDayPartitionValueExtractor", "a/b/c", ("day",)),
        ("NonPartitionedExtractor", "p1", ("a",)),
    ],
)
def test_a_path_that_does_not_fit(extractor: str, path: str, fields: tuple[str, ...]) -> None:
    with pytest.raises(TableConfigMismatchError, match="partition_extractor_class") as e:
        partition_values(path, fields, extractor, decode=False)
    assert repr(path) in str(e.value)


def test_a_class_that_is_not_known() -> None:
    with pytest.raises(ConfigError, match="SlashEncodedDay"):
        extractor_name("com.example.Mine", 1)


def test_encoded_values() -> None:
    assert partition_values("a=x%2Fy", ("a",), "MultiPartKeysValueExtractor", decode=True) == ("x/y",)
    assert partition_values("a=x%2Fy", ("a",), "MultiPartKeysValueExtractor", decode=False) == ("x%2Fy",)


def test_the_name_of_a_partition_in_hive() -> None:
    assert partition_name(["Day", "b"], ["x/y=z%", "ü {1}"]) == "day=x%2Fy%3Dz%25/b=ü %7B1}"
