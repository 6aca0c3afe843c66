"""Write stats and commit metadata survive their way to the timeline and back, in Hudi's words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tagstream.table.errors import CorruptFileError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.timeline.avro_timeline import read_record
from tagstream.table.timeline.commit_metadata import CommitMetadata, FileKind, WriteStat, WriteStatus
from tests.table.reference import NAMES, unpack

BASE = WriteStat("f-0", "p/f-0_1-2-3_20260101000000000.parquet", "p", "null", 5, 3, 2, 1, 1234, 1234)
LOG = WriteStat(
    "f-0", "p/.f-0_20260101000000000.log.2_1-2-3", "p", "20260101000000000", 5, 3, 2, 1, 99, 99,
    log_version=2, base_file="b.parquet", log_files=(".f-0_20260101000000000.log.1_1-2-3",),
)  # fmt: skip


@pytest.mark.parametrize(("stat", "kind"), [(BASE, FileKind.CREATE), (LOG, FileKind.APPEND)])
def test_status_round_trip(stat: WriteStat, kind: FileKind) -> None:
    status = WriteStatus(stat, kind)
    assert WriteStatus.from_json(status.to_json()) == status


def test_members_are_those_of_hudi(tmp_path: Path) -> None:
    """Every member of a stat that Hudi 0.14 (its native version 6) writes is there under the same name."""
    table = HoodieTable.open(str(unpack("flink_mor", tmp_path)))
    base_names, log_names = set(BASE.to_json()), set(LOG.to_json())
    for instant in table.timeline().completed_writes:
        content = json.loads(table.storage.read(f".hoodie/{instant.file_name()}"))
        for stats in content["partitionToWriteStats"].values():
            for stat in stats:
                assert set(stat) - {"recordsStats"} <= (log_names if "logVersion" in stat else base_names)


@pytest.mark.parametrize("name", NAMES)
def test_commits_of_real_hudi_survive_our_form(name: str, tmp_path: Path) -> None:
    table = HoodieTable.open(str(unpack(name, tmp_path)))
    timeline = table.timeline()
    for instant in timeline.completed_writes:
        metadata = timeline.metadata(table.storage, instant)
        for version in (6, 9):
            assert CommitMetadata.from_bytes(metadata.to_bytes(version), "again") == metadata
        for stat in metadata.all_stats():
            assert stat.path.startswith(f"{stat.partition_path}/" if stat.partition_path else stat.file_id[:1] or ".")
            if table.storage.exists(stat.path) and stat.file_size:
                assert table.storage.size(stat.path) == stat.file_size


def test_empty_and_damaged_metadata() -> None:
    assert CommitMetadata.from_bytes(b"", "x").all_stats() == []
    for data in (b"{", b"[]", b"Obj\x01nonsense"):
        with pytest.raises(CorruptFileError, match="T.commit"):
            CommitMetadata.from_bytes(data, "T.commit")


@pytest.mark.parametrize("version", [8, 9])
def test_a_replace_commit_that_replaces_nothing(version: int) -> None:
    """An insert overwrite of new partitions. Hudi 1.x reads no table with a commit whose map is null."""
    data = CommitMetadata(operation="INSERT_OVERWRITE").to_bytes(version, replaces=True)
    assert read_record(data, "T.replacecommit")["partitionToReplaceFileIds"] == {}
    assert "partitionToReplaceFileIds" not in read_record(CommitMetadata().to_bytes(version), "T.commit")
    assert json.loads(CommitMetadata().to_bytes(6, replaces=True))["partitionToReplaceFileIds"] == {}


def test_build_groups_by_partition() -> None:
    metadata = CommitMetadata.build([WriteStatus(LOG, FileKind.APPEND), WriteStatus(BASE, FileKind.CREATE)], {}, "{}")
    assert list(metadata.stats) == ["p"]
    assert metadata.extra == {"schema": "{}"}
    assert json.loads(metadata.to_bytes(6))["operationType"] == "UPSERT"
