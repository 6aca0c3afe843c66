"""What tests of both archives need: what is archived in a table, and a log that only the archive can tell the slice of."""

from __future__ import annotations

from pathlib import Path

from tagstream.table.history.archive_log import read_archive
from tagstream.table.meta_client.hoodie_table import HoodieTable


def archived_times(table: HoodieTable) -> list[str]:
    """The times of the archived actions."""
    if table.config.has_completion_times:
        return [action.time for action in table.history().actions()]
    return [action.time for action in read_archive(table.storage, table.config.history_folder)]


def begin_before_its_base_file(table: HoodieTable) -> str:
    """Make a delta commit over a base file one that was begun just before that was planned, as a writer beside a compaction.

    Its new time. It is still completed after the base file's instant, so its log belongs to the same slice.
    """
    view = table.view()
    found = [s for p in view.partitions() for s in view.latest_merged_slices(p) if s.base_file and s.log_files]
    assert found[0].base_file is not None
    old, new = found[0].log_files[0].time, str(int(found[0].base_file.instant) - 1)
    base = Path(table.base_path)
    for path in [*base.glob(".hoodie/timeline/*"), *base.glob("p*/.*")]:
        if old in path.name:
            path.rename(path.with_name(path.name.replace(old, new)))
    return new
