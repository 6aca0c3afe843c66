"""Which compactions on the timeline a job takes up, and which it leaves to whoever is at them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tagstream.table.services.compaction import begin_compaction
from tagstream.table.services.compaction_plan import schedule_compaction
from tagstream.table.services.options import CompactionOptions
from tagstream.table.services.planned import may_take_up
from tagstream.table.timeline.avro_timeline import parsed_schema, read_record, write_parsed
from tagstream.table.timeline.lease import DEFAULT_TIMEOUT_MS, write_heartbeat
from tagstream.table.write.markers import delete_markers
from tests.table.writer import Writer, row

pytestmark = pytest.mark.table_versions(6, 9)


@pytest.fixture
def planned(tmp_path: Path) -> tuple[Writer, str]:
    writer = Writer.create(tmp_path, "MERGE_ON_READ")
    for number in range(3):
        writer.write([row(1, "p", number)])
    instant = schedule_compaction(writer.table, CompactionOptions(), lambda: writer.now_ms, force=True)
    assert instant is not None
    return writer, instant


def made_by_another(writer: Writer, instant: str) -> Path:
    """The plan as if another program had made it."""
    rel = f"{writer.table.config.timeline_folder}/{instant}.compaction.requested"
    plan = read_record(writer.table.storage.read(rel), rel)
    path = Path(writer.table.base_path, rel)
    path.write_bytes(write_parsed(parsed_schema("HoodieCompactionPlan"), {**plan, "extraMetadata": {}}))
    return path


def age_ms(path: Path) -> int:
    return os.stat(path).st_mtime_ns // 1_000_000


def test_an_own_plan_at_once(planned: tuple[Writer, str]) -> None:
    writer, instant = planned
    assert may_take_up(writer.table, instant, 0)


def test_one_that_an_earlier_run_began(planned: tuple[Writer, str]) -> None:
    writer, instant = planned
    for _ in range(2):  # a second time what the first has left is removed, but for the claim
        begin_compaction(writer.table, instant, lambda: writer.now_ms)
        assert may_take_up(writer.table, instant, 0)


def test_one_that_another_program_is_at(planned: tuple[Writer, str]) -> None:
    writer, instant = planned
    begin_compaction(writer.table, instant, lambda: writer.now_ms)
    delete_markers(writer.table.storage, instant)  # Hudi's have no claim among them
    at = age_ms(Path(writer.table.base_path, writer.table.config.timeline_folder, f"{instant}.compaction.inflight"))
    assert not may_take_up(writer.table, instant, at + DEFAULT_TIMEOUT_MS)
    assert may_take_up(writer.table, instant, at + DEFAULT_TIMEOUT_MS + 1)


def test_one_of_another_program_once_it_is_old(planned: tuple[Writer, str]) -> None:
    writer, instant = planned
    at = age_ms(made_by_another(writer, instant))
    assert not may_take_up(writer.table, instant, at + DEFAULT_TIMEOUT_MS)
    assert may_take_up(writer.table, instant, at + DEFAULT_TIMEOUT_MS + 1)


def test_none_that_somebody_beats_for(planned: tuple[Writer, str]) -> None:
    writer, instant = planned
    write_heartbeat(writer.table.storage, instant)
    at = age_ms(Path(writer.table.base_path, ".hoodie/.heartbeat", instant))
    assert not may_take_up(writer.table, instant, at + 1000)
    assert may_take_up(writer.table, instant, at + 2 * DEFAULT_TIMEOUT_MS)
