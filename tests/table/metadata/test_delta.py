"""A metadata table that is told of each commit says what is on disk, version by version."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tagstream.table.file_group.log_file import scan_log_file
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import State
from tests.table.metadata.case import Case
from tests.table.writer import row

VERSIONS = (6, 8, 9)
TYPES = (COPY_ON_WRITE, MERGE_ON_READ)


@pytest.mark.extended("more kinds of tables", first=("COPY_ON_WRITE-6", "MERGE_ON_READ-9"))
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("table_type", TYPES)
def test_it_is_told_of_every_commit(table_type: str, version: int, tmp_path: Path) -> None:
    case = Case.create(tmp_path, table_type, version)
    case.check()
    assert case.metadata.partition_paths() == []
    case.writer.write([row(n, f"p{n % 3}", 1) for n in range(60)])
    case.check()
    case.writer.write([row(n, f"p{n % 3}", 2) for n in range(0, 60, 4)], deletes=["k1", "k2"])
    case.check()
    case.writer.write([row(n, "p9", 3) for n in range(20, 30)])  # moves, into a new partition
    case.check()
    assert case.metadata.partition_paths() == ["p0", "p1", "p2", "p9"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_inflight_file_tells_the_operation_as_hudi_has_it(version: int, tmp_path: Path) -> None:
    case = Case.create(tmp_path, COPY_ON_WRITE, version)
    instant = case.writer.write([row(1, "p0", 1)])
    writer = case.metadata_writer
    (known,) = [i for i in writer.timeline().instants if i.time == instant and i.is_completed]
    rel = writer.rel(replace(known, state=State.INFLIGHT, completion_time=None))
    told = CommitMetadata.from_bytes(writer.storage.read(rel), rel)
    assert (told.operation, told.stats) == ("UPSERT_PREPPED", {})


@pytest.mark.parametrize("version", VERSIONS)
def test_deletes_are_in_the_order_of_their_keys(version: int, tmp_path: Path) -> None:
    case = Case.create(tmp_path, MERGE_ON_READ, version, {"files": 1, "record_index": 1})
    case.writer.write([row(n, f"p{n % 3}", 1) for n in range(30)])
    case.writer.write(deletes=[f"k{n}" for n in (7, 22, 3, 11, 20)])
    (found,) = case.metadata.slices("record_index")
    blocks = [b for rel in found.log_paths for b in scan_log_file(case.metadata.storage, rel)]
    keys = blocks[-1].deletes().keys.to_pylist()
    assert keys == sorted(keys) == ["k11", "k20", "k22", "k3", "k7"]


@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_told_of_files_that_are_gone(version: int, tmp_path: Path) -> None:
    case = Case.create(tmp_path, COPY_ON_WRITE, version)
    for number in range(3):
        case.writer.write([row(n, f"p{n % 3}", number) for n in range(30)])
    assert case.clean_files() == 12
    case.check()
    case.writer.write([row(n, f"p{n % 3}", 9) for n in range(30)])
    case.check()
