"""What prevents a change of a table's version, and what is done before it.

Up to version 7 the name of a log file has the base instant of its slice, from version 8 on that of its delta commit.

**Before a downgrade no newest slice may have a log file**: a log of version 8 would begin its own slice in version 6,
and the base file before it would not be read any more. So the whole table is compacted first.

**An upgrade keeps log files.** Hudi 1.2 compacts here, too, but the names keep their meaning: a log with the base
instant B counts as one of the action B, which was completed after B and before any later base file was begun
(``completion_times`` ensures it), so it belongs to the slice B, as before. Readers of versions 8 and 9 still skip
blocks newer than the instant of their read, and still apply rollback blocks. Hudi 1.2 reads such tables, also as
of past instants, indexes, updates and compacts them (tests/interop). Two things must be removed before:

- A pending compaction: the later logs have the instant of the plan, which is not a completed action. So it is executed.
- Blocks of a failed write in a log of another one: version 6 decides by each block's instant whether it is valid,
version 8 only by the log's name. So failed writes are rolled back first, in every change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tagstream.table.errors import ForeignCommitError, InstantConflictError, UnsupportedTableError
from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.file_group.names import join, parse_log_file_name
from tagstream.table.keys.generators import KeyKind, key_generator_type
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import (
    MergeMode,
    PartialUpdate,
    drop_problem,
    partial_update_of,
)
from tagstream.table.metadata.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.read.slice_reader import check_mergeable
from tagstream.table.services.compaction import Execute, compact
from tagstream.table.services.compaction_plan import schedule_compaction
from tagstream.table.services.options import CompactionOptions, Strategy
from tagstream.table.services.rollback import resume_rollbacks, rollback
from tagstream.table.table_version import TableVersion
from tagstream.table.timeline.instant import COMPACTION, INDEXING, LOG_COMPACTION, RESTORE
from tagstream.table.timeline.lease import is_alive
from tagstream.table.timeline.timeline import Timeline, savepoints

_ALL = CompactionOptions(strategy=Strategy.UNBOUNDED)
# Unfinished actions that only the tool that began them can finish.
_TO_BE_ENDED = (RESTORE, INDEXING)


def changes_layout(table: HoodieTable, to: int) -> bool:
    """Whether the change has another timeline layout, and so other names of log files."""
    return table.config.table_version.layout != TableVersion.of(to).layout


def check_logs(table: HoodieTable, to: int) -> int:
    """The number of file slices to compact before the change; nothing is changed.

    UnsupportedTableError names what prevents it: a pending log compaction, a slice in a pending clustering, or settings
    with which records cannot be merged here.
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
                "run_logcompaction, then start again"
            )
    if not TableVersion.of(to).has_completion_times:
        for found in slices_with_logs(table):
            clustering = timeline.pending_clusterings.get((found.partition_path, found.file_id))
            if clustering is not None:
                raise UnsupportedTableError(
                    f"{where} has log files in file group {found.file_id} in partition {found.partition_path!r}, which is "
                    f"in the pending clustering {clustering} and cannot be compacted: run the clustering, then start again"
                )
            planned.add((found.partition_path, found.file_id))
    if planned:
        check_mergeable(table)
    return len(planned)


def compact_logs(
    table: HoodieTable, to: int, clock_ms: Callable[[], int], check: Callable[[], None], execute: Execute
) -> int:
    """Run pending compactions, and for a downgrade compact the whole table; returns the number of new base files."""
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
                f"{left.partition_path!r} after its compaction: another writer writes to it; stop it, then start again"
            )
    return done


def slices_with_logs(table: HoodieTable) -> Iterator[FileSlice]:
    """The newest slices with log files."""
    if not table.config.is_merge_on_read:
        return
    view = table.view()
    for partition in view.partitions():
        yield from (found for found in view.latest_merged_slices(partition) if found.log_files)


def check_settings(table: HoodieTable, to: int, partition_fields: str | None = None) -> None:
    """UnsupportedTableError names a setting of the table that version ``to`` cannot have.

    ``partition_fields``: the table's future partition fields, with their kinds; None: the present ones.
    """
    config = table.config
    where = f"table {config.name} at {table.base_path}"
    target = TableVersion.of(to)
    if config.version == to:
        return
    if config.merge_mode is MergeMode.CUSTOM:
        raise UnsupportedTableError(
            f"{where} merges records by Java code ({config.payload_class or 'CUSTOM merge mode'}): change its version "
            "with Hudi"
        )
    if config.partial_update is not PartialUpdate.NONE:
        raise UnsupportedTableError(
            f"{where} has values that mean 'unchanged' ({partial_update_of(config)}), and the other version marks them in "
            "another way: change its version with Hudi"
        )
    kind = key_generator_type(config.key_generator)
    if kind == config.key_generator and changes_layout(table, to):
        raise UnsupportedTableError(
            f"{where} has the key generator {kind or '(none)'}, which is not one of Hudi's: change its version with Hudi"
        )
    if len(config.ordering_fields) > 1 and not target.several_ordering_fields:
        raise UnsupportedTableError(
            f"{where} has several ordering fields ({', '.join(config.ordering_fields)}), which version {to} does not "
            "support: keep version 8 or 9"
        )
    problem = drop_problem(replace(config, version=to))
    if problem is not None and drop_problem(config) is None:
        raise UnsupportedTableError(f"{where} must keep version {config.version}: {problem}")
    fields = partition_fields or config.raw.get("hoodie.table.partition.fields", "")
    if kind == KeyKind.CUSTOM and target.partition_kinds and not all(":" in field for field in fields.split(",")):
        raise UnsupportedTableError(
            f"{where} has Hudi's custom key generator, and version {to} needs the kind of each partition field: in "
            f"hoodie.properties set hoodie.table.partition.fields={fields} to names with kinds (name:SIMPLE, name:TIMESTAMP)"
        )


def check_pending(timeline: Timeline, where: str) -> None:
    """InstantConflictError names an unfinished action that must be finished first."""
    for instant in timeline.pending:
        if instant.action in _TO_BE_ENDED:
            raise InstantConflictError(
                f"{instant.action} {instant.time} of {where} is unfinished: finish it with the tool that began it"
            )


def check_savepoints(table: HoodieTable, to: int) -> None:
    """InstantConflictError names a savepoint with log files, whose names mean something else below version 8."""
    if TableVersion.of(to).has_completion_times or not changes_layout(table, to):
        return
    for savepoint in savepoints(table.storage, table.timeline()):
        for partition, names in savepoint.files.items():
            logs = (name for name in names if (found := parse_log_file_name(name)) is not None and not found.is_cdc)
            log = min(logs, default=None)
            if log is not None:
                raise InstantConflictError(
                    f"savepoint {savepoint.time} of {table.base_path} keeps the log file {join(partition, log)}, which "
                    f"belongs to another file slice in version {to}: restore to the savepoint, or delete it with "
                    "`tagstream table savepoint --delete`, then start again"
                )


def check_nobody_writes(table: HoodieTable, now_ms: int) -> None:
    """InstantConflictError when the writer of a pending write is alive (by its heartbeat)."""
    for instant in table.timeline().pending_writes:
        if is_alive(table.storage, instant.time, now_ms):
            raise InstantConflictError(
                f"{instant.action} {instant.time} of {table.base_path} is being written by another process: wait for it"
            )


def settle(table: HoodieTable, clock_ms: Callable[[], int]) -> tuple[str, ...]:
    """Roll back all failed writes; returns their instants."""
    failed = [result.failed for result in resume_rollbacks(table)]
    for instant in table.timeline().pending_writes:
        time = fresh_times(table, MetadataWriter.open(table), clock_ms)()
        failed.append(rollback(table, instant.time, time).failed)
    return tuple(failed)
