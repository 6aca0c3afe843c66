"""Metadata tables that real Hudi wrote are continued: told of commits, compacted, cleaned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tagstream.table.file_group.names import next_instant
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.changes import Changes, PartitionChange, WrittenFile
from tagstream.table.metadata.compaction import clean, compact
from tagstream.table.metadata.delta_commit import delta_commit
from tagstream.table.metadata.metadata_table import MetadataTable
from tagstream.table.metadata.metadata_writer import MetadataWriter, Times
from tagstream.table.metadata.record_encoding import PLACES
from tagstream.table.metadata.record_index import RecordIndex
from tests.table.metadata.case import gone_keys
from tests.table.metadata.test_metadata_table import WITH_METADATA, opened


def clock(table: HoodieTable) -> Times:
    given = ["20270101000000000"]

    def times() -> str:
        given.append(next_instant(0, max(given[-1], table.timeline().newest or ""), True))
        return given[-1]

    return times


def said(table: HoodieTable) -> dict[str, Any]:
    """All that a metadata table says; the form of a record does not matter, nor members that version 6 does not have."""
    metadata = MetadataTable.open(table, table.timeline())
    assert metadata is not None
    found: dict[str, Any] = {}
    for partition in sorted(metadata.partitions):
        if partition == "record_index":
            index = RecordIndex.open(metadata)
            assert index is not None
            rows = [row for part in index.scan() for row in part.to_pylist()]
            found[partition] = sorted(rows, key=lambda row: str(row["record_key"]))
        else:
            found[partition] = {key: plain(record) for key, record in metadata.scan(partition).items()}
    return found


def places_in(said: dict[str, Any]) -> list[tuple[str, str]]:
    """Keys of the record index and the partitions that they are in."""
    return [(row["record_key"], row["partition_path"]) for row in said["record_index"]]


def plain(record: dict[str, Any]) -> dict[str, Any]:
    kept = {name: member for name, member in record.items() if member is not None and name != "_hoodie_file_name"}
    dropped = ("isTightBound", "valueType")
    return {
        name: {n: m for n, m in member.items() if n not in dropped} if isinstance(member, dict) else member
        for name, member in kept.items()
    }


@pytest.mark.extended("more tables that real Hudi wrote", first=("cow_v9_record_index", "mor_v6_record_index_015"))
@pytest.mark.parametrize("name", sorted(WITH_METADATA))
def test_it_is_compacted_and_cleaned(name: str, tmp_path: Path) -> None:
    table, _ = opened(name, tmp_path)
    writer, before, times = MetadataWriter.open(table), said(table), clock(table)
    assert writer is not None
    compacted = compact(writer, times, 1)
    assert compacted is not None
    assert said(table) == before
    clean(writer, times, kept_versions=1)
    assert said(table) == before
    files = {path.name for path in Path(writer.storage.root, "files").iterdir() if ".hfile" in path.name}
    assert {file for file in files if not file.endswith(".crc")} == {f"files-0000-0_0-0-0_{compacted}.hfile"}


@pytest.mark.extended("more tables that real Hudi wrote", first=("cow_v9_record_index", "mor_v6_record_index_015"))
@pytest.mark.parametrize("name", sorted(WITH_METADATA))
def test_it_is_told_of_a_commit(name: str, tmp_path: Path) -> None:
    table, _ = opened(name, tmp_path)
    writer, before, times = MetadataWriter.open(table), said(table), clock(table)
    assert writer is not None
    instant = times()
    partition = next(key for key in before["files"] if key != "__all_partitions__").removeprefix(".")
    (gone, *_) = sorted(before["files"][partition or "."]["filesystemMetadata"])
    told = WrittenFile("0f7c4f0e-0000-0000-0000-000000000000-0_0-0-0_20270101000000000.parquet", 77, {}, "AAAA")
    row = ("new key", partition, "0f7c4f0e-0000-0000-0000-000000000000-0", 1_800_000_000_000)
    places = pa.Table.from_pylist([dict(zip(PLACES.names, row, strict=True))], PLACES)
    deleted = [(r["record_key"], r["partition_path"]) for r in before.get("record_index", [])[:5]]
    changes = Changes(
        {partition: PartitionChange((told,), (gone,))},
        places=[places],
        deleted_keys=[gone_keys(*deleted)],
        columns=["id"],
    )
    done = delta_commit(writer, instant, changes, times)
    assert said(table) == before  # not before the data's commit is completed
    name_of = f"{instant}_{times()}.commit" if writer.has_completion_times else f"{instant}.commit"
    table.storage.write_new(f"{table.config.timeline_folder}/{name_of}", b"")
    after = said(table)
    files = dict(before["files"][partition or "."]["filesystemMetadata"])
    del files[gone]
    assert after["files"][partition or "."]["filesystemMetadata"] == files | {
        told.name: {"size": 77, "isDeleted": False}
    }
    if "record_index" in before:
        assert sorted(places_in(after)) == sorted({*places_in(before)} - {*deleted} | {("new key", partition)})
    assert (done.completion_time is not None) == writer.has_completion_times
