"""Every kind of damage that validate looks for is found and named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.services.validate import validate
from tagstream.table.storage.storage import Storage
from tests.table.writer import Writer, row


@pytest.fixture(params=[COPY_ON_WRITE, MERGE_ON_READ])
def writer(request: pytest.FixtureRequest, tmp_path: Path) -> Writer:
    writer = Writer.create(tmp_path, request.param, groups=1)
    writer.write([row(n, "p0", 1) for n in range(20)])
    writer.write([row(n, "p0", 2) for n in range(3)])
    assert validate(writer.table) == []
    return writer


def newest(writer: Writer) -> str:
    (found,) = writer.table.view().latest_merged_slices("p0")
    return found.log_paths[-1] if found.log_paths else found.base_path or ""


def test_a_file_no_commit_names(writer: Writer) -> None:
    path = newest(writer)
    copy = path.replace("-1-2", "-1-9")
    writer.table.storage.write_new(copy, writer.table.storage.read(path))
    assert f"{copy} is named by no commit" in validate(writer.table)


def test_a_file_of_no_instant(writer: Writer) -> None:
    storage, path = writer.table.storage, newest(writer)
    newest_instant = writer.table.timeline().newest_completed or ""
    for entry in storage.list(writer.table.config.timeline_folder, (newest_instant,)):
        storage.delete(writer.timeline_rel(entry.name))
    problems = validate(writer.table)
    assert any(path in p and "is not a completed instant" in p for p in problems), problems


def test_a_missing_file(writer: Writer) -> None:
    path = newest(writer)
    writer.table.storage.delete(path)
    assert [p for p in validate(writer.table) if p.startswith(f"{path} is missing")]


def test_a_file_of_another_length(writer: Writer) -> None:
    path = newest(writer)
    with Path(writer.table.storage.where(path)).open("ab") as file:
        file.write(b"#HUDI")
    problems = validate(writer.table)
    assert [p for p in problems if path in p and "its commit says" in p], problems


def test_rows_another_number_than_the_commit_says(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE, groups=1)
    writer.write([row(1, "p0", 1)])
    timeline = writer.table.timeline()
    metadata = timeline.metadata(writer.table.storage, timeline.completed_writes[-1])
    stats = {p: tuple(replace(stat, num_writes=5) for stat in found) for p, found in metadata.stats.items()}
    content = replace(metadata, stats=stats).to_bytes(writer.table.config.version)
    writer.table.storage.replace(writer.completed_rel(timeline.newest_completed or ""), content)
    assert [p for p in validate(writer.table) if "has 1 rows, its commit says 5" in p]


def test_a_key_in_two_file_groups(writer: Writer) -> None:
    writer.where["k1"] = ("elsewhere", "")
    writer.groups = 7
    writer.where.pop("k1")
    writer.live.pop("k1")
    writer.write([row(1, "p0", 3)])
    assert "key 'k1' occurs 2 times in partition 'p0'" in validate(writer.table)


def test_a_partition_without_its_metafile(writer: Writer) -> None:
    writer.table.storage.delete("p0/.hoodie_partition_metadata")
    assert [p for p in validate(writer.table) if p.startswith("p0 has ") and "no partition metafile" in p]


def test_markers_of_a_settled_instant(writer: Writer) -> None:
    storage: Storage = writer.table.storage
    storage.replace(".hoodie/.temp/20200101000000000/p0/x.parquet.marker.CREATE", b"")
    Path(writer.table.base_path, ".hoodie", ".temp", "20190101000000000", "p0").mkdir(parents=True)  # holds nothing
    assert validate(writer.table) == ["there are markers of 20200101000000000, which is not a pending instant"]
