"""Where rows of a file group go: base file or log, and what is refused because another writer was there."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tagstream.table.errors import ForeignCommitError, InstantConflictError
from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.file_group.log_file import scan_log_file
from tagstream.table.file_group.log_format import BlockType
from tagstream.table.file_group.names import next_instant
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.schema.schema import arrow_to_avro, avro_to_arrow
from tagstream.table.services.failed_writes import sweep
from tagstream.table.services.rollback import rollback
from tagstream.table.services.validate import validate
from tagstream.table.timeline.commit_metadata import CommitMetadata, FileKind
from tagstream.table.write import commit
from tagstream.table.write.file_writer import append, write_file_group
from tagstream.table.write.markers import begin_data_file, staged_path
from tagstream.table.write.write_context import WriteContext
from tests.support.stored import stored
from tests.table.reference import unpack
from tests.table.writer import SCHEMA, Writer, delete_rows, row

NOTHING = delete_rows([])


def context(writer: Writer, instant: str = "20270101000000000") -> WriteContext:
    timeline = writer.table.timeline()
    if timeline.find(instant) is None:
        commit.request(writer.table, instant, writer.action)
        commit.inflight(writer.table, instant, writer.action)
    avro = json.dumps(arrow_to_avro(SCHEMA, "t"))
    return WriteContext(
        instant, writer.action, 0, "0-0-1", SCHEMA, avro, timeline.newest_completed, timeline, writer.options
    )


def upserts(writer: Writer, *keys: int, insert: bool = True) -> pa.Table:
    return writer.rows([{**row(key, "p0", 1), "_is_insert": insert} for key in keys])


def slice_of(writer: Writer, key: str) -> FileSlice | None:
    return writer.table.view().latest_slice(*writer.where[key])


@pytest.fixture
def mor(tmp_path: Path) -> Writer:
    return Writer.create(tmp_path, MERGE_ON_READ, groups=1).with_options(inserts_to_base_files=False)


def test_nothing_to_write_writes_nothing(mor: Writer) -> None:
    assert write_file_group(mor.table, context(mor), "p0", "f-0", None, upserts(mor), NOTHING) == []
    assert mor.table.storage.list("p0") == []


def test_columns_are_checked(mor: Writer) -> None:
    with pytest.raises(ValueError, match="_is_insert"):
        write_file_group(mor.table, context(mor), "p0", "f", None, upserts(mor, 1).drop_columns("_is_insert"), NOTHING)
    with pytest.raises(ValueError, match="_ordering"):
        write_file_group(mor.table, context(mor), "p0", "f", None, upserts(mor, 1), NOTHING.drop_columns("_ordering"))


def test_a_new_group_on_merge_on_read_begins_with_a_log(mor: Writer) -> None:
    (status,) = write_file_group(mor.table, context(mor), "p0", "f-0", None, upserts(mor, 1, 2), NOTHING)
    assert status.kind is FileKind.APPEND
    stat = status.stat
    assert stat.file_name == ".f-0_20270101000000000.log.1_0-0-1"
    assert (stat.prev_commit, stat.base_file, stat.log_files) == ("20270101000000000", "", (stat.file_name,))
    assert (stat.num_writes, stat.num_inserts, stat.num_updates, stat.num_deletes) == (2, 2, 0, 0)
    assert stat.file_size == mor.table.storage.size(staged_path("20270101000000000", stat.path))


def test_inserts_go_to_base_files_where_asked_for(mor: Writer) -> None:
    mor.with_options(inserts_to_base_files=True)
    kinds = []
    for keys in ([1, 2], [3], [1]):  # new group, insert into a group without logs, update
        mor.write([row(key, "p0", 1) for key in keys])
        (newest,) = (
            mor.table.timeline().metadata(mor.table.storage, mor.table.timeline().completed_writes[-1]).all_stats()
        )
        kinds.append("log" if newest.log_version else "base")
    assert kinds == ["base", "base", "log"]
    mor.write([row(4, "p0", 1)])  # the group has a log now: merging it away would be a compaction
    (found,) = mor.table.view().latest_merged_slices("p0")
    assert len(found.log_files) == 2


def test_a_group_begins_with_a_base_file_where_asked_for_and_later_inserts_go_to_its_logs(mor: Writer) -> None:
    mor.with_options(groups_begin_with_base_files=True)
    for keys in ([1, 2], [3], [1, 4]):
        mor.write([row(key, "p0", 1) for key in keys])
    (found,) = mor.table.view().latest_merged_slices("p0")
    assert found.base_file is not None
    assert len(found.log_files) == 2
    assert sorted(read_snapshot(mor.table, ["id"]).column("id").to_pylist()) == ["k1", "k2", "k3", "k4"]


def test_deletes_with_and_without_ordering_are_in_blocks_of_their_own(mor: Writer) -> None:
    mor.write([row(n, "p0", 5) for n in range(4)])
    mor.write(deletes=["k0", "k1", "k2"], orderings={"k0": 7, "k1": 8})
    (found,) = mor.table.view().latest_merged_slices("p0")
    blocks = list(scan_log_file(mor.table.storage, found.log_paths[-1]))
    assert [(b.type.name, len(b.deletes(pa.int64()))) for b in blocks] == [("DELETE", 1), ("DELETE", 2)]
    assert read_snapshot(mor.table, ["id"]).column("id").to_pylist() == ["k3"]


def test_large_data_is_cut_into_blocks(mor: Writer) -> None:
    mor.with_options(data_block_bytes=2_000)
    mor.write([row(n, "p0", 1) for n in range(100)])
    (found,) = mor.table.view().latest_merged_slices("p0")
    blocks = list(scan_log_file(mor.table.storage, found.log_paths[0]))
    assert len(blocks) > 3
    assert sum(b.read_table().num_rows for b in blocks) == 100
    assert {r["id"]: r for r in read_snapshot(mor.table, SCHEMA.names).to_pylist()} == mor.live


@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
def test_a_group_the_index_knows_and_the_table_does_not(table_type: str, tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, table_type).with_options(inserts_to_base_files=False)
    ctx = context(writer)
    for rows, gone in ((upserts(writer), delete_rows([("k1", 1)])), (upserts(writer, 1, insert=False), NOTHING)):
        with pytest.raises(ForeignCommitError, match="another writer replaced it"):
            write_file_group(writer.table, ctx, "p0", "f-0", None, rows, gone)
    assert not Path(writer.table.base_path, "p0").exists()


def test_a_replaced_group_takes_no_rows(tmp_path: Path) -> None:
    table = HoodieTable.open(str(unpack("cow_v6_complexkey_replace", tmp_path)))
    timeline = table.timeline()
    (partition, file_id), _ = next(iter(timeline.replaced.items()))
    avro = table.schema_json(timeline) or ""
    schema = avro_to_arrow(avro)
    newest = timeline.newest_completed
    ctx = WriteContext(next_instant(0, timeline.newest), "commit", 0, "0-0-1", schema, avro, newest, timeline)
    rows = schema.empty_table().from_pylist([dict.fromkeys(schema.names)], schema=schema)
    rows = rows.append_column("_hoodie_record_key", [["k"]]).append_column("_is_insert", [[True]])
    with pytest.raises(ForeignCommitError, match=file_id):
        write_file_group(table, ctx, partition, file_id, None, rows, NOTHING)


def test_two_attempts_stage_the_same_log_version_under_names_of_their_own(mor: Writer) -> None:
    mor.write([row(1, "p0", 1)])
    file_id = mor.where["k1"][1]
    names = []
    for token in ("0-1-1", "0-1-2"):
        ctx = replace(context(mor), write_token=token)
        (found,) = mor.table.view(ctx.timeline, ctx.as_of).latest_merged_slices("p0")
        stat = append(mor.table, ctx, found, upserts(mor, 1, insert=False), NOTHING, 0).stat
        version = 1 if mor.table.config.names_logs_by_commit else 2
        assert (stat.file_id, stat.log_version, len(stat.log_files)) == (file_id, version, 1)
        names.append(stat.path)
    assert all(mor.table.storage.exists(staged_path(ctx.instant, name)) for name in names)
    assert names[0].removesuffix("0-1-1") == names[1].removesuffix("0-1-2")


def test_sequence_numbers_go_on_from_the_rows_before(mor: Writer) -> None:
    ctx = context(mor)
    write_file_group(mor.table, ctx, "p0", "f-0", None, upserts(mor, 1, 2), NOTHING)
    (status,) = write_file_group(mor.table, ctx, "p0", "g-0", None, upserts(mor, 3), NOTHING, first_row=2)
    (block,) = scan_log_file(mor.table.storage, staged_path(ctx.instant, status.stat.path))
    assert block.read_table().column("_hoodie_commit_seqno").to_pylist() == [f"{ctx.instant}_0_2"]


def test_new_deltas_go_onto_the_slice_of_a_pending_compaction(tmp_path: Path) -> None:
    table = HoodieTable.open(str(unpack("mor_v6_compaction_pending", tmp_path)))
    timeline = table.timeline()
    (partition, file_id), pending = next(iter(timeline.pending_compactions.items()))
    # As of a commit before the plan was made: the writer's base instant is the plan's all the same.
    for as_of in (timeline.newest_completed, timeline.completed_writes[0].time):
        found = table.view(timeline, as_of).latest_slice(partition, file_id)
        assert found is not None
        assert found.base_instant == pending
        assert found.base_file is not None
        assert found.base_file.instant < pending


def test_dates_in_delete_blocks_are_numbers(tmp_path: Path) -> None:
    """Hudi 1.2 cannot compare a DateWrapper with a row's date (found by reading such a table with it)."""
    writer = Writer.create(tmp_path, MERGE_ON_READ).with_options(inserts_to_base_files=False)
    writer.schema = SCHEMA.set(2, pa.field("ver", pa.date32()))
    day = dt.date(2026, 1, 1)
    writer.write([{**row(n, "p0", 0), "ver": day} for n in range(2)])
    ctx = replace(context(writer), schema=writer.schema, avro_json=json.dumps(arrow_to_avro(writer.schema, "t")))
    gone = pa.table({"_hoodie_record_key": ["k0"], "_ordering": pa.array([day], pa.date32())})
    (status,) = write_file_group(writer.table, ctx, *writer.where["k0"], slice_of(writer, "k0"), writer.rows([]), gone)
    (block,) = scan_log_file(writer.table.storage, staged_path(ctx.instant, status.stat.path))
    assert block.deletes().orderings == pa.array([day], pa.date32()).cast(pa.int32())
    assert block.deletes(pa.date32()).orderings == pa.array([day], pa.date32())


def test_a_text_ordering_column_makes_avro_blocks(tmp_path: Path) -> None:
    """Hudi 1.2 loses updates of such tables in Parquet blocks."""
    texts = SCHEMA.set(SCHEMA.get_field_index("ver"), pa.field("ver", pa.string()))
    writer = Writer.create(tmp_path, MERGE_ON_READ, schema=texts, groups=1).with_options(inserts_to_base_files=False)
    writer.write([{**row(n, "p0", 0), "ver": f"v{n}"} for n in range(3)])
    writer.write([{**row(1, "p0", 0), "ver": "v9"}], ["k2"], {"k2": "v9"})
    first, second = sorted(Path(writer.table.base_path, "p0").glob(".*log*"))
    assert [block.type for block in scan_log_file(*stored(first))] == [BlockType.AVRO_DATA]
    assert [block.type for block in scan_log_file(*stored(second))] == [BlockType.AVRO_DATA, BlockType.DELETE]
    found = read_snapshot(writer.table).sort_by("id")
    assert found.select(["id", "ver"]).to_pylist() == [{"id": "k0", "ver": "v0"}, {"id": "k1", "ver": "v9"}]


@pytest.mark.parametrize("settled", ["completed", "rolled back"])
@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
def test_what_comes_too_late_never_gets_into_the_table(tmp_path: Path, table_type: str, settled: str) -> None:
    """A task stood still while its instant was settled. What it stages then is swept away."""
    writer = Writer.create(tmp_path, table_type).with_options(inserts_to_base_files=False)
    ctx = context(writer)
    table = writer.table
    begun = begin_data_file(table, ctx, "p0", "f-0_0-0-1_1.parquet")
    if settled == "completed":
        commit.complete(table, ctx.instant, ctx.action, CommitMetadata())
    else:
        rollback(table, ctx.instant, next_instant(0, ctx.instant))
    table.storage.replace(begun, b"a file")
    if settled == "completed":
        write_file_group(table, ctx, "p0", "g-0", None, upserts(writer, 1), NOTHING)
    else:
        with pytest.raises(InstantConflictError, match="none of its files is published"):
            write_file_group(table, ctx, "p0", "g-0", None, upserts(writer, 1), NOTHING)
    assert [p for p in Path(table.base_path).iterdir() if p.name != ".hoodie"] == []
    assert sweep(table) == []
    assert validate(table) == []
    assert not list((tmp_path).rglob("*.staged"))
