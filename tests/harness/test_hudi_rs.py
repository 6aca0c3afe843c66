"""The outside reader reads what real Hudi wrote, and sees a key that is there twice."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.hudi_rs import keys_found_twice, read_table
from tests.support.paths import TABLES


@pytest.mark.interop
@pytest.mark.parametrize("name", ["cow_v6_global_bloom_moves", "mor_v6_global_simple_moves_015"])
def test_a_table_of_real_hudi_reads_as_hudi_reads_it(name: str, tmp_path: Path) -> None:
    with tarfile.open(TABLES / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    expected = json.loads((tmp_path / name / "expected.json").read_text())["records"]
    found = read_table(tmp_path / name / "table")
    keys = ["_hoodie_record_key", "_hoodie_partition_path"]
    assert found.num_rows == len(expected) > 0
    assert {tuple(row.values()) for row in found.select(keys).to_pylist()} == {
        tuple(row[key] for key in keys) for row in expected
    }
    assert keys_found_twice(found).num_rows == 0
    plain = read_table(tmp_path / name / "table", meta_columns=False)
    assert not [column for column in plain.column_names if column.startswith("_hoodie")]


def test_a_key_found_twice_is_named() -> None:
    table = pa.table({"_hoodie_record_key": ["a", "b", "a"], "part": ["p", "p", "q"]})
    assert keys_found_twice(table).to_pylist() == [{"_hoodie_record_key": "a", "count_all": 2}]
    assert keys_found_twice(table, ["_hoodie_record_key", "part"]).num_rows == 0
