"""Statistics that real Hudi wrote cover the values that are in the files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tagstream.table.file_group.base_file import open_base_file
from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.file_group.log_file import scan_log_file
from tagstream.table.file_group.log_format import BlockType
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import MetadataTable
from tagstream.table.read.column_stats import UNKNOWN, ColumnRange, _value, column_stats, footer_ranges, metadata_ranges
from tagstream.table.read.filters import Comparison, Op, bind
from tagstream.table.read.snapshot import snapshot_schema
from tagstream.table.schema.conform import conform
from tests.support.stored import stored
from tests.table.metadata.test_metadata_table import WITH_METADATA, opened
from tests.table.reference import NAMES, unpack

WITH_STATS = sorted(name for name in WITH_METADATA if name != "cow_v6_native015_days")


def slices_of(table: HoodieTable) -> tuple[pa.Schema, list[FileSlice]]:
    timeline = table.timeline()
    view = table.view(timeline)
    schema = snapshot_schema(table, timeline, view)
    return schema, [s for partition in view.partitions() for s in view.latest_merged_slices(partition)]


def check(column: pa.ChunkedArray, known: ColumnRange, field: pa.Field, where: str) -> int:
    """No value of the column lies outside; returns how many ends were looked at."""
    values = column.drop_null()
    assert known.has_nulls or not column.null_count, where
    assert not known.all_null or not len(values), where
    ends = 0
    schema = pa.schema([field])
    for op, end in ((Op.LT, known.lower), (Op.GT, known.upper)):
        if end is not None and len(values):
            (outside,) = bind([Comparison(field.name, op, end.as_py())], schema)
            assert not any(outside.mask(pa.table({field.name: values})).to_pylist()), (where, known)
            ends += 1
    return ends


def flat(schema: pa.Schema) -> list[pa.Field]:
    return [field for field in schema if not pa.types.is_nested(field.type)]


@pytest.mark.parametrize("name", WITH_STATS)
def test_every_value_is_within_the_statistics_of_the_metadata_table(name: str, tmp_path: Path) -> None:
    table, metadata = opened(name, tmp_path)
    schema, slices = slices_of(table)
    base = logs = 0
    for found in slices:
        names = [*([found.base_file.name] if found.base_file else []), *(log.name for log in found.log_files)]
        ranges = metadata_ranges(metadata, schema, [(found.partition_path, file) for file in names])
        for file in names:
            path = table.storage.where(f"{found.partition_path}/{file}" if found.partition_path else file)
            rows = (log_rows if file.startswith(".") else base_rows)(path, schema)
            known = ranges[found.partition_path, file]
            ends = sum(
                check(rows.column(f.name), known[f.name], f, f"{path} {f.name}") for f in schema if f.name in known
            )
            base, logs = (base, logs + ends) if file.startswith(".") else (base + ends, logs)
    assert base > 20
    assert (logs > 20) == (name.startswith("mor_"))


def base_rows(path: str, schema: pa.Schema) -> pa.Table:
    with open_base_file(*stored(path)) as file:
        return conform(file.read(), schema, path)


def log_rows(path: str, schema: pa.Schema) -> pa.Table:
    blocks = (b for b in scan_log_file(*stored(path)) if b.type in (BlockType.AVRO_DATA, BlockType.PARQUET_DATA))
    return pa.concat_tables([schema.empty_table(), *(block.read_table(schema) for block in blocks)])


@pytest.mark.parametrize("name", NAMES)
def test_every_value_is_within_the_statistics_of_footers(name: str, tmp_path: Path) -> None:
    table = HoodieTable.open(str(unpack(name, tmp_path)))
    schema, slices = slices_of(table)
    ends = 0
    for path in [table.storage.where(found.base_path) for found in slices if found.base_path]:
        rows, ranges = base_rows(path, schema), footer_ranges(*stored(path), schema)
        ends += sum(check(rows.column(f.name), ranges[f.name], f, f"{path} {f.name}") for f in flat(schema))
    assert ends > 5 or not any(found.base_path for found in slices)


@pytest.mark.parametrize("name", WITH_STATS)
def test_the_metadata_table_and_the_footers_agree(name: str, tmp_path: Path) -> None:
    table, metadata = opened(name, tmp_path)
    schema, slices = slices_of(table)
    compared = 0
    for found in slices:
        if found.base_file is None or found.base_path is None:
            continue
        file = (found.partition_path, found.base_file.name)
        known = metadata_ranges(metadata, schema, [file])[file]
        footer = footer_ranges(table.storage, found.base_path, schema)
        for column, ranged in known.items():
            if ranged.lower is not None and footer[column].lower is not None:
                assert (ranged.lower, ranged.upper) == (footer[column].lower, footer[column].upper), column
                compared += 1
    assert compared > 10


def test_statistics_as_a_table(tmp_path: Path) -> None:
    table, metadata = opened("cow_v9_record_index", tmp_path)
    schema, slices = slices_of(table)
    files = [(s.partition_path, s.base_file.name) for s in slices if s.base_file]
    found = column_stats(metadata, schema.field("price"), [*files, ("2024-01", "no such file")])
    assert found.num_rows == len(files)
    assert found.schema.field("min").type == pa.decimal128(12, 2)
    assert found.column("min").null_count == found.column("max").null_count == 0
    assert sum(found.column("value_count").to_pylist()) == 149


@pytest.mark.parametrize(
    ("wrapper", "value", "kind", "expected"),
    [
        ("Long", 7, pa.int64(), 7),
        ("Int", 7, pa.int64(), 7),
        ("Long", 7, pa.string(), None),
        ("Int", 7, pa.float64(), None),
        ("Double", float("nan"), pa.float64(), None),
        ("String", "\ud7ff", pa.string(), "\ud7ff"),
        ("String", "\ue000", pa.string(), None),
        ("String", "a😀", pa.string(), None),
        ("Bytes", b"a", pa.binary(), None),
        ("Boolean", True, pa.bool_(), True),
        ("Unheard", 1, pa.int64(), None),
    ],
)
def test_ends_that_mean_nothing_here_are_unknown(
    wrapper: str, value: object, kind: pa.DataType, expected: object
) -> None:
    assert _value((f"org.apache.hudi.avro.model.{wrapper}Wrapper", {"value": value}), None, kind) == expected


def test_files_without_statistics_are_unknown(tmp_path: Path) -> None:
    _, metadata = opened("mor_v6_parquet_log", tmp_path)
    assert isinstance(metadata, MetadataTable)
    assert metadata_ranges(metadata, [pa.field("id", pa.string())], [("p", "f")]) == {("p", "f"): {}}
    assert UNKNOWN.is_unknown
