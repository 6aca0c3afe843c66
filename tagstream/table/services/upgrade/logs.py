"""Log files of newest slices that another timeline layout would read otherwise: they are compacted before the change.

Up to version 7 a log file is named by the base instant of its slice, from version 8 on by its own delta commit.

**Downwards no log file may be in a newest slice**: a log of version 8 would begin a slice of its own in version 6, and the
base file under it would not be read any more. All of the table is compacted first.

**Upwards log files stay.** Hudi 1.2 compacts here, too, but the names keep their meaning: a log named by base instant B
counts as one of the action B, which was completed after B and before any later base file was begun (``completion`` sees to
that), so it belongs to the slice B, as before. Readers of versions 8 and 9 still skip blocks newer than the instant they
read as of, and still obey rollback blocks. Hudi 1.2 reads such tables, also as of past instants, indexes, updates and
compacts them (tests/interop). What must not stay:

- A compaction that was planned and not run: the logs behind it are named by the plan, which is no completed action. So it is
  carried out.
- Blocks of a failed write in a log of another one: version 6 looks at each block's instant to tell whether it counts,
  version 8 at the log's name alone. So failed writes are rolled back first, which every change does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tagstream.table.errors import ForeignCommitError, UnsupportedTableError
from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.slice_reader import check_mergeable
from tagstream.table.services.compaction.execute import Execute, compact
from tagstream.table.services.compaction.options import CompactionOptions, Strategy
from tagstream.table.services.compaction.plan import schedule_compaction
from tagstream.table.table_version import TableVersion
from tagstream.table.timeline.instant import COMPACTION, LOG_COMPACTION

_ALL = CompactionOptions(strategy=Strategy.UNBOUNDED)


def changes_layout(table: HoodieTable, to: int) -> bool:
    """Whether the change brings another timeline layout, and other names of log files."""
    return table.config.table_version.layout != TableVersion.of(to).layout


def check_logs(table: HoodieTable, to: int) -> int:
    """How many file slices must be compacted before the change; nothing is changed.

    UnsupportedTableError naming what stands in the way of that: a log compaction that was planned and not run, a slice that
    waits for a clustering, settings by which its records cannot be merged here.
    """
    if not changes_layout(table, to):
        return 0
    timeline = table.timeline()
    where = f"table {table.config.name} at {table.base_path}"
    planned = set(timeline.pending_compactions)
    for instant in timeline.pending:
        if instant.action == LOG_COMPACTION:
            raise UnsupportedTableError(
                f"{where} has a log compaction that was planned and not run ({instant.time}): run it, e.g. with Hudi's "
                "run_logcompaction, then begin again"
            )
    if not TableVersion.of(to).has_completion_times:
        for found in slices_with_logs(table):
            clustering = timeline.pending_clusterings.get((found.partition_path, found.file_id))
            if clustering is not None:
                raise UnsupportedTableError(
                    f"{where} has log files in file group {found.file_id} in partition {found.partition_path!r}, which the "
                    f"clustering {clustering} is to move and no compaction may touch: run the clustering, then begin again"
                )
            planned.add((found.partition_path, found.file_id))
    if planned:
        check_mergeable(table)
    return len(planned)


def compact_logs(
    table: HoodieTable, to: int, clock_ms: Callable[[], int], check: Callable[[], None], execute: Execute
) -> int:
    """Run what was planned, and for a downgrade compact all of the table; how many slices got a new base file."""
    if not changes_layout(table, to) or not table.config.is_merge_on_read:
        return 0
    done = 0
    for instant in table.timeline().pending:
        if instant.action == COMPACTION:
            done += len(compact(table, instant.time, clock_ms, check, execute=execute).statuses)
    if not TableVersion.of(to).has_completion_times:
        planned = schedule_compaction(table, _ALL, clock_ms, check, force=True, look_at_all=True)
        if planned is not None:
            done += len(compact(table, planned, clock_ms, check, execute=execute).statuses)
        left = next(slices_with_logs(table), None)
        if left is not None:
            raise ForeignCommitError(
                f"table {table.config.name} at {table.base_path} has log files in file group {left.file_id} in partition "
                f"{left.partition_path!r} behind its compaction: another writer works on it; end it, then begin again"
            )
    return done


def slices_with_logs(table: HoodieTable) -> Iterator[FileSlice]:
    """The newest slices that are not a base file alone."""
    if not table.config.is_merge_on_read:
        return
    view = table.view()
    for partition in view.partitions():
        yield from (found for found in view.latest_merged_slices(partition) if found.log_files)
