"""What a table must be like before its version is changed, and what is done to get it there.

Up to version 7 a log file is named by the base instant of its slice, from version 8 on by its own delta commit.

**Downwards no log file may be in a newest slice**: a log of version 8 would begin a slice of its own in version 6, and the
base file under it would not be read any more. All of the table is compacted first.

**Upwards log files stay.** Hudi 1.2 compacts here, too, but the names keep their meaning: a log named by base instant B
counts as one of the action B, which was completed after B and before any later base file was begun (``completion`` sees to
that), so it belongs to the slice B, as before. Readers of versions 8 and 9 still skip blocks newer than the instant they
read as of, and still obey rollback blocks. Hudi 1.2 reads such tables, also as of past instants, indexes, updates and
compacts them (tests/interop). What must not stay:

- A compaction that was planned and not run: the logs behind it are named by the plan, which is no completed action.
- Blocks of a failed write in a log of another one: version 6 looks at each block's instant to tell whether it counts,
  version 8 at the log's name alone. So failed writes are rolled back first, which every change does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tagstream.table.errors import InstantConflictError, UnsupportedTableError
from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.file_group.names import next_instant
from tagstream.table.meta_client.hoodie_table import READABLE_VERSIONS, HoodieTable
from tagstream.table.meta_client.table_config import LAYOUT_2_VERSION, MergeMode, key_generator_type
from tagstream.table.services.rollback import resume_rollbacks, rollback
from tagstream.table.timeline.heartbeat import is_alive
from tagstream.table.timeline.instant import COMPACTION, INDEXING, LOG_COMPACTION, RESTORE
from tagstream.table.timeline.timeline import Timeline

# Unfinished actions that only their own tool can end.
_TO_BE_ENDED = (RESTORE, INDEXING)
_TO_BE_RUN = (COMPACTION, LOG_COMPACTION)


def changes_layout(table: HoodieTable, to: int) -> bool:
    """Whether the change brings another timeline layout, and other names of log files."""
    return (table.config.version >= LAYOUT_2_VERSION) != (to >= LAYOUT_2_VERSION)


def check_settings(table: HoodieTable, to: int) -> None:
    """UnsupportedTableError naming what of the table's settings cannot be brought to version ``to``."""
    config = table.config
    where = f"table {config.name} at {table.base_path}"
    if to not in READABLE_VERSIONS:
        raise UnsupportedTableError(f"there is no way to table version {to}; 6, 8 and 9 are known")
    if config.version == to:
        return
    if config.merge_mode is MergeMode.CUSTOM:
        raise UnsupportedTableError(
            f"{where} merges records by foreign code ({config.payload_class or 'CUSTOM merge mode'}): change its version "
            "with Hudi"
        )
    kind = key_generator_type(config.key_generator)
    if kind == config.key_generator and changes_layout(table, to):
        raise UnsupportedTableError(
            f"{where} has the key generator {kind or '(none)'}, which is none of Hudi's: change its version with Hudi"
        )
    fields = config.raw.get("hoodie.table.partition.fields", "")
    if kind == "CUSTOM" and to >= LAYOUT_2_VERSION and not all(":" in field for field in fields.split(",")):
        raise UnsupportedTableError(
            f"{where} has Hudi's custom key generator, and version {to} must know the kind of each partition field: in "
            f"hoodie.properties set hoodie.table.partition.fields={fields} to names with kinds (name:SIMPLE, name:TIMESTAMP)"
        )


def check_pending(timeline: Timeline, where: str) -> None:
    """InstantConflictError naming an unfinished action that must be ended first."""
    for instant in timeline.pending:
        if instant.action in _TO_BE_ENDED:
            raise InstantConflictError(
                f"{instant.action} {instant.time} of {where} is unfinished: finish it with the tool that began it"
            )


def check_nobody_writes(table: HoodieTable, now_ms: int) -> None:
    """InstantConflictError when a pending write gives signs of life."""
    for instant in table.timeline().pending_writes:
        if is_alive(table.storage, instant.time, now_ms):
            raise InstantConflictError(
                f"{instant.action} {instant.time} of {table.base_path} is being written by another process: let it end first"
            )


def settle(table: HoodieTable, clock_ms: Callable[[], int]) -> tuple[str, ...]:
    """Roll back what failed writes have left; their instants."""
    failed = [result.failed for result in resume_rollbacks(table)]
    for instant in table.timeline().pending_writes:
        time = next_instant(clock_ms(), table.timeline().newest, table.config.timezone_utc)
        failed.append(rollback(table, instant.time, time).failed)
    return tuple(failed)


def check_slices(table: HoodieTable, to: int) -> None:
    """UnsupportedTableError naming a slice whose files another layout would read otherwise."""
    if not changes_layout(table, to):
        return
    timeline = table.timeline()
    where = f"table {table.config.name} at {table.base_path}"
    for instant in timeline.pending:
        if instant.action in _TO_BE_RUN:
            raise UnsupportedTableError(
                f"{where} has a {instant.action} that was planned and not run ({instant.time}): run it, e.g. with Hudi's "
                "run_compaction, then begin again"
            )
    with_logs = list(slices_with_logs(table)) if to < LAYOUT_2_VERSION else []
    if with_logs:
        found, count = with_logs[0], len(with_logs)
        raise UnsupportedTableError(
            f"{where} has log files in {count} of its newest file slices (the first: file group {found.file_id} in "
            f"partition {found.partition_path!r}), whose names mean something else in version {to}: compact all of the "
            "table, e.g. with Hudi's run_compaction, then begin again"
        )


def slices_with_logs(table: HoodieTable) -> Iterator[FileSlice]:
    """The newest slices that are not a base file alone."""
    if not table.config.is_merge_on_read:
        return
    view = table.view()
    for partition in view.partitions():
        yield from (found for found in view.latest_merged_slices(partition) if found.log_files)
