"""What of a table stands in the way of a change of its version, and what is settled first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tagstream.table.errors import InstantConflictError, UnsupportedTableError
from tagstream.table.file_group.names import parse_log_file_name
from tagstream.table.file_group.partition_metadata import join
from tagstream.table.meta_client.dropped_columns import drop_problem
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import (
    MergeMode,
    PartialUpdate,
    key_generator_type,
    partial_update_of,
)
from tagstream.table.metadata.write.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.services.rollback import resume_rollbacks, rollback
from tagstream.table.services.upgrade.logs import changes_layout
from tagstream.table.table_version import TableVersion
from tagstream.table.timeline.heartbeat import is_alive
from tagstream.table.timeline.instant import INDEXING, RESTORE
from tagstream.table.timeline.savepoints import savepoints
from tagstream.table.timeline.timeline import Timeline

# Unfinished actions that only their own tool can end.
_TO_BE_ENDED = (RESTORE, INDEXING)


def check_settings(table: HoodieTable, to: int, partition_fields: str | None = None) -> None:
    """UnsupportedTableError naming what of the table's settings cannot be brought to version ``to``. ``partition_fields``:
    those that the table is to have, with their kinds; None: its own."""
    config = table.config
    where = f"table {config.name} at {table.base_path}"
    target = TableVersion.of(to)
    if config.version == to:
        return
    if config.merge_mode is MergeMode.CUSTOM:
        raise UnsupportedTableError(
            f"{where} merges records by foreign code ({config.payload_class or 'CUSTOM merge mode'}): change its version "
            "with Hudi"
        )
    if config.partial_update is not PartialUpdate.NONE:
        raise UnsupportedTableError(
            f"{where} takes some values for 'as it was' ({partial_update_of(config)}), and the other version says so in "
            "another way: change its version with Hudi"
        )
    kind = key_generator_type(config.key_generator)
    if kind == config.key_generator and changes_layout(table, to):
        raise UnsupportedTableError(
            f"{where} has the key generator {kind or '(none)'}, which is none of Hudi's: change its version with Hudi"
        )
    if len(config.ordering_fields) > 1 and not target.several_ordering_fields:
        raise UnsupportedTableError(
            f"{where} has several ordering fields ({', '.join(config.ordering_fields)}), which version {to} does not know: "
            "it stays at version 8 or 9"
        )
    problem = drop_problem(replace(config, version=to))
    if problem is not None and drop_problem(config) is None:
        raise UnsupportedTableError(f"{where} stays at version {config.version}: {problem}")
    fields = partition_fields or config.raw.get("hoodie.table.partition.fields", "")
    if kind == "CUSTOM" and target.partition_kinds and not all(":" in field for field in fields.split(",")):
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


def check_savepoints(table: HoodieTable, to: int) -> None:
    """InstantConflictError naming a savepoint with log files, whose names mean something else below version 8."""
    if TableVersion.of(to).has_completion_times or not changes_layout(table, to):
        return
    for savepoint in savepoints(table.storage, table.timeline()):
        for partition, names in savepoint.files.items():
            log = min((name for name in names if parse_log_file_name(name) is not None), default=None)
            if log is not None:
                raise InstantConflictError(
                    f"savepoint {savepoint.time} of {table.base_path} keeps the log file {join(partition, log)}, which "
                    f"version {to} takes for one of another file slice: restore to the savepoint, or delete it with "
                    "`tagstream table savepoint --delete`, then begin again"
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
        time = fresh_times(table, MetadataWriter.open(table), clock_ms)()
        failed.append(rollback(table, instant.time, time).failed)
    return tuple(failed)
