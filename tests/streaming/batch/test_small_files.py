"""Which file groups take inserts: as the table is now, and as our own commits change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tagstream.streaming.batch.small_files import SmallFiles
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.timeline.commit_metadata import WriteStatus
from tagstream.table.write.file_sizes import FileSizeOptions
from tests.table.writer import Writer, row


def small_files() -> SmallFiles:
    return SmallFiles(
        FileSizeOptions(max_file_bytes=1 << 21, small_file_limit=1 << 20, record_bytes=100),
        merge_on_read=False,
        base_only=False,
    )


def test_a_file_group_that_another_writer_replaced_takes_no_inserts_any_more(tmp_path: Path) -> None:
    """A job looks again after another writer's clustering; it went on with the group that was gone, for ever."""
    writer = Writer.create(tmp_path, COPY_ON_WRITE, groups=1)
    writer.write([row(1, "p0", 1)])
    files = small_files()
    files.load(writer.table.view())
    (before,) = (small.file_id for small in files.profile()["p0"])
    assert before == writer.where["k1"][1]

    timeline = writer.table.timeline()
    replaced = replace(timeline, replaced={("p0", before): timeline.newest_completed or ""})
    files.load(writer.table.view(replaced))
    assert files.profile().get("p0", ()) == ()


def on_read(writer: Writer, *, needs_base: bool = False, max_bytes: int = 1 << 30) -> SmallFiles:
    files = SmallFiles(
        FileSizeOptions(max_file_bytes=max_bytes, small_file_limit=1 << 20, record_bytes=100),
        merge_on_read=True, base_only=False, needs_base=needs_base,
    )  # fmt: skip
    files.load(writer.table.view())
    return files


def taking(files: SmallFiles) -> set[str]:
    return {small.file_id for small in files.profile().get("p0", ())}


def test_a_full_group_takes_no_inserts_after_an_update_either(tmp_path: Path) -> None:
    """It was taken for one that a log file has just begun, and grew without end."""
    writer = Writer.without_metadata(tmp_path, MERGE_ON_READ, groups=1).with_options(inserts_to_base_files=True)
    writer.write([row(n, "p0", 1) for n in range(50)])
    files = on_read(writer, max_bytes=1_000)
    assert taking(files) == set()
    writer.before_complete = lambda _, statuses, __: files.apply(statuses)
    writer.with_options(inserts_to_base_files=False).write([row(1, "p0", 2)])
    assert taking(files) == set()


def test_a_new_group_of_logs_takes_inserts_but_not_where_groups_need_a_base_file(tmp_path: Path) -> None:
    writer = Writer.without_metadata(tmp_path, MERGE_ON_READ, groups=1)
    plain, needing = on_read(writer), on_read(writer, needs_base=True)

    def both(_: str, statuses: Sequence[WriteStatus], __: object) -> None:
        plain.apply(statuses)
        needing.apply(statuses)

    writer.before_complete = both
    writer.write([row(1, "p0", 1)])
    group = writer.where["k1"][1]
    assert (taking(plain), taking(needing)) == ({group}, set())
    assert (taking(on_read(writer)), taking(on_read(writer, needs_base=True))) == ({group}, set())


def test_a_group_with_base_file_and_logs_takes_inserts_where_groups_need_a_base_file(tmp_path: Path) -> None:
    writer = Writer.without_metadata(tmp_path, MERGE_ON_READ, groups=1).with_options(groups_begin_with_base_files=True)
    files = on_read(writer, needs_base=True)
    writer.before_complete = lambda _, statuses, __: files.apply(statuses)
    for time in (1, 2):
        writer.write([row(1, "p0", time)])
        assert taking(files) == taking(on_read(writer, needs_base=True)) == {writer.where["k1"][1]}
