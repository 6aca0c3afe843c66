"""A write that died with the metadata table told of it, wholly or in part: Hudi takes ours back, we take Hudi's back."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tagstream.table.file_group.names import parse_log_file_name
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.metadata.compaction import compact
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tagstream.table.timeline.commit_metadata import FileKind, WriteStat
from tagstream.table.timeline.instant import ROLLBACK
from tests.interop.hudi_spark import HudiSpark
from tests.interop.test_metadata_tables import filled, options, read_by_both, upsert_by_hudi, write_by_hudi
from tests.table.metadata.case import Case
from tests.table.metadata.test_rollback import EARLY, crash_at, failing_write
from tests.table.writer import CrashError, direct_marker, row

pytestmark = pytest.mark.hudi_jar
TYPES = (COPY_ON_WRITE, MERGE_ON_READ)
# Files have their names and the metadata table knows nothing; it is told in part; it has completed its delta commit.
CRASHES = ("publish", *EARLY, "told")


def fail(case: Case, crash: str) -> str:
    """A write of ours that dies: deletes, moves and new keys. Its instant."""
    if crash == "told":
        return failing_write(case)
    gone = next(key for key in case.writer.live if int(key[1:]) < 20)
    rows = [row(n, "p5", 9) for n in range(20, 40)]
    with pytest.MonkeyPatch.context() as patch, pytest.raises(CrashError):
        if crash in EARLY:
            crash_at(patch, crash)
        case.writer.write(rows, deletes=[gone], crash=None if crash in EARLY else crash)
    (failed,) = case.writer.table.timeline().pending_writes
    return failed.time


def check_good(case: Case, failed: str) -> None:
    """Nothing is left of the failed write: by our own look at the table and at its metadata table."""
    case.writer.table = case.writer.table.reload()
    table, metadata = case.writer.table, case.metadata_writer
    assert validate(table) == []
    assert validate_metadata(table) == []
    assert table.timeline().find(failed) is None
    assert [i for i in table.timeline().instants if i.action == ROLLBACK and i.is_completed]
    assert failed not in {i.time for i in metadata.timeline().instants}
    assert not metadata.timeline().pending
    for partition in table.view().partitions():
        there = {e.name: e.size for e in table.storage.list(partition) if not e.name.startswith(".hoodie_p")}
        told = case.metadata.files(partition)
        assert told.keys() == there.keys()
        # 0.15 tells 1 for a log file of which its rollback takes blocks back.
        assert all(size == there[name] or (size == 1 and parse_log_file_name(name)) for name, size in told.items())


@pytest.mark.parametrize("crash", CRASHES)
@pytest.mark.parametrize("table_type", TYPES)
def test_hudi_takes_ours_back(hudi: HudiSpark, tmp_path: Path, table_type: str, crash: str) -> None:
    case = filled(tmp_path, table_type)
    failed = fail(case, crash)
    read_by_both(hudi, case)  # nobody sees it
    write_by_hudi(hudi, case, 10)  # 0.15's own reader stops at the block of its rollback until there is one more commit
    check_good(case, failed)
    upsert_by_hudi(hudi, case, 11)
    case.writer.write([row(n, "p5", 20) for n in range(20, 40)])
    case.check_record_index(case.metadata)
    read_by_both(hudi, case)
    assert validate_metadata(case.writer.table) == []


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("table_type", TYPES)
def test_we_take_that_of_hudi_back(hudi: HudiSpark, tmp_path: Path, table_type: str, compacted: bool) -> None:
    """It died between its metadata table's commit and its own. ``compacted``: ours was just before."""
    case = filled(tmp_path, table_type)
    if compacted:
        assert compact(case.metadata_writer, case.times, 1) is not None
    known = [{**found, "ver": 50, "name": "lost"} for found in list(case.writer.live.values())[::3]]
    rows = [*known, *(row(1000 + n, f"p{n % 2}", 50) for n in range(5)), row(2000, "p8", 50)]
    hudi.write(case.writer.table, pa.Table.from_pylist(rows, case.writer.schema), options(hudi, case))
    failed = as_if_killed(case)
    read_by_both(hudi, case)
    case.writer.now_ms = case.writer.now_ms + 10**12  # behind Hudi's clock
    case.writer.rollback_pending()
    check_good(case, failed)
    case.check_record_index(case.metadata)
    read_by_both(hudi, case)
    case.writer.write([row(n, "p5", 60) for n in range(20, 40)], deletes=["k3"])
    case.check_record_index(case.metadata)
    read_by_both(hudi, case)


def as_if_killed(case: Case) -> str:
    """The newest commit, of Hudi, as it is before its completed file is there: its markers are not deleted yet."""
    case.writer.table = case.writer.table.reload()
    table = case.writer.table
    done = table.timeline().completed_writes[-1]
    stats = table.timeline().metadata(table.storage, done).all_stats()
    for stat in stats:
        direct_marker(table.storage, done.time, stat.path, _kind(stat))
    table.storage.delete(case.writer.timeline_rel(done.file_name()))
    (pending,) = table.timeline().pending_writes
    assert pending.time == done.time
    assert done.time in {i.time for i in case.metadata_writer.timeline().instants if i.is_completed}
    return done.time


def _kind(stat: WriteStat) -> FileKind:
    if parse_log_file_name(stat.file_name) is not None:
        return FileKind.APPEND
    return FileKind.CREATE if stat.prev_commit == "null" else FileKind.MERGE
