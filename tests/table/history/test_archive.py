"""The archive of version 6, real and ours; and instants moved to it, in both layouts, whatever cuts it off."""

from __future__ import annotations

import io
import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tagstream.table.errors import CorruptFileError, InstantConflictError
from tagstream.table.file_group.log_file import scan_log_file
from tagstream.table.file_group.log_format import BlockType, HeaderKey, encode_block
from tagstream.table.history.action_files import ArchivedAction, to_avro
from tagstream.table.history.archive import archive
from tagstream.table.history.archive_log import (
    action_of,
    archive_files,
    entries_of,
    key_of,
    read_archive,
    read_entries,
    write_archive,
)
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.upgrade_layouts import place_of
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.timeline.avro_timeline import read_record
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tests.table.history.archives import archived_times, begin_before_its_base_file
from tests.table.history.crashes import cut_off_at_each_change
from tests.table.reference import unpack
from tests.table.writer import CrashError, Writer, row

FOLDER = "archived"
REAL = [("mor_v6_services_015", 14), ("cow_v6_nonpart_simplebloom", 6)]


@pytest.mark.parametrize(("name", "count"), REAL)
def test_a_real_archive_is_read_and_written_again(name: str, count: int, tmp_path: Path) -> None:
    table = HoodieTable.open(str(unpack(name, tmp_path)))
    folder = table.config.history_folder
    actions = list(read_archive(table.storage, folder))
    assert len(actions) == count
    assert [a.key for a in actions] == sorted(a.key for a in actions)
    for action in actions:
        assert action.metadata is not None
        assert action.completion_time is not None
        content = read_record(action.metadata, action.time)
        if action.action in ("commit", "deltacommit", "replacecommit"):
            assert CommitMetadata.from_bytes(action.metadata, action.time).extra["schema"]
            assert (action.plan is not None) == (action.planned_by in ("compaction", "replacecommit"))
        else:
            assert content["startCleanTime"] == action.time
            assert action.plan is not None
    again = PosixStorage(str(tmp_path / "again"))
    assert write_archive(again, FOLDER, (entries_of(a, a.time) for a in actions)) == ".commits_.archive.1_1-0-1"
    assert list(read_archive(again, FOLDER)) == actions
    assert write_archive(again, FOLDER, (entries_of(a, a.time) for a in actions)) is None


@pytest.mark.parametrize("name", [name for name, _ in REAL])
def test_our_records_of_a_real_action_are_hudis(name: str, tmp_path: Path) -> None:
    table = HoodieTable.open(str(unpack(name, tmp_path)))
    folder = table.config.history_folder
    by_action: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for file in archive_files(table.storage, folder):
        for entry in read_entries(table.storage, f"{folder}/{file}"):
            by_action.setdefault(key_of(entry), []).append(entry)
    for entries in by_action.values():
        action = action_of(entries, "there")
        assert action is not None
        for ours, theirs in zip(entries_of(action, "there"), entries, strict=True):
            wanted = {k: v for k, v in theirs.items() if v is not None and k != "stateTransitionTime"}
            found = {k: v for k, v in ours.items() if v is not None and k != "stateTransitionTime"}
            if theirs["actionState"] != "COMPLETED":  # of a commit only the plan and the completed file are kept
                for member in ("hoodieCommitMetadata", "HoodieInflightReplaceMetadata"):
                    wanted.pop(member, None)
            assert _without_nulls(found) == _without_nulls(wanted), theirs["commitTime"]


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v not in (None, 0, False)}
    return [_without_nulls(v) for v in value] if isinstance(value, list) else value


def test_blocks_have_ten_records_and_a_schema(tmp_path: Path) -> None:
    storage = PosixStorage(str(tmp_path))
    actions = [ArchivedAction(f"{n:017d}", "commit", f"{n:017d}", to_avro(b"{}", "x")) for n in range(1, 9)]
    write_archive(storage, FOLDER, [entries_of(a, a.time) for a in reversed(actions)])
    blocks = list(scan_log_file(storage, f"{FOLDER}/.commits_.archive.1_1-0-1"))
    assert [b.type for b in blocks] == [BlockType.AVRO_DATA] * 3
    assert [list(b.header) for b in blocks] == [["SCHEMA"]] * 3
    assert json.loads(blocks[0].header["SCHEMA"])["name"] == "HoodieArchivedMetaEntry"
    assert [int.from_bytes(b.content()[4:8], "big") for b in blocks] == [10, 10, 4]
    assert list(read_archive(storage, FOLDER)) == [replace(a, planned_by="commit") for a in actions]


def test_records_of_the_first_versions_hold_text(tmp_path: Path) -> None:
    """Their members were JSON, and they had no state."""
    storage = PosixStorage(str(tmp_path))
    optional = ["null", "string"]
    schema = {"type": "record", "name": "HoodieArchivedMetaEntry", "fields": [
        {"name": name, "type": optional} for name in ("hoodieCommitMetadata", "commitTime", "actionType")]}  # fmt: skip
    entry = {
        "hoodieCommitMetadata": '{"operationType": "INSERT"}',
        "commitTime": "20200101000000",
        "actionType": "commit",
    }
    storage.write_new(f"{FOLDER}/.commits_.archive.7", _block(schema, entry))
    (found,) = read_archive(storage, FOLDER)
    assert found.metadata is not None
    assert CommitMetadata.from_bytes(found.metadata, "x").operation == "INSERT"
    assert (found.key, found.completion_time) == (("20200101000000", "commit"), None)


def _block(schema: dict[str, Any], *entries: dict[str, Any]) -> bytes:
    content = struct.pack(">ii", 3, len(entries))
    for entry in entries:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), entry)
        content += struct.pack(">i", len(out.getvalue())) + out.getvalue()
    return encode_block(BlockType.AVRO_DATA, {HeaderKey.SCHEMA: json.dumps(schema)}, content)


def test_what_was_cut_off_is_passed_over_and_what_is_broken_is_named(tmp_path: Path) -> None:
    storage = PosixStorage(str(tmp_path))
    actions = [ArchivedAction(f"{n:017d}", "commit", f"{n:017d}", to_avro(b"{}", "x")) for n in range(1, 9)]
    name = write_archive(storage, FOLDER, [entries_of(a, a.time) for a in actions])
    data = storage.read(f"{FOLDER}/{name}")
    storage.replace(f"{FOLDER}/{name}", data[:-40])
    assert [a.time for a in read_archive(storage, FOLDER)] == [a.time for a in actions[:6]]
    # Archived again it is whole, and nothing is there twice.
    write_archive(storage, FOLDER, [entries_of(a, a.time) for a in actions])
    assert [a.time for a in read_archive(storage, FOLDER)] == [a.time for a in actions]
    at = data.index(b'"HoodieCommitMetadata"')
    storage.replace(f"{FOLDER}/{name}", data[:at] + b"x" + data[at + 1 :])
    with pytest.raises(CorruptFileError, match=r"\.commits_\.archive\.1_1-0-1"):
        list(read_archive(storage, FOLDER))


@pytest.fixture(params=["COPY_ON_WRITE", "MERGE_ON_READ"])
def written(request: pytest.FixtureRequest, tmp_path: Path, version: int) -> Writer:
    writer = Writer.create(tmp_path, request.param)
    for number in range(1, 7):
        writer.write([row(key, "p", number) for key in range(number, number + 4)])
    return writer


@pytest.mark.table_versions(6, 8, 9)
def test_archived_instants_are_read_as_before(written: Writer) -> None:
    table = written.table
    instants = table.timeline().completed_writes
    before = read_snapshot(table).sort_by("id")
    removed = archive(place_of(table), instants[:4])
    assert len(removed) == 12
    assert not [n for n in removed[:8] if n.endswith("commit")]
    assert [n.split(".")[0].split("_")[0] for n in removed[8:]] == [i.time for i in instants[:4]]
    assert table.timeline().completed_writes == instants[4:]
    assert archived_times(table) == [i.time for i in instants[:4]]
    assert read_snapshot(table).sort_by("id") == before
    written.write([row(1, "p", 9)])
    assert archive(place_of(table), instants[:4]) == ()


@pytest.mark.table_versions(6, 8, 9)
def test_archiving_can_be_cut_off_anywhere(written: Writer) -> None:
    table = written.table
    instants = table.timeline().completed_writes
    before = read_snapshot(table).sort_by("id")

    def whole(_: int) -> None:
        active = table.timeline()
        assert read_snapshot(table.reload()).sort_by("id") == before
        assert active.pending == ()
        assert set(archived_times(table)) | {i.time for i in active.completed_writes} == {i.time for i in instants}
        # No gap: what is active begins somewhere and is all of the rest.
        assert [i.time for i in active.completed_writes] == [i.time for i in instants][-len(active.completed_writes) :]

    cut_off_at_each_change(table.storage, lambda cut: archive(place_of(HoodieTable.open(cut)), instants[:4]), whole)
    assert archived_times(table) == [i.time for i in instants[:4]]


@pytest.mark.table_versions(6, 9)
def test_only_completed_actions_are_archived(tmp_path: Path, version: int) -> None:
    writer = Writer.create(tmp_path, "COPY_ON_WRITE")
    writer.write([row(1, "p", 1)])
    with pytest.raises(CrashError):
        writer.write([row(1, "p", 2)], crash="files")
    (pending,) = writer.table.timeline().pending
    with pytest.raises(InstantConflictError, match="not completed"):
        archive(place_of(writer.table), [pending])


def test_a_slice_is_found_by_the_completion_time_in_the_history(tmp_path: Path) -> None:
    """A delta commit that was begun before a compaction and ended after it belongs to the compaction's slice."""
    table = HoodieTable.open(str(unpack("mor_v9_services", tmp_path)))
    before = _rows(table)
    moved = begin_before_its_base_file(table)
    table = table.reload()
    with_active = _rows(table)
    assert with_active == before
    timeline = table.timeline()
    chosen = [i for i in timeline.instants if i.is_completed and i.time <= moved]
    archive(place_of(table), chosen)
    assert (table.timeline().start or "") > moved
    assert _rows(table) == with_active
    # Without the history the log would count as completed when it was begun: under the slice before, which nobody reads.
    view = table.view()
    blind = replace(view, archived=None)
    groups = [(p, s.file_id) for p in view.partitions() for s in view.latest_merged_slices(p)]
    assert any(view.latest_slice(*g) != blind.latest_slice(*g) for g in groups)


def _rows(table: HoodieTable) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        read_snapshot(table.reload().without_metadata_table()).sort_by("id").select(["id", "ver"]).to_pylist()
    )
    return found
