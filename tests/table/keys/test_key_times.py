"""Key generators whose partition paths are times: the TIMESTAMP and the CUSTOM one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tagstream.table.errors import ConfigError
from tagstream.table.keys.generators import KEYGEN_PACKAGE
from tagstream.table.keys.keys import KeyGenerator
from tagstream.table.keys.time_partition import PREFIX, TimePartition
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import TableConfig
from tests.support.table_version import table_version

DAYS = TimePartition.from_properties(
    {PREFIX + "timestamp.type": "EPOCHMILLISECONDS", PREFIX + "output.dateformat": "yyyy/MM/dd"}
)
TEXTS = TimePartition.from_properties(
    {
        PREFIX + "timestamp.type": "DATE_STRING",
        PREFIX + "input.dateformat": "yyyy-MM-dd",
        PREFIX + "output.dateformat": "yyyyMM",
    }
)
ROWS = pa.table(
    {
        "id": ["a", "b", "c"],
        "at": pa.array([1_790_000_000_000, 0, None], pa.int64()),
        "day": ["2026-11-23", "x", None],
        "city": ["p", "", None],
    }
)


def test_timestamp() -> None:
    found = KeyGenerator.create("TIMESTAMP", ["id"], ["at"], times=DAYS)
    found.check(ROWS.schema)
    assert found.record_keys(ROWS).to_pylist() == ["a", "b", "c"]
    assert found.partition_paths(ROWS).to_pylist() == ["2026/09/21", "1970/01/01", "1970/01/01"]
    assert found.partition_errors(ROWS).null_count == 3
    assert found.lacks_partition(ROWS).to_pylist() == [False, False, True]
    assert found.depth(ROWS.schema) == found.least_depth == 3
    styled = KeyGenerator.create(
        KEYGEN_PACKAGE + "TimestampBasedAvroKeyGenerator", ["id"], ["at"], True, True, times=DAYS
    )
    assert styled.partition_paths(ROWS)[0].as_py() == "at=2026%2F09%2F21"
    assert styled.depth(ROWS.schema) == 1


def test_custom() -> None:
    found = KeyGenerator.create("CustomKeyGenerator", ["id", "city"], ["city", "at"], time_fields=["at"], times=DAYS)
    assert found.partition_paths(ROWS).to_pylist() == [
        "p/2026/09/21", "__HIVE_DEFAULT_PARTITION__/1970/01/01", "__HIVE_DEFAULT_PARTITION__/1970/01/01"
    ]  # fmt: skip
    assert found.record_keys(ROWS)[0].as_py() == "id:a,city:p"
    assert found.depth(ROWS.schema) is None, "a text may have slashes"
    assert found.least_depth == 4
    plain = KeyGenerator.create("CUSTOM", ["id"], [])
    assert plain.partition_paths(ROWS).to_pylist() == ["", "", ""]
    assert plain.record_keys(ROWS).to_pylist() == ["a", "b", "c"]
    assert plain.depth(ROWS.schema) == 0


def test_a_number_that_is_no_time_has_a_reason() -> None:
    found = KeyGenerator.create("TIMESTAMP", ["id"], ["at"], times=DAYS)
    rows = pa.table({"id": ["a", "b", "c"], "at": [1.79e12, float("nan"), 1e30]})
    assert found.partition_paths(rows).to_pylist() == ["2026/09/21", *["__HIVE_DEFAULT_PARTITION__"] * 2]
    assert [reason is None for reason in found.partition_errors(rows).to_pylist()] == [True, False, False]


def test_a_text_that_is_no_time_has_a_reason() -> None:
    found = KeyGenerator.create("TIMESTAMP", ["id"], ["day"], times=TEXTS)
    assert found.partition_paths(ROWS).to_pylist() == ["202611", "__HIVE_DEFAULT_PARTITION__", "197001"]
    assert [reason is None for reason in found.partition_errors(ROWS).to_pylist()] == [True, False, True]
    assert found.lacks_partition(ROWS).to_pylist() == [False, False, True]


def test_what_does_not_fit() -> None:
    with pytest.raises(ConfigError, match="one key and one partition field"):
        KeyGenerator.create("TIMESTAMP", ["id"], ["at", "day"], times=DAYS)
    with pytest.raises(ConfigError, match="hoodie.keygen.timebased.timestamp.type"):
        KeyGenerator.create("TIMESTAMP", ["id"], ["at"])
    with pytest.raises(ConfigError, match="is text"):
        KeyGenerator.create("TIMESTAMP", ["id"], ["day"], times=DAYS).check(ROWS.schema)


@pytest.mark.table_versions(6, 8, 9)
def test_a_table_says_how(version: int, tmp_path: Path) -> None:
    config = TableConfig(
        name="t",
        record_key_fields=("id",),
        partition_fields=("city", "at"),
        time_fields=("at",),
        times=DAYS,
        key_generator=KEYGEN_PACKAGE + "CustomKeyGenerator",
        version=table_version(),
    )
    HoodieTable.create(str(tmp_path / "t"), config, 0)
    found = HoodieTable.open(str(tmp_path / "t")).config
    assert (found.partition_fields, found.key_generator, found.times) == (
        ("city", "at"), KEYGEN_PACKAGE + "CustomKeyGenerator", DAYS
    )  # fmt: skip
    # Version 6 has no kinds behind the fields: a job must name them.
    assert found.time_fields == (() if version == 6 else ("at",))


@pytest.mark.table_versions(6, 9)
def test_a_table_of_times_alone(version: int, tmp_path: Path) -> None:
    config = TableConfig(
        name="t",
        record_key_fields=("id",),
        partition_fields=("at",),
        time_fields=("at",),
        times=DAYS,
        key_generator=KEYGEN_PACKAGE + "TimestampBasedKeyGenerator",
        version=table_version(),
    )
    HoodieTable.create(str(tmp_path / "t"), config, 0)
    found = HoodieTable.open(str(tmp_path / "t")).config
    assert (found.time_fields, found.times) == (("at",), DAYS)
