"""What the status page says of the table is what the table says, and it is not listed again and again."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tagstream.streaming.batch.commit_record import COMMIT_KEY, COMMIT_VERSION, CommitRecord
from tagstream.streaming.monitor import table_probe as table_look
from tagstream.streaming.monitor.run_status import RunStatus
from tagstream.streaming.monitor.table_probe import TableProbe
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.health import sizes_of
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tests.streaming.monitor.case import Clock, run_status
from tests.support.table_version import table_version, timeline_of
from tests.table.writer import Writer, row


class Counted(PosixStorage):
    """Counts the folders that are listed."""

    listed: list[str] = []  # noqa: RUF012 (one list, whatever copy lists)

    def list(self, rel: str, prefixes: tuple[str, ...] = ("",)):  # type: ignore[no-untyped-def]  # noqa: ANN201
        Counted.listed.append(rel)
        return super().list(rel, prefixes)


def look(folder: Path, table: HoodieTable, stream: str = "orders") -> tuple[TableProbe, RunStatus]:
    checkpoint = folder / "checkpoint"
    (checkpoint / "tagstream").mkdir(parents=True, exist_ok=True)
    (checkpoint / "tagstream" / "meta.json").write_text("{}")
    status = run_status(Clock())
    made = (PosixStorage(str(checkpoint)), "tagstream", "meta.json")
    return TableProbe(status, table, lambda: stream, 100 << 20, made, Clock()), status


def of_stream(table: Path, stream: str, batch: int) -> Path:
    """Makes the newest commit one of a stream."""
    newest = max(timeline_of(table).glob("*.*commit"))
    metadata = CommitMetadata.from_bytes(newest.read_bytes(), str(newest))
    record = CommitRecord(stream, "q", batch, {}, {}, "m", "f")
    extra = {**metadata.extra, COMMIT_KEY: json.dumps({"version": COMMIT_VERSION, **record.__dict__})}
    newest.write_bytes(replace(metadata, extra=extra).to_bytes(table_version()))
    return newest


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    writer = Writer.create(tmp_path, "MERGE_ON_READ", groups=1)
    writer.write([row(n, "p0", 1) for n in range(30)] + [row(n, "p1", 1) for n in range(40, 45)])
    writer.write([row(n, "p0", 2) for n in range(9)], deletes=["k20"])
    return writer


def test_commits_and_files(tmp_path: Path, writer: Writer) -> None:
    table = HoodieTable.open(str(tmp_path / "t"))
    newest = of_stream(tmp_path / "t", "orders", 7)
    take, status = look(tmp_path, table)
    take()
    found = status.snapshot()
    first, before = found.commits
    assert (first.stream, first.batch_id, before.stream, before.inserts) == ("orders", 7, None, 35)
    assert (first.updates, first.deletes) == (9, 1)
    assert found.last_commit_ms == newest.stat().st_mtime_ns // 1_000_000
    assert found.last_commit_exact
    view = table.view()
    slices = [s for p in view.partitions() for s in view.latest_merged_slices(p)]
    assert found.files is not None
    assert found.files.total == sizes_of(slices)
    assert (found.files.partitions, found.files.looked_at) == (2, 2)
    assert found.files.total.log_files > 0
    assert {row.partition_path for row in found.files.largest} == {"p0", "p1"}
    assert max(row.share for row in found.files.largest) == 1.0


def test_before_its_first_commit_the_age_counts_from_the_checkpoint(tmp_path: Path, writer: Writer) -> None:
    take, status = look(tmp_path, HoodieTable.open(str(tmp_path / "t")))
    take()
    found = status.snapshot()
    assert found.last_commit_ms == (tmp_path / "checkpoint/tagstream/meta.json").stat().st_mtime_ns // 1_000_000
    assert not found.last_commit_exact


def test_a_table_without_commits(tmp_path: Path) -> None:
    Writer.create(tmp_path, "COPY_ON_WRITE", groups=1)
    take, status = look(tmp_path, HoodieTable.open(str(tmp_path / "t")))
    take()
    assert (status.snapshot().commits, status.snapshot().files) == ((), None)


def test_only_what_commits_touched_is_listed_again(tmp_path: Path, writer: Writer) -> None:
    table = HoodieTable.open(Counted(str(tmp_path / "t")))
    take, status = look(tmp_path, table)
    take()
    Counted.listed.clear()
    take()
    assert Counted.listed == []
    writer.write([row(60, "p1", 1), row(61, "p2", 1)])
    take()
    assert sorted(Counted.listed) == ["p1", "p2"]
    found = status.snapshot().files
    assert found is not None and (found.partitions, found.looked_at) == (3, 3)
    assert len(status.snapshot().commits) == 3


def test_a_look_lists_a_few_partitions_and_the_next_one_goes_on(
    tmp_path: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_look, "PARTITIONS_A_PROBE", 1)
    take, status = look(tmp_path, HoodieTable.open(str(tmp_path / "t")))
    take()
    found = status.snapshot().files
    assert found is not None and (found.partitions, found.looked_at) == (2, 1)
    take()
    found = status.snapshot().files
    assert found is not None and (found.partitions, found.looked_at) == (2, 2)


def test_a_partition_that_is_gone_is_not_counted_on(tmp_path: Path, writer: Writer) -> None:
    take, status = look(tmp_path, HoodieTable.open(str(tmp_path / "t")))
    take()
    shutil.rmtree(tmp_path / "t" / "p1")
    writer.write([row(1, "p0", 3)])
    take._due = {"p1": None}
    take()
    found = status.snapshot().files
    assert found is not None and (found.partitions, found.looked_at) == (1, 1)
