"""Which columns have statistics: the choice of real tables, and their definitions written anew."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tagstream.table.errors import CorruptFileError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.index_definitions import (
    INDEX_DEFINITIONS,
    default_columns,
    defined_columns,
    statistics_form,
    supported_columns,
    write_definitions,
)
from tagstream.table.metadata.records import COLUMN_STATS
from tagstream.table.schema.schema import avro_to_arrow
from tagstream.table.storage.posix import PosixStorage
from tests.table.metadata.test_metadata_table import WITH_METADATA, opened
from tests.table.reference import BY_PARTITION, unpack

DEFINED = sorted(WITH_METADATA - {"cow_v6_native015_days", "mor_v6_record_index_015", "mor_v6_services_015"})


def schema_of(table: HoodieTable) -> pa.Schema:
    schema = table.schema_json()
    assert schema is not None
    return avro_to_arrow(schema)


@pytest.mark.parametrize("name", DEFINED)
def test_hudi_1_chooses_the_same_columns(name: str, tmp_path: Path) -> None:
    table = HoodieTable.open(str(unpack(name, tmp_path)))
    data = table.storage.read(INDEX_DEFINITIONS)
    columns = defined_columns(data, "index.json")
    assert columns is not None
    # on version 6, too, Hudi 1.2 takes three of the meta columns
    plain = [
        column
        for column in default_columns(schema_of(table), table.config.version)
        if not column.startswith("_hoodie_commit_s")
    ]
    wanted = [column for column in plain if column != "_hoodie_file_name"]
    assert sorted(wanted) == sorted(columns)
    if table.config.version >= 8:
        assert wanted == columns
    assert supported_columns([*columns, "gone"], schema_of(table), table.config.version) == columns
    partitions = table.config.metadata_partitions
    by_partition = name in BY_PARTITION
    anew = write_definitions(None, partitions, columns, table.config.version, "", by_partition)
    assert json.loads(anew) == json.loads(data)
    assert json.loads(write_definitions(data, partitions, columns, table.config.version, "")) == json.loads(data)


def test_hudi_0_chooses_the_same_columns(tmp_path: Path) -> None:
    table, metadata = opened("mor_v6_record_index_015", tmp_path)
    indexed = {record[COLUMN_STATS]["columnName"] for record in metadata.scan("column_stats").values()}
    assert set(default_columns(schema_of(table), 6)) == indexed


def test_no_more_than_32_plain_columns() -> None:
    schema = pa.schema([("nested", pa.list_(pa.int32())), *((f"c{n}", pa.int32()) for n in range(40))])
    assert default_columns(schema, 9)[3:] == [f"c{n}" for n in range(32)]
    assert len(default_columns(schema, 6)) == 45


def test_definitions_of_others_stay() -> None:
    other = {"indexDefinitions": {"secondary_index_x": {"indexName": "x"}, "column_stats": {"sourceFields": ["a"]}}}
    data = write_definitions(json.dumps(other).encode(), ["files"], [], 9, "")
    assert json.loads(data) == {"indexDefinitions": {"secondary_index_x": {"indexName": "x"}}}
    assert defined_columns(data, "") is None


@pytest.mark.parametrize("data", [b"", b"{}", b'{"indexDefinitions": [1]}', b'{"indexDefinitions": {"a": 1}}'])
def test_broken_definitions_are_named(data: bytes) -> None:
    with pytest.raises(CorruptFileError, match="here"):
        defined_columns(data, "here")


@pytest.mark.parametrize(
    ("version", "told", "form"), [(9, "V1", 8), (9, "V2", 9), (8, "V1", 8), (6, None, 6), (9, None, 9)]
)
def test_the_form_of_statistics_is_what_the_definition_tells(
    version: int, told: str | None, form: int, tmp_path: Path
) -> None:
    """Hudi 1.2 brings a table to version 9 and leaves its statistics in the form of version 8, with V1 in the definition."""
    storage = PosixStorage(str(tmp_path))
    if told is not None:
        before = json.dumps({"indexDefinitions": {"column_stats": {"version": told}}}).encode()
        storage.replace(INDEX_DEFINITIONS, write_definitions(before, {"column_stats"}, ["a"], version, ""))
    assert statistics_form(storage, version) == form
