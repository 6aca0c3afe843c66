"""What a merge puts into the change file of its base file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tagstream.table.file_group.change_file import LoggingMode, read_change_file
from tagstream.table.file_group.log_file import scan_log_file
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.timeline.commit_metadata import WriteStat
from tagstream.table.write import change_log
from tests.table.writer import CrashError, Row, Writer, row

LOGS = {"change_logging": LoggingMode.DATA_BEFORE_AFTER}


def new_writer(folder: Path, table_type: str = COPY_ON_WRITE) -> Writer:
    return Writer.create(folder, table_type, groups=1, settings=LOGS)


def newest_stats(writer: Writer) -> list[WriteStat]:
    timeline = writer.table.timeline()
    return timeline.metadata(writer.table.storage, timeline.completed_writes[-1]).all_stats()


def changed(writer: Writer) -> list[tuple[str, Row | None, Row | None]]:
    """The changes that the newest commit has logged, with the sizes of the files checked."""
    found = []
    for stat in newest_stats(writer):
        for rel, size in stat.change_files.items():
            assert writer.table.storage.size(rel) == size
            found += [
                (r["op"], r["before"], r["after"]) for r in read_change_file(writer.table.storage, rel).to_pylist()
            ]
    return sorted(found, key=str)


def test_updates_deletes_and_inserts_of_one_file_group(tmp_path: Path) -> None:
    writer = new_writer(tmp_path)
    old = [row(n, "p0", 1) for n in range(4)]
    writer.write(old)
    assert [stat.change_files for stat in newest_stats(writer)] == [{}]  # readers infer the inserts of a new file group
    new, more = row(1, "p0", 2, "new"), row(9, "p0", 2)
    writer.write([new, more], ["k2"])
    assert changed(writer) == sorted([("u", old[1], new), ("d", old[2], None), ("i", None, more)], key=str)
    (stat,) = newest_stats(writer)
    assert (stat.num_writes, stat.num_inserts, stat.num_updates, stat.num_deletes) == (4, 1, 1, 1)


def test_a_move_is_a_delete_and_an_insert(tmp_path: Path) -> None:
    writer = new_writer(tmp_path)
    old, other, moved = row(1, "p0", 1), row(2, "p1", 1), row(1, "p1", 2)
    writer.write([old, other])
    writer.write([moved])
    assert changed(writer) == sorted([("d", old, None), ("i", None, moved)], key=str)


def test_late_rows_change_nothing_and_the_file_says_so(tmp_path: Path) -> None:
    """Without any change file Hudi's reader would fail on the new base file."""
    writer = new_writer(tmp_path)
    writer.write([row(1, "p0", 5), row(2, "p0", 5)])
    writer.with_options(compare_ordering=True)
    writer.write([row(1, "p0", 3, "late")])
    assert changed(writer) == []
    assert len(newest_stats(writer)[0].change_files) == 1
    writer.write([row(1, "p0", 3, "late"), row(2, "p0", 6, "timely")])
    assert [(op, after["name"]) for op, _, after in changed(writer) if after] == [("u", "timely")]


def test_a_key_twice_in_a_file_is_updated_once(tmp_path: Path) -> None:
    writer = new_writer(tmp_path)
    old = row(1, "p0", 1)
    # Two rows of one key, as after a bulk insert of Hudi.
    writer.rows = lambda rows: Writer.rows(writer, [*rows, *rows])  # type: ignore[method-assign]
    writer.write([old])
    del writer.rows
    new = row(1, "p0", 2)
    writer.write([new])
    assert changed(writer) == [("u", old, new)]
    (stat,) = newest_stats(writer)
    assert (stat.num_writes, stat.num_updates, stat.num_deletes) == (1, 1, 1)


def test_changes_are_written_in_blocks_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "_BLOCK_BYTES", 500)
    writer = new_writer(tmp_path)
    writer.write([row(n, "p0", 1) for n in range(40)])
    writer.write([*(row(n, "p0", 2) for n in range(20)), *(row(n, "p0", 2) for n in range(50, 70))])
    (stat,) = newest_stats(writer)
    (rel,) = stat.change_files
    assert len(list(scan_log_file(writer.table.storage, rel))) == 3
    assert sorted(op for op, _, _ in changed(writer)) == ["i"] * 20 + ["u"] * 20


@pytest.mark.parametrize("logs", [LOGS, {}])
def test_what_a_stat_of_a_log_names(logs: dict[str, Any], tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, MERGE_ON_READ, groups=1, settings=logs)
    writer.with_options(groups_begin_with_base_files=True)
    writer.write([row(1, "p0", 1)])
    base = newest_stats(writer)[0].file_name
    names: list[str] = []
    for version in (2, 3):
        writer.write([row(1, "p0", version)])
        (stat,) = newest_stats(writer)
        names.append(stat.file_name)
        assert stat.log_files == (tuple(names) if logs else (stat.file_name,))
        assert stat.base_file == base if logs else stat.base_file in ("", base)


def test_file_groups_of_a_table_with_logs_begin_with_a_base_file(tmp_path: Path) -> None:
    writer = new_writer(tmp_path, MERGE_ON_READ)
    writer.write([row(1, "p0", 1)])
    assert [stat.log_version for stat in newest_stats(writer)] == [None]


@pytest.mark.extended("each step", first=("MERGE_ON_READ-publish", "COPY_ON_WRITE-told"))
@pytest.mark.parametrize("step", ["request", "inflight", "files", "publish", "told"])
@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
def test_a_rollback_leaves_no_change_file(table_type: str, step: str, tmp_path: Path) -> None:
    writer = new_writer(tmp_path, table_type)
    writer.with_options(inserts_to_base_files=True)
    writer.write([row(n, "p0", 1) for n in range(3)])
    before = {p for p in (tmp_path / "t").rglob("*") if p.is_file() and ".hoodie" not in p.parts}
    with pytest.raises(CrashError):
        writer.write([row(1, "p0", 2), row(9, "p0", 2)], crash=step)
    writer.rollback_pending()
    assert {p for p in (tmp_path / "t").rglob("*") if p.is_file() and ".hoodie" not in p.parts} == before
    assert not list((tmp_path / "t" / ".hoodie" / ".temp").rglob("*.cdc*"))
    writer.write([row(1, "p0", 2), row(9, "p0", 2)])
    assert sorted(op for op, _, _ in changed(writer)) == ["i", "u"]
