"""Records about files, made anew from the files of real tables: the bytes that Hudi's own metadata table has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tagstream.table.file_group.log_file import scan_log_file
from tagstream.table.file_group.log_format import BlockType
from tagstream.table.metadata.column_ranges import (
    ColumnRange,
    merged_ranges,
    ranges_from_json,
    ranges_of_footer,
    ranges_of_rows,
    ranges_to_json,
)
from tagstream.table.metadata.metadata_table import ALL_PARTITIONS, MetadataTable
from tagstream.table.metadata.record_encoding import (
    Named,
    bloom_record,
    commit_avro_json,
    encode_records,
    files_record,
    partitions_record,
    stats_record,
)
from tagstream.table.metadata.records import BLOOM_FILTER, COLUMN_STATS, FILES, Record, decode
from tests.support.stored import stored
from tests.table.metadata.test_metadata_table import WITH_METADATA, opened

WITH_STATS = sorted(WITH_METADATA - {"cow_v6_native015_days"})


@dataclass(frozen=True)
class Entry:
    """One entry of a real metadata table; ``ours``: it was written in the schema that we write, too."""

    key: str
    value: bytes
    record: Record
    ours: bool


def entries(metadata: MetadataTable, partition: str) -> Iterator[Entry]:
    wanted = json.loads(commit_avro_json(metadata.config.version))["fields"]
    for file_slice in metadata.slices(partition):
        for part in metadata.entries(file_slice):
            keys, values = part.keys.filter(part.values.is_valid()), part.values.drop_null().to_pylist()
            fields = json.loads(part.avro_json)["fields"] if values else []
            same = [field["name"] for field in fields[5:]] == [field["name"] for field in wanted]
            for key, value, record in zip(
                keys.to_pylist(), values, decode(values, part.avro_json, part.where) if values else [], strict=True
            ):
                yield Entry(key.decode(), value, record, same)


def encoded(named: Named, version: int) -> bytes:
    keys, values = encode_records(dict([named]), version)
    assert keys.to_pylist() == [named[0].encode()]
    value: bytes = values[0].as_py()
    return value


def ranges(path: Path, columns: set[str]) -> dict[str, ColumnRange]:
    if path.suffix == ".parquet":
        return ranges_of_footer(pq.read_metadata(path), columns)
    parts: dict[str, list[ColumnRange]] = {}
    for block in scan_log_file(*stored(path)):
        if block.type in (BlockType.AVRO_DATA, BlockType.PARQUET_DATA):
            for column, found in ranges_of_rows(block.read_table(), columns).items():
                parts.setdefault(column, []).append(found)
    return {column: merged_ranges(found) for column, found in parts.items()}


@pytest.mark.parametrize("name", WITH_STATS)
def test_statistics_of_columns(name: str, tmp_path: Path) -> None:
    table, metadata = opened(name, tmp_path)
    version, compared, same_bytes = table.config.version, 0, 0
    folders = {path.name: path for path in Path(table.base_path).rglob("*") if ".hoodie" not in path.parts}
    known: dict[str, dict[str, ColumnRange]] = {}
    columns = {entry.record[COLUMN_STATS]["columnName"] for entry in entries(metadata, "column_stats")}
    for entry in entries(metadata, "column_stats"):
        stats = entry.record[COLUMN_STATS]
        path = folders.get(stats["fileName"])
        if path is None or stats["isDeleted"]:
            continue
        if path.name not in known:
            known[path.name] = ranges(path, columns)
        found = known[path.name]
        if stats["columnName"] not in found:
            assert path.suffix != ".parquet"  # a log file of deletes alone has no rows
            continue
        again = ranges_from_json(json.loads(json.dumps(ranges_to_json(found))))[stats["columnName"]]
        partition = str(path.parent.relative_to(table.base_path)).removeprefix(".")
        named = stats_record(partition, path.name, stats["columnName"], again, version)
        key, member = named[0], named[1][COLUMN_STATS]
        assert key == entry.key
        real = {name: stats[name] for name in member if name in stats}
        if differs_by_intent(again, path, stats):
            real |= {end: member[end] for end in ("minValue", "maxValue")}
        assert {name: value for name, value in member.items() if name in real} == real
        compared += 1
        if entry.ours and real["minValue"] == stats["minValue"] and real["maxValue"] == stats["maxValue"]:
            # base files of a metadata table tell their own name in the fifth meta column, which nobody reads
            assert entry.value[4] == 2 or encoded(named, version) == entry.value
            same_bytes += entry.value[4] == 0
    assert compared
    assert same_bytes or table.config.version == 6 or name == "cow_v9_record_index"


def differs_by_intent(found: ColumnRange, path: Path, stats: Record) -> bool:
    if found.nulls == found.rows:  # in logs Hudi leaves ends of zeros there
        return True
    if found.kind == "bytes" and path.suffix != ".parquet":  # Hudi orders the bytes of logs as signed ones
        return True
    # Hudi 0.15 makes plain bytes and ints of wrapped decimals and dates when it compacts its metadata table
    plain = stats["minValue"][0].endswith(("BytesWrapper", "IntWrapper")) and "valueType" not in stats
    return plain and (found.kind.startswith("decimal") or found.kind == "date")


@pytest.mark.parametrize("name", sorted(WITH_METADATA))
def test_listings(name: str, tmp_path: Path) -> None:
    table, metadata = opened(name, tmp_path)
    version, same_bytes = table.config.version, 0
    for entry in entries(metadata, "files"):
        files = entry.record[FILES]
        there = {name: info["size"] for name, info in files.items() if not info["isDeleted"]}
        gone = [name for name, info in files.items() if info["isDeleted"]]
        if entry.key == ALL_PARTITIONS:
            named = (ALL_PARTITIONS, partitions_record(there, gone))
        else:
            named = files_record("" if entry.key == "." else entry.key, there, gone)
        assert named[0] == entry.key
        assert {"type": entry.record["type"], FILES: files} == named[1]
        if entry.ours and entry.value[4] == 0 and list(files) == sorted(files):
            assert encoded(named, version) == entry.value
            same_bytes += 1


@pytest.mark.parametrize("name", ["mor_v6_record_index_015", "cow_v9_record_index"])
def test_bloom_filters(name: str, tmp_path: Path) -> None:
    table, metadata = opened(name, tmp_path)
    compared = same_bytes = 0
    for entry in entries(metadata, "bloom_filters"):
        bloom = entry.record[BLOOM_FILTER]
        for path in Path(table.base_path).rglob("*.parquet"):
            partition = str(path.parent.relative_to(table.base_path)).removeprefix(".")
            text = (pq.read_metadata(path).metadata or {})[b"org.apache.hudi.bloomfilter"].decode()
            named = bloom_record(partition, path.name, bloom["timestamp"], text)
            if named[0] == entry.key:
                assert named[1] == {"type": entry.record["type"], BLOOM_FILTER: bloom}
                compared += 1
                if entry.ours and entry.value[4] == 0:
                    assert encoded(named, table.config.version) == entry.value
                    same_bytes += 1
    assert compared
