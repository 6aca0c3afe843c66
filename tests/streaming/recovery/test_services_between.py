"""Between two runs somebody has used the admin commands of the services: the stream goes on with the right rows."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.archiving import archive_table
from tagstream.table.services.cleaning import clean
from tagstream.table.services.compaction import compact
from tagstream.table.services.compaction_plan import schedule_compaction
from tagstream.table.services.options import ArchiveOptions, CleanOptions, CompactionOptions
from tagstream.table.services.replaced_partitions import delete_partitions
from tagstream.table.services.restore import restore
from tagstream.table.services.rollback_completed import rollback_completed
from tagstream.table.services.savepoint import create_savepoint
from tests.cli.running import run_json
from tests.streaming.recovery.test_takeover import is_oracles
from tests.streaming.stream_case import StreamCase, now_ms
from tests.support import events as ev
from tests.support.foreign_writer import ForeignWriter

pytestmark = [pytest.mark.spark, pytest.mark.table_versions(6, 9)]
MIX = ev.Mix(keys=60, tombstones=0.0, late=0.0, late_deletes=0.0)


def saved_behind(case: StreamCase, events: list[ev.Event]) -> tuple[HoodieTable, str]:
    """The table after a first batch, and its savepoint."""
    ev.write_files(events, case.source, 100)
    case.run()
    table = HoodieTable.open(str(case.table))
    return table, create_savepoint(table, None, "tests", "", now_ms).time


@pytest.mark.extended("more kinds of tables")
def test_partitions_deleted_and_all_cleaned_and_archived(tmp_path: Path, spark: SparkSession) -> None:
    # Beside a metadata table nothing is archived before that was compacted.
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE", {"hoodie.metadata.enable": "false"})
    events = list(ev.generate(700, MIX, seed=101))
    first, rest = events[:600], events[600:]
    ev.write_files(first, case.source, 100)
    assert len(case.run()) == 6
    live = ev.oracle(first)
    partition = Counter(str(e.partition) for e in live.values()).most_common(1)[0][0]
    gone = {e.key for e in live.values() if e.partition == partition}
    table = HoodieTable.open(str(case.table))
    assert delete_partitions(table, [partition], now_ms) is not None
    one = CleanOptions(commits=1)
    assert clean(table, one, now_ms) is not None
    assert archive_table(table, ArchiveOptions(2, 3), one, now_ms) is not None
    ev.write_files(rest, case.source, 100, first=6)
    assert [r.batch_id for r in case.run()] == [6]
    is_oracles(case, [*(e for e in first if e.key not in gone), *rest])
    catch_ups = [p.parent.name for p in case.checkpoint.glob("tagstream/index/gen-*/epoch-*/complete.json")]
    assert len(catch_ups) == 1, "the index was loaded in full, and not caught up"


@pytest.mark.extended("more kinds of tables")
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_partitions_overwritten_by_hand(tmp_path: Path, spark: SparkSession, table_type: str) -> None:
    """Keys that stay, that are gone and that are new: the index is caught up with, and later records find their rows."""
    case = StreamCase(tmp_path, spark, table_type)
    events = list(ev.generate(700, MIX, seed=103))
    first, rest = events[:600], events[600:]
    ev.write_files(first, case.source, 100)
    assert len(case.run()) == 6
    live = ev.oracle(first)
    partition = Counter(str(e.partition) for e in live.values()).most_common(1)[0][0]
    there = sorted((e for e in live.values() if e.partition == partition), key=lambda e: e.key)
    newest = max(e.ordering or 0 for e in events)
    rows = [ev.Event(e.key, partition, e.ordering, name="by hand", amount=1.5) for e in there[:3]]
    rows += [ev.Event(f"hand-{n}", partition, newest, name="by hand", amount=2.5) for n in range(3)]
    ev.write_files(rows, tmp_path / "hand", 100)
    told = run_json("table", "insert-overwrite", "--target-base-path", case.table, "--from", tmp_path / "hand", "--yes")
    assert (told["rows"], [p["partition_path"] for p in told["partitions"]]) == (6, [partition])
    gone = {e.key for e in there[3:]}
    history = [*(e for e in first if e.key not in gone), *rows]
    is_oracles(case, history)
    ev.write_files(rest, case.source, 100, first=6)
    assert [r.batch_id for r in case.run()] == [6]
    is_oracles(case, [*history, *rest])
    catch_ups = [p.parent.name for p in case.checkpoint.glob("tagstream/index/gen-*/epoch-*/complete.json")]
    assert len(catch_ups) == 1, "the index was loaded in full, and not caught up"
    last = [ev.Event(e.key, "elsewhere", newest + 1, name="moved", amount=3.5) for e in rows]
    ev.write_files(last, case.source, 100, first=7)
    assert case.run()
    is_oracles(case, [*history, *rest, *last])


@pytest.mark.extended("the same decisions over another real stream")
def test_commits_taken_back(tmp_path: Path, spark: SparkSession) -> None:
    """What they held is read from the source again."""
    case = StreamCase(tmp_path, spark, "MERGE_ON_READ")
    events = list(ev.generate(400, MIX, seed=102))
    table, time = saved_behind(case, events[:100])
    ev.write_files(events[100:300], case.source, 100, first=1)
    assert len(case.run()) == 2
    newest = table.timeline().newest_completed
    assert newest is not None
    rollback_completed(table, newest, now_ms)
    is_oracles(case, events[:200])
    restore(table, time, now_ms)
    is_oracles(case, events[:100])
    ev.write_files(events[300:], case.source, 100, first=3)
    assert case.run()
    is_oracles(case, events)


@pytest.mark.extended("more kinds of tables", first=("v9",))
def test_restored_to_a_savepoint_and_written_by_another_since(tmp_path: Path, spark: SparkSession) -> None:
    """The timeline begins behind its savepoint now, at the other's commit; what was restored away lies before that."""
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE", {"hoodie.metadata.enable": "false"})
    events = list(ev.generate(300, MIX, seed=104))
    table, time = saved_behind(case, events[:100])
    ev.write_files(events[100:200], case.source, 100, first=1)
    case.run()
    restore(table, time, now_ms)
    theirs = [ev.Event("theirs", "p-theirs", 1, name="theirs", amount=1.5)]
    ForeignWriter(case.table).upsert(theirs)
    ev.write_files(events[200:], case.source, 100, first=2)
    case.run()
    is_oracles(case, [*theirs, *events])


@pytest.mark.extended("more kinds of tables")
def test_a_compaction_that_a_killed_run_has_completed_is_no_other_writers(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    conf = {"hoodie.compact.inline": "false", "hoodie.datasource.compaction.async.enable": "false"}
    case = StreamCase(tmp_path, spark, "MERGE_ON_READ", {**conf, "tagstream.inserts.to.base.files": "first"})
    events = list(ev.generate(300, MIX, seed=107))
    ev.write_files(events[:200], case.source, 100)
    case.run()
    table = HoodieTable.open(str(case.table))
    instant = schedule_compaction(table, CompactionOptions(), now_ms, force=True)
    assert instant is not None
    compact(table, instant, now_ms)
    ev.write_files(events[200:], case.source, 100, first=2)
    with caplog.at_level(logging.INFO, "tagstream"):
        case.run()
    told = [line for line in caplog.messages if "the index lacks" in line]
    assert told and f"({instant}; compactions or clusterings that this program planned" in told[0]
    assert not any("another writer" in line for line in caplog.messages)
    is_oracles(case, events)
