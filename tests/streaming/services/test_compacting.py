"""Groups of a metadata table that are compacted on executors: the same entries and counts as where the driver does it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.services import spark_tasks as compacting
from tagstream.streaming.services.spark_tasks import on_executors
from tagstream.table.meta_client.table_config import MERGE_ON_READ
from tagstream.table.metadata.compaction import CompactionTask, Execute, compact, one_by_one
from tagstream.table.metadata.hfile import HFile
from tagstream.table.timeline.commit_metadata import WriteStat
from tests.table.metadata.case import Case
from tests.table.writer import row

pytestmark = pytest.mark.spark


def filled(folder: Path) -> Case:
    case = Case.create(folder, MERGE_ON_READ, 9)
    for number in range(3):
        case.writer.write([row(n, f"p{n % 4}", number) for n in range(number * 5, number * 5 + 30)])
    return case


def files(case: Case) -> dict[str, tuple[dict[str, bytes], list[list[dict[str, Any]]]]]:
    """Properties and entries, and not bytes: ISA-L does not promise the same compressed bytes (its issue 140)."""
    storage = case.metadata_writer.storage
    paths = sorted(str(path.relative_to(storage.root)) for path in Path(storage.root).rglob("*.hfile"))
    found = {path: HFile.open(storage, path) for path in paths}
    return {path: (file.info, [batch.to_pylist() for batch in file.scan()]) for path, file in found.items()}


def without_sizes(stats: list[WriteStat | None]) -> list[WriteStat]:
    found = [replace(stat, file_size=0, total_write_bytes=0) for stat in stats if stat is not None]
    return sorted(found, key=lambda stat: stat.path)


@pytest.mark.parametrize("small_bytes", [0, 1_300, 1 << 40])
def test_it_is_the_same_wherever_it_is_done(
    small_bytes: int, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, told = filled(tmp_path / "table"), {}
    shutil.copytree(tmp_path / "table", tmp_path / "before")
    monkeypatch.setattr(compacting, "_SMALL_BYTES", small_bytes)
    for name, execute in (("here", one_by_one), ("there", on_executors(spark))):
        shutil.rmtree(tmp_path / "table")
        shutil.copytree(tmp_path / "before", tmp_path / "table")
        stats: list[WriteStat | None] = []
        now_ms = case.writer.now_ms
        assert compact(case.metadata_writer, case.times, 3, kept(execute, stats)) is not None
        case.writer.now_ms = now_ms
        told[name] = files(case), without_sizes(stats)
        case.check()
    (here, stats_here), (there, stats_there) = told["here"], told["there"]
    assert len(here) > 5
    assert stats_there == stats_here
    assert [*there] == [*here]
    assert [path for path in here if there[path] != here[path]] == []


def kept(execute: Execute, stats: list[WriteStat | None]) -> Execute:
    """The same, and what it gave is in ``stats``."""

    def run(tasks: Sequence[CompactionTask]) -> Iterator[WriteStat | None]:
        for stat in execute(tasks):
            stats.append(stat)
            yield stat

    return run


def test_a_task_that_fails_names_its_file(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    case = filled(tmp_path)
    monkeypatch.setattr(compacting, "_SMALL_BYTES", 0)
    logs = Path(case.metadata_writer.storage.root, "record_index").glob(".*.log.*")
    broken = max(logs, key=lambda path: path.stat().st_size)
    data = bytearray(broken.read_bytes())
    at = data.index(b"DATABLK*") + 33  # behind the block's header
    data[at : at + 40] = b"?" * 40
    broken.write_bytes(data)
    with pytest.raises(Exception, match=broken.name):
        compact(case.metadata_writer, case.times, 3, on_executors(spark))
    assert not list(Path(case.metadata_writer.storage.root).rglob("*.commit")), "nothing is completed"
