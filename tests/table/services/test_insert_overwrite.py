"""Partitions replaced by other rows: by readers, the metadata table, a clean, and cut off at each change."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tagstream.table.errors import InstantConflictError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.metadata.record_index import RecordIndex
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.cleaning import clean
from tagstream.table.services.failed_writes import sweep
from tagstream.table.services.insert_overwrite import roll_back_interrupted
from tagstream.table.services.options import CleanOptions
from tagstream.table.services.replaced_partitions import delete_partitions
from tagstream.table.services.validate_metadata import validate_metadata
from tests.support.hudi_rs import keys_found_twice, read_table
from tests.support.table_version import table_version
from tests.table.history.crashes import cut_off_at_each_change
from tests.table.metadata.case import Case
from tests.table.services.compacting import plan_compaction
from tests.table.services.overwriting import follow, overwrite
from tests.table.services.tables import clock, data_files, live, rounds, rows
from tests.table.services.test_delete_partition import good
from tests.table.writer import Writer, row

pytestmark = pytest.mark.table_versions(6, 8, 9)


@pytest.mark.extended("more kinds of tables", first=("v6-COPY_ON_WRITE", "v9-MERGE_ON_READ"))
@pytest.mark.parametrize("kind", [COPY_ON_WRITE, MERGE_ON_READ])
def test_a_partition_is_replaced_and_writing_goes_on(kind: str, tmp_path: Path) -> None:
    case = Case.create(tmp_path, kind, table_version())
    writer = case.writer
    rounds(writer, 2, keys=9)
    # a key that stays, one that comes from a partition that is replaced, too, new ones, and a new partition
    new = [row(1, "p1", 50), row(0, "p1", 50), row(20, "p1", 50), row(21, "p0", 50), row(22, "p7", 50)]
    result = overwrite(writer.table, new, clock(writer.now_ms))
    assert set(result.replaced) == {"p0", "p1"}
    follow(writer, new, result, ["p0", "p1"])
    good(writer)
    case.check()
    metadata = writer.table.timeline().metadata(writer.table.storage, writer.table.timeline().completed_writes[-1])
    assert metadata.operation == "INSERT_OVERWRITE"
    found = read_table(writer.table.base_path)
    assert keys_found_twice(found).num_rows == 0
    own = found.to_pylist()
    assert {r["_hoodie_commit_time"] for r in own} == {result.instant}
    assert {r["_hoodie_record_key"]: r["_hoodie_partition_path"] for r in own} == {
        k: p for k, (p, _) in writer.where.items()
    }
    assert len({r["_hoodie_commit_seqno"] for r in own}) == len(own)
    files = {name for names in data_files(writer.table).values() for name in names}
    assert {r["_hoodie_file_name"] for r in own} <= files
    writer.write([row(1, "p1", 60), row(30, "p1", 60)], ["k20"])
    case.check()
    if kind == COPY_ON_WRITE:  # hudi-rs has a log-only file group else
        good(writer)
    writer.write([row(1, "p1", 61)])
    assert clean(writer.table, CleanOptions(commits=1), clock()) is not None
    left = {name for names in data_files(writer.table).values() for name in names}
    assert not {file_id for ids in result.replaced.values() for file_id in ids} & {n.partition("_")[0] for n in left}
    assert rows(writer.table) == live(writer)
    case.check()


def test_a_named_partition_goes_without_a_row_and_a_table_as_a_whole(tmp_path: Path) -> None:
    case = Case.create(tmp_path, COPY_ON_WRITE, table_version(), {"files": 1, "record_index": 2})
    writer = case.writer
    rounds(writer, 1, keys=8)
    new = [row(40, "p0", 50)]
    result = overwrite(writer.table, new, clock(writer.now_ms), ["p0", "p1"])
    follow(writer, new, result, ["p0", "p1"])
    good(writer)
    case.check()
    writer.write([row(1, "p1", 60), row(2, "p2", 60)])
    new = [row(50, "p5", 70)]
    result = overwrite(writer.table, new, clock(writer.now_ms), whole_table=True)
    follow(writer, new, result, ["p0", "p1", "p2"])
    good(writer)
    case.check()
    newest = writer.table.timeline().completed_writes[-1]
    assert writer.table.timeline().metadata(writer.table.storage, newest).operation == "INSERT_OVERWRITE_TABLE"


@pytest.mark.table_versions(9)
def test_a_record_index_by_partition(tmp_path: Path) -> None:
    case = Case.create(tmp_path, MERGE_ON_READ, 9, {"files": 1, "record_index": 1}, by_partition=True)
    writer = case.writer
    writer.write([row(1, "p0", 1), row(2, "p0", 1), row(3, "p1", 1)])
    new = [row(1, "p0", 5), row(4, "p0", 5)]  # one key stays in its partition, one goes, one is new
    result = overwrite(writer.table, new, clock(writer.now_ms), ["p0"])
    follow(writer, new, result, ["p0"])
    assert validate_metadata(writer.table) == []
    delete_partitions(writer.table, ["p0"], clock(writer.now_ms))
    assert validate_metadata(writer.table) == []
    index = RecordIndex.open(case.metadata)
    assert index is not None
    assert index.lookup(pa.array(["k1", "k4"]), "p0").num_rows == 0


def test_an_empty_table_and_several_files_a_partition(tmp_path: Path) -> None:
    """More rows than memory, and than a file has: each is in one file, and read back."""
    writer = Writer.create(tmp_path, MERGE_ON_READ)
    new = [row(f"{n:05d}", f"p{n % 3}", n) for n in range(3000)]
    result = overwrite(writer.table, new, clock(), max_file_bytes=300 * 1024, memory=1000)
    assert result.replaced == {}
    assert len(result.statuses) == 3 * 4  # of a thousand rows, at 1024 bytes each until files tell
    assert rows(writer.table) == sorted(new, key=lambda r: (r["id"], r["part"]))
    assert read_table(writer.table.base_path).num_rows == 3000
    times = read_snapshot(writer.table, columns=["_hoodie_commit_seqno"]).column(0)
    assert len(times.unique()) == 3000


@pytest.mark.extended("more kinds of tables", first=("v6-MERGE_ON_READ", "v9-COPY_ON_WRITE"))
@pytest.mark.parametrize("kind", [COPY_ON_WRITE, MERGE_ON_READ])
def test_the_first_action_of_a_table(kind: str, tmp_path: Path) -> None:
    """The table's properties have no schema, as those of a table that a DataFrame of Hudi made: the rows bring it."""
    case = Case.create(tmp_path, kind, table_version())
    writer = case.writer
    drop_property(writer.table, "hoodie.table.create.schema")
    writer.table = writer.table.reload()
    assert writer.table.schema_json() is None
    new = [row(n, f"p{n % 2}", 1) for n in range(8)]
    result = overwrite(writer.table, new, clock(writer.now_ms))
    follow(writer, new, result, [])
    writer.table = writer.table.reload()
    case.check()
    good(writer)
    writer.write([row(1, "p1", 60), row(30, "p1", 60)], ["k2"])
    assert delete_partitions(writer.table, ["p0"], clock(writer.now_ms)) is not None
    writer.live = {key: found for key, found in writer.live.items() if found["part"] != "p0"}
    writer.where = {key: place for key, place in writer.where.items() if place[0] != "p0"}
    case.check()
    assert validate_metadata(writer.table) == []


def drop_property(table: HoodieTable, key: str) -> None:
    """Take one of the table's properties away."""
    path = Path(table.base_path, ".hoodie/hoodie.properties")
    path.write_text("".join(line for line in path.read_text().splitlines(True) if not line.startswith(f"{key}=")))


def test_a_pending_plan_is_in_the_way(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, MERGE_ON_READ)
    rounds(writer, 1)
    plan_compaction(writer)
    with pytest.raises(InstantConflictError, match="is pending for file groups"):
        overwrite(writer.table, [row(1, "p1", 9)], clock())
    assert not writer.table.timeline().pending_writes


@pytest.mark.extended("every change of the store is the last one, for more kinds of tables", first=("v9",))
def test_it_can_be_cut_off_anywhere(tmp_path: Path) -> None:
    case = Case.create(tmp_path, MERGE_ON_READ, table_version(), {"files": 1, "record_index": 2})
    writer = case.writer
    rounds(writer, 2)
    before, times = live(writer), clock(writer.now_ms)
    new = [row(1, "p1", 50), row(9, "p1", 50)]
    after = sorted([*(r for r in before if r["part"] != "p1"), *new], key=lambda r: str(r["id"]))
    last = []

    def check(_: int) -> None:
        assert rows(writer.table) in (before, after)
        roll_back_interrupted(writer.table, times)

    def work(cut: HoodieTable) -> None:
        roll_back_interrupted(cut, times)
        last.append(overwrite(cut, new, times))

    cut_off_at_each_change(writer.table.storage, lambda cut: work(HoodieTable.open(cut)), check)
    follow(writer, new, last[-1], ["p1"])
    for pending in writer.table.timeline().pending_writes:
        assert not writer.table.storage.exists(writer.timeline_rel(f"{pending.time}.replacecommit.inflight"))
    writer.rollback_pending()  # requests of which nothing tells who made them, as of any writer
    sweep(writer.table)
    good(writer)
    case.check()
