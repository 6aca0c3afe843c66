"""The files of a plan as they are when it is carried out: what was rolled back or replaced since is not compacted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tagstream.table.errors import CorruptFileError
from tagstream.table.file_group.names import parse_base_file_name, parse_log_file_name
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.compaction.operations import Operation
from tagstream.table.timeline.avro_timeline import read_record
from tagstream.table.timeline.instant import ROLLBACK
from tagstream.table.timeline.timeline import Timeline


@dataclass(frozen=True)
class Inputs:
    """An operation, and those of its log files that are gone because their write was rolled back."""

    operation: Operation
    gone: frozenset[str] = frozenset()


def inputs_of(table: HoodieTable, timeline: Timeline, instant: str, operations: Iterable[Operation]) -> list[Inputs]:
    """The operations that are to be carried out.

    One is passed over when its file group was replaced, or when nothing is left of it after a rollback of its base file or
    of all its logs. CorruptFileError for a file that is missing for no such reason.
    """
    operations = list(operations)
    by_partition: dict[str, list[Operation]] = {}
    for operation in operations:
        by_partition.setdefault(operation.partition_path, []).append(operation)
    there = {partition: frozenset(table.storage.names(partition)) for partition in by_partition}
    taken_back: frozenset[str] | None = None
    found = []
    for operation in operations:
        if (operation.partition_path, operation.file_id) in timeline.replaced:
            continue
        present = there[operation.partition_path]
        missing = {name for name in (operation.base_file, *operation.log_files) if name and name not in present}
        if missing and taken_back is None:
            taken_back = _rolled_back(table, timeline, instant)
        for name in sorted(missing):
            if not _was_rolled_back(table, timeline, name, taken_back or frozenset()):
                rel = f"{operation.partition_path}/{name}".lstrip("/")
                raise CorruptFileError(
                    f"{table.storage.where(rel)} is missing, which the compaction {instant} is to read: restore the "
                    "file, or remove the plan (unschedule_compaction)"
                )
        logs_left = [name for name in operation.log_files if name not in missing]
        if operation.base_file in missing or (operation.base_file is None and not logs_left):
            continue
        found.append(Inputs(operation, frozenset(missing)))
    return found


def _was_rolled_back(table: HoodieTable, timeline: Timeline, name: str, taken_back: frozenset[str]) -> bool:
    """A base file, and from version 8 on a log file, names the write that it is of; else only the rollback tells."""
    base, log = parse_base_file_name(name), parse_log_file_name(name)
    if base is not None:
        return not timeline.is_valid(base.instant)
    if log is not None and table.config.names_logs_by_commit:
        return not timeline.is_valid(log.base_instant)
    return name in taken_back


def _rolled_back(table: HoodieTable, timeline: Timeline, since: str) -> frozenset[str]:
    """Names of the files that rollbacks after ``since`` have deleted."""
    found: set[str] = set()
    for instant in timeline.instants:
        if instant.action == ROLLBACK and instant.is_completed and instant.time > since:
            rel = f"{table.config.timeline_folder}/{instant.file_name()}"
            record = read_record(table.storage.read(rel), table.storage.where(rel))
            for told in (record.get("partitionMetadata") or {}).values():
                found.update(path.rsplit("/", 1)[-1] for path in told.get("successDeleteFiles") or ())
    return frozenset(found)
