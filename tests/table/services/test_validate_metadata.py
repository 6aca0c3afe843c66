"""The check of a metadata table finds what is wrong in it: a file, a size, a key too few, too many, or in another place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tagstream.table.file_group.names import next_instant
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.metadata.changes import Changes, PartitionChange, WrittenFile
from tagstream.table.metadata.partitions import (
    begin_partition,
    complete_partition,
    create_metadata_table,
    register,
    write_index_shard,
    write_records,
)
from tagstream.table.metadata.record_encoding import PLACES
from tagstream.table.services.validate_metadata import validate_metadata
from tests.table.metadata.case import Case
from tests.table.writer import START_MS, CrashError, Writer, row


def made(writer: Writer, sizes: dict[str, dict[str, int]], places: dict[str, tuple[str, str]]) -> HoodieTable:
    """The writer's table with a metadata table that says this."""
    table = writer.table
    told = create_metadata_table(table, START_MS)
    partitions = {
        path: PartitionChange(tuple(WrittenFile(name, size) for name, size in files.items()))
        for path, files in sizes.items()
    }

    def times() -> str:
        newest = max(told.timeline().newest or "", table.timeline().newest or "")
        return next_instant(0, newest[:17], table.config.timezone_utc)

    files = begin_partition(told, "files", 1)
    complete_partition(files, write_records(files, Changes(partitions=partitions)), times)
    index = begin_partition(told, "record_index", 1)
    rows = [(key, *places[key], START_MS) for key in sorted(places)]
    shard = pa.Table.from_pylist([dict(zip(PLACES.names, each, strict=True)) for each in rows], PLACES)
    stat = write_index_shard(index, 0, [shard])
    assert stat is not None
    complete_partition(index, [stat], times)
    return register(table, ["files", "record_index"], (), START_MS)


@pytest.mark.table_versions(6, 9)
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("", None),
        ("file", "the metadata table says None"),
        ("size", "bytes, the metadata table says 7"),
        ("missing", "1 keys: each is not in the record index, first 'k1'"),
        ("more", "1 keys: each is only in the record index, first 'k9'"),
        ("moved", "1 keys have another partition_path in the record index, first 'k1'"),
    ],
)
def test_what_is_wrong_is_found(version: int, damage: str, words: str | None, tmp_path: Path) -> None:
    writer = Writer.without_metadata(tmp_path, COPY_ON_WRITE, groups=1)
    writer.write([row(n, f"p{n % 2}", 1) for n in range(4)])
    assert writer.table.config.version == version
    sizes = {
        part: {e.name: e.size for e in writer.table.storage.list(part) if e.name.endswith(".parquet")}
        for part in ("p0", "p1")
    }
    places = dict(writer.where)
    (name,) = sizes["p1"]
    if damage == "file":
        sizes["p1"] = {name.replace("_1-1-1_", "_9-9-9_"): 5}
    elif damage == "size":
        sizes["p1"][name] = 7
    elif damage == "missing":
        del places["k1"]
    elif damage == "more":
        places["k9"] = places["k1"]
    elif damage == "moved":
        places["k1"] = ("p0", places["k1"][1])
    problems = validate_metadata(made(replace(writer), sizes, places))
    assert bool(problems) == bool(words), problems
    assert words is None or any(words in problem for problem in problems), problems


def test_the_size_that_stands_for_a_log_files_size(tmp_path: Path) -> None:
    """Hudi 0.15 tells 1 for log files that its rollback takes blocks back of; for a base file that is wrong."""
    writer = Writer.without_metadata(tmp_path, MERGE_ON_READ, groups=1)
    writer.write([row(1, "p0", 1)])
    writer.with_options(inserts_to_base_files=True)
    writer.write([row(2, "p1", 1)])
    names = {
        part: [e.name for e in writer.table.storage.list(part) if ".hoodie" not in e.name] for part in ("p0", "p1")
    }
    table = made(writer, {part: dict.fromkeys(found, 1) for part, found in names.items()}, writer.where)
    (problem,) = validate_metadata(table)
    assert problem.endswith("bytes, the metadata table says 1")
    assert names["p1"][0] in problem
    table = made_anew(writer, {"p0": dict.fromkeys([*names["p0"], ".gone_1.log.1_0-0-0"], 1)})
    assert any(".gone_1.log.1_0-0-0 has None bytes" in problem for problem in validate_metadata(table))


def made_anew(writer: Writer, sizes: dict[str, dict[str, int]]) -> HoodieTable:
    """The same table with another metadata table."""
    writer.table.reload().drop_metadata_table(START_MS)
    writer.table = writer.table.reload()
    return made(writer, sizes, writer.where)


@pytest.mark.table_versions(6, 8, 9)
@pytest.mark.parametrize("crash", ["publish", "told"])
def test_files_of_a_write_that_is_pending_are_not_missed(version: int, crash: str, tmp_path: Path) -> None:
    """They are there, and the metadata table is told of them with the commit: a new partition's among them."""
    writer = Case.create(tmp_path, MERGE_ON_READ, version).writer
    writer.write([row(n, f"p{n % 2}", 1) for n in range(4)])
    with pytest.raises(CrashError):
        writer.write([row(1, "p1", 2), row(7, "new", 2)], crash=crash)
    assert validate_metadata(writer.table.reload()) == []
    writer.rollback_pending()
    assert validate_metadata(writer.table.reload()) == []
