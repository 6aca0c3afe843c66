"""Which file groups take inserts: as the table is now, and as our own commits change it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tagstream.streaming.write.small_files import SmallFiles
from tagstream.table.meta_client.table_config import COPY_ON_WRITE
from tests.table.writer import Writer, row


def small_files() -> SmallFiles:
    return SmallFiles(
        merge_on_read=False,
        small_limit=1 << 20,
        max_bytes=1 << 21,
        base_only=False,
        record_bytes=100,
        log_ratio=0.35,
        trust_share=1.0,
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
