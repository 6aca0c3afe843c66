"""Statistics and filters of the metadata table are held against the files: of real Hudi's tables, and of damaged ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tagstream.table.file_group.names import next_instant
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE
from tagstream.table.metadata.changes import Changes, PartitionChange, WrittenFile
from tagstream.table.metadata.column_ranges import ColumnRange, read_file_stats
from tagstream.table.metadata.partitions import (
    begin_partition,
    complete_partition,
    create_metadata_table,
    register,
    write_records,
)
from tagstream.table.services.validate_metadata import validate_metadata
from tests.support.table_version import table_version
from tests.table.reference import unpack
from tests.table.writer import START_MS, Writer, row

COLUMNS = ("id", "ver", "name")
SCHEMA = pa.schema([("id", pa.string()), ("ver", pa.int64()), ("name", pa.string())])
STATISTICS = ("column_stats", "partition_stats", "bloom_filters")
REAL = (
    "cow_v6_complexkey_replace", "cow_v6_failed_left", "cow_v6_nonpart_simplebloom", "cow_v9_defaults_alltypes",
    "cow_v9_record_index", "mor_v6_compacted", "mor_v6_parquet_log", "mor_v6_record_index_015", "mor_v6_services_015",
    "mor_v8_global_record_index", "mor_v9_defaults", "mor_v9_partitioned_record_index", "mor_v9_services",
)  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_what_real_hudi_wrote_is_right(name: str, tmp_path: Path) -> None:
    table = HoodieTable.open(str(unpack(name, tmp_path)))
    assert not [problem for problem in validate_metadata(table) if problem.startswith(STATISTICS)]


def told(table: HoodieTable, damaged: Mapping[str, Any]) -> Changes:
    """What the metadata table is told of the table's files; ``damaged``: by the name of what is told wrongly."""
    partitions = {}
    for part in ("p0", "p1"):
        files = []
        for entry in table.storage.list(part):
            if entry.name.endswith(".parquet"):
                ranges, bloom = read_file_stats(table.storage, f"{part}/{entry.name}", COLUMNS, SCHEMA)
                assert bloom is not None
                if part == "p1":
                    gone = damaged.get("left out", ())
                    ranges = {c: found for c, found in ranges.items() if c not in gone} | dict(
                        _changed(ranges, damaged)
                    )
                files.append(WrittenFile(entry.name, entry.size, ranges, damaged.get("bloom", bloom.decode())))
        partitions[part] = PartitionChange(tuple(files))
    return Changes(partitions=partitions, columns=COLUMNS)


def _changed(ranges: Mapping[str, ColumnRange], damaged: Mapping[str, Any]) -> Iterator[tuple[str, ColumnRange]]:
    for column, fields in damaged.items():
        if column in ranges:
            yield column, replace(ranges[column], **fields)


def made(table: HoodieTable, damaged: dict[str, dict[str, Any]]) -> HoodieTable:
    writer = create_metadata_table(table, START_MS)

    def times() -> str:
        newest = max(writer.timeline().newest or "", table.timeline().newest or "")
        return next_instant(0, newest[:17], table.config.timezone_utc)

    names = ["files", *(name for name in STATISTICS if name != "partition_stats" or table_version() >= 8)]
    for name in names:
        partition = begin_partition(writer, name, 1)
        complete_partition(partition, write_records(partition, told(table, damaged.get(name, {}))), times)
    return register(table, names, COLUMNS, START_MS)


@pytest.mark.table_versions(6, 8, 9)
@pytest.mark.parametrize(
    ("damaged", "words"),
    [
        ({}, None),
        ({"column_stats": {"ver": {"low": 2}}}, "column_stats of ver in p1/{}: has 2 to 3, the values are 1 to 3; "),
        ({"column_stats": {"name": {"high": "a"}}}, "column_stats of name in p1/{}: has "),
        ({"column_stats": {"name": {"nulls": 0}}}, "column_stats of name in p1/{}: has no nulls, there are 1; "),
        (
            {"column_stats": {"ver": {"low": None, "high": None}}},
            "column_stats of ver in p1/{}: has no range, the values ",
        ),
        ({"column_stats": {"left out": ("ver",)}}, "column_stats of ver in p1/{}: is missing; "),
        ({"column_stats": {"ver": {"low": 0, "high": 9}}}, None),  # wider is allowed
        ({"bloom_filters": {"bloom": "AAAA"}}, "bloom_filters has another filter of p1/{} than its footer; "),
    ],
)
def test_what_is_told_wrongly_is_found(
    version: int, damaged: dict[str, dict[str, Any]], words: str | None, tmp_path: Path
) -> None:
    table = written(tmp_path)
    (name,) = (entry.name for entry in table.storage.list("p1") if entry.name.endswith(".parquet"))
    problems = validate_metadata(made(table, damaged))
    assert bool(problems) == bool(words), problems
    assert words is None or any(problem.startswith(words.format(name)) for problem in problems), problems


@pytest.mark.table_versions(8, 9)
@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"high": 2}, "has 1 to 2, the values are 1 to 3"), ({"low": None, "high": None}, "has no range")],
)
def test_a_partition_that_readers_would_pass_over_is_found(
    version: int, wrong: dict[str, Any], words: str, tmp_path: Path
) -> None:
    (problem,) = validate_metadata(made(written(tmp_path), {"partition_stats": {"ver": wrong}}))
    assert problem.startswith(f"partition_stats of ver in partition 'p1': {words}")
    assert "hoodie.metadata.enable=false" in problem


def written(folder: Path) -> HoodieTable:
    """Two partitions, a file each, one null in each."""
    writer = Writer.without_metadata(folder, COPY_ON_WRITE, groups=1)
    writer.write([row(n, f"p{n % 2}", n // 2 + 1) | ({"name": None} if n > 3 else {}) for n in range(6)])
    return writer.table
