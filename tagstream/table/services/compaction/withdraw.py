"""A pending compaction taken back: what its execution wrote, or the plan itself."""

from __future__ import annotations

from collections.abc import Callable

from tagstream.table.errors import InstantConflictError
from tagstream.table.file_group.names import parse_base_file_name, parse_log_file_name
from tagstream.table.file_group.partition_metadata import list_partitions
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.compaction.execute import base_files_of, check_pending
from tagstream.table.services.compaction.operations import read_operations
from tagstream.table.services.rollback import RollbackResult, roll_back_execution
from tagstream.table.services.rollback_plan import RollbackRequest
from tagstream.table.timeline.instant import COMPACTION, Instant, State


def rollback_compaction(
    table: HoodieTable, instant: str, rollback_instant: str, check: Callable[[], None] = lambda: None
) -> RollbackResult:
    """Take back what an execution of the plan ``instant`` wrote, as a rollback action; the plan stays to be executed.

    Needed only where the plan is not to be executed soon: another execution removes what the one before has left by itself.
    Log files stay: up to version 7 those that are named by the plan hold later writes. InstantConflictError when the plan is
    not being executed, or is completed.
    """

    def base_files(table: HoodieTable, failed: Instant) -> list[RollbackRequest]:
        found = []
        for rel in base_files_of(table, failed.time, read_operations(table, failed.time)):
            partition, _, name = rel.rpartition("/")
            parsed = parse_base_file_name(name)
            found.append(RollbackRequest(partition, parsed.file_id if parsed else "", failed.time, files=(rel,)))
        return found

    check()
    return roll_back_execution(table, instant, rollback_instant, base_files)


def unschedule_compaction(table: HoodieTable, instant: str, check: Callable[[], None] = lambda: None) -> None:
    """Remove the plan ``instant`` from the timeline, as if it had never been made.

    InstantConflictError when it is being executed (see :func:`rollback_compaction`) or completed, and up to version 7 when a
    log file has been written since that is named by the plan: its slice would lose its place.
    """
    operations = read_operations(table, instant)
    check_pending(table, instant)
    folder = table.config.timeline_folder
    if table.storage.exists(f"{folder}/{Instant(instant, COMPACTION, State.INFLIGHT).file_name()}"):
        raise InstantConflictError(
            f"compaction {instant} of {table.base_path} is being executed, or its execution died: roll that back first"
        )
    if not table.config.names_logs_by_commit:
        partitions = {operation.partition_path for operation in operations} & set(list_partitions(table.storage))
        for partition in sorted(partitions):
            for name in table.storage.names(partition):
                log = parse_log_file_name(name)
                if log is not None and log.base_instant == instant:
                    raise InstantConflictError(
                        f"compaction {instant} of {table.base_path} cannot be taken from the timeline: "
                        f"{table.storage.where(partition)}/{name} was written beside it, and is named by it; execute it"
                    )
    check()
    table.storage.delete(f"{folder}/{Instant(instant, COMPACTION, State.REQUESTED).file_name()}")
