"""Tables that tests bring to other versions, and what must stay the same of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from tagstream.table.history.archive import archive
from tagstream.table.history.archive_log import read_archive
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.upgrade import VersionChange, downgrade, upgrade
from tagstream.table.services.upgrade_layouts import place_of
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tests.support.table_version import using
from tests.table.writer import Writer, row

NOW = 1_800_000_000_000


def clock() -> Callable[[], int]:
    times = itertools.count(NOW, 7)
    return lambda: next(times)


def change(table: HoodieTable, to: int) -> VersionChange:
    direction = upgrade if to >= table.config.version else downgrade
    return direction(table, to, clock())


def written(folder: Path, version: int, kind: str = "COPY_ON_WRITE", archived: int = 2) -> Writer:
    """Commits with updates, moves and deletes, the oldest of them archived."""
    with using(version):
        writer = Writer.create(folder, kind)
    for number in range(1, 6):
        writer.write(
            [row(key, f"p{key % 2}", number) for key in range(number, number + 4)], ["k2"] if number == 3 else []
        )
    instants = writer.table.timeline().completed_writes
    archive(place_of(writer.table), instants[:archived])
    return writer


def history(table: HoodieTable) -> list[tuple[str, CommitMetadata]]:
    """Every completed write, archived ones included, with what it says."""
    timeline = table.timeline()
    active = [(i.time, timeline.metadata(table.storage, i)) for i in timeline.completed_writes]
    if table.config.has_completion_times:
        actions = list(table.history().actions())
    else:
        actions = list(read_archive(table.storage, table.config.history_folder))
    old = [
        (a.time, CommitMetadata.from_bytes(a.metadata or b"", a.time)) for a in actions if a.action.endswith("commit")
    ]
    return [*old, *active]


def rows(table: HoodieTable, as_of: str | None = None) -> pa.Table:
    return read_snapshot(table.reload(), as_of=as_of).sort_by("id")
