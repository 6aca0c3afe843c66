"""Each thing that is wrong with a table is found, and a sound table has none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tagstream.table.services.compaction_plan import schedule_compaction
from tagstream.table.services.health import HOUR_MS, Limits, figures_of, findings
from tagstream.table.services.options import CompactionOptions
from tagstream.table.services.savepoint import create_savepoint
from tests.table.writer import Writer, row

pytestmark = pytest.mark.table_versions(6, 9)
LIMITS = Limits(log_files=2, active=4, groups=2, small_bytes=1)


def found(writer: Writer, later_ms: int = 0, old_bytes: int = 0, limits: Limits = LIMITS) -> list[str]:
    table = writer.table.reload()
    timeline, now_ms = table.timeline(), writer.now_ms + later_ms
    figures = figures_of(table, timeline, now_ms, old_bytes)
    return [f.what for f in findings(table, timeline, figures, now_ms, limits)]


def written(folder: Path, table_type: str, times: int) -> Writer:
    writer = Writer.create(folder, table_type).with_options(inserts_to_base_files=False)
    for number in range(times):
        writer.write([row(key, f"p{key % 2}", number) for key in range(4)])
    return writer


def test_a_sound_table(tmp_path: Path) -> None:
    assert found(written(tmp_path, "COPY_ON_WRITE", 3), limits=Limits()) == []


def test_logs_and_a_long_timeline(tmp_path: Path) -> None:
    writer = written(tmp_path, "MERGE_ON_READ", 5)
    logs, active, small = found(writer)
    assert logs.startswith("a file slice has 5 log files")
    assert active == "5 completed writes are on the active timeline"
    assert small == "2 of 2 file groups are small"
    in_a_small_table = found(writer, limits=replace(LIMITS, small_bytes=1 << 30))
    assert in_a_small_table == [logs, active]
    table = writer.table.reload()
    age = figures_of(table, table.timeline(), writer.now_ms + HOUR_MS, 0).oldest_uncompacted_ms
    assert age is not None
    assert age >= HOUR_MS


def test_a_plan_that_nobody_carries_out(tmp_path: Path) -> None:
    writer = written(tmp_path, "MERGE_ON_READ", 2)
    instant = schedule_compaction(writer.table, CompactionOptions(), lambda: writer.now_ms, force=True)
    assert not [text for text in found(writer) if "compaction" in text]
    (text,) = [text for text in found(writer, 3 * HOUR_MS) if "compaction" in text]
    assert text == f"compaction {instant} has been requested for 3.0 hours"


def test_old_slices_and_old_savepoints(tmp_path: Path) -> None:
    writer = written(tmp_path, "COPY_ON_WRITE", 2)
    create_savepoint(writer.table, None, "me", "", lambda: writer.now_ms)
    assert not [text for text in found(writer) if "savepoint" in text]
    texts = found(writer, 40 * 24 * HOUR_MS, old_bytes=10**9)
    assert any("954 MiB are in old slices" in text for text in texts)
    assert any("40 days old: nothing after it is archived" in text for text in texts)
