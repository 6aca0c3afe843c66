"""The task of one operation of a compaction's plan: it writes a slice's rows to a new base file under a temporary name.

The input is the plan's files that exist at the time of execution: files that were rolled back or replaced are not
compacted.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from tagstream.table.errors import CorruptFileError
from tagstream.table.file_group.base_file import BaseFileResult, BaseFileWriter
from tagstream.table.file_group.names import (
    base_file_name,
    join,
    parse_base_file_name,
    parse_log_file_name,
    write_token,
)
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.column_ranges import ranges_of_footer, ranges_to_json
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.services.merged_rows import Counts, merged_rows
from tagstream.table.services.plans import Operation
from tagstream.table.timeline.avro_timeline import read_record
from tagstream.table.timeline.commit_metadata import FileKind, WriteStat, WriteStatus
from tagstream.table.timeline.instant import ROLLBACK
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.change_log import ChangeLog, change_log
from tagstream.table.write.markers import begin_data_file
from tagstream.table.write.write_context import WriteContext


@dataclass(frozen=True)
class Inputs:
    """An operation, and its log files that were deleted because their write was rolled back."""

    operation: Operation
    gone: frozenset[str] = frozenset()


def inputs_of(table: HoodieTable, timeline: Timeline, instant: str, operations: Iterable[Operation]) -> list[Inputs]:
    """The operations to execute.

    An operation is skipped when its file group was replaced, or when a rollback has deleted its base file or all its
    logs. CorruptFileError for a file that is missing without such a reason.
    """
    operations = list(operations)
    by_partition: dict[str, list[Operation]] = {}
    for operation in operations:
        by_partition.setdefault(operation.partition_path, []).append(operation)
    there = {partition: frozenset(table.storage.names(partition)) for partition in by_partition}
    rolled_back: frozenset[str] | None = None
    found = []
    for operation in operations:
        if (operation.partition_path, operation.file_id) in timeline.replaced:
            continue
        present = there[operation.partition_path]
        missing = {name for name in (operation.base_file, *operation.log_files) if name and name not in present}
        if missing and rolled_back is None:
            rolled_back = _rolled_back(table, timeline, instant)
        for name in sorted(missing):
            if not _was_rolled_back(table, timeline, name, rolled_back or frozenset()):
                rel = f"{operation.partition_path}/{name}".lstrip("/")
                raise CorruptFileError(
                    f"{table.storage.where(rel)} is missing, but the compaction {instant} must read it: restore the "
                    f"file, or remove the plan (unschedule_compaction)"
                )
        logs_left = [name for name in operation.log_files if name not in missing]
        if operation.base_file in missing or (operation.base_file is None and not logs_left):
            continue
        found.append(Inputs(operation, frozenset(missing)))
    return found


def _was_rolled_back(table: HoodieTable, timeline: Timeline, name: str, rolled_back: frozenset[str]) -> bool:
    """A base file's name, and from version 8 on a log file's name, has its write's instant; otherwise only the rollback
    has it."""
    base, log = parse_base_file_name(name), parse_log_file_name(name)
    if base is not None:
        return not timeline.is_valid(base.instant)
    if log is not None and table.config.names_logs_by_commit:
        return not timeline.is_valid(log.base_instant)
    return name in rolled_back


def _rolled_back(table: HoodieTable, timeline: Timeline, since: str) -> frozenset[str]:
    """Names of the files that rollbacks after ``since`` have deleted."""
    found: set[str] = set()
    for instant in timeline.instants:
        if instant.action == ROLLBACK and instant.is_completed and instant.time > since:
            rel = table.instant_path(instant)
            record = read_record(table.storage.read(rel), table.storage.where(rel))
            for told in (record.get("partitionMetadata") or {}).values():
                found.update(path.rsplit("/", 1)[-1] for path in told.get("successDeleteFiles") or ())
    return frozenset(found)


@dataclass(frozen=True)
class CompactionTask:
    """The compaction of one file group: picklable, and repeatable with the same result.

    ``context``: the write; its ``task_partition`` is the number of the operation in the plan, and its ``as_of`` the
    newest instant whose log blocks count. ``run_id``: identifies this execution of the plan in file names.
    ``max_memory``: bytes of log rows in memory; the rest is spilled to a temporary file of the machine.
    """

    table: HoodieTable
    context: WriteContext
    inputs: Inputs
    run_id: int
    max_memory: int

    @property
    def weight(self) -> int:
        """The relative size of the work: MiB by the plan, else the number of log files."""
        return round(self.inputs.operation.io_mib) or len(self.inputs.operation.log_files)

    @property
    def bytes(self) -> int:
        """Bytes of the files that are read, if the store has their sizes: the relative size of the work."""
        files = self.inputs.operation.file_slice(self.inputs.gone)
        return sum(self.table.storage.size(path) for path in (files.base_path, *files.log_paths) if path)

    def run(self, attempt: int = 0) -> WriteStatus:
        """Write the new base file under a temporary name. ``attempt``: parallel attempts (Spark's) must have different
        ones.

        InstantConflictError when the compaction is no longer inflight.
        """
        table, operation = self.table, self.inputs.operation
        token = write_token(self.context.task_partition, self.run_id, attempt)
        context = replace(self.context, write_token=token)
        name = base_file_name(operation.file_id, token, context.instant)
        staged = begin_data_file(table, context, operation.partition_path, name)
        file_slice, counts, options = operation.file_slice(self.inputs.gone), Counts(), context.options
        schema = context.file_schema
        reader = SliceReader(table, context.timeline, context.as_of or context.instant, schema, tuple(schema.names))
        with (
            table.storage.open_output(staged) as out,
            BaseFileWriter(
                out,
                table.storage.where(staged),
                schema,
                context.file_avro_json,
                codec=options.codec,
                bloom=options.bloom,
                row_group_bytes=options.row_group_bytes,
            ) as writer,
            self._change_log(context) as changes,
        ):
            for rows in merged_rows(reader, file_slice, name, counts, self.max_memory, changes):
                writer.append(rows)
            result = writer.close()
            if changes is not None:
                changes.close()
        log_bytes = sum(table.storage.size(path) for path in file_slice.log_paths)
        return self._status(name, counts, result, log_bytes, changes)

    def _change_log(self, context: WriteContext) -> AbstractContextManager[ChangeLog | None]:
        """The change file of the new base file; a slice without a base file has none."""
        operation = self.inputs.operation
        if operation.base_file is None:
            return nullcontext()
        return change_log(self.table, context, operation.partition_path, operation.file_id)

    def _status(
        self, name: str, counts: Counts, result: BaseFileResult, log_bytes: int, changes: ChangeLog | None
    ) -> WriteStatus:
        operation, options = self.inputs.operation, self.context.options
        stat = WriteStat(
            file_id=operation.file_id,
            path=join(operation.partition_path, name),
            partition_path=operation.partition_path,
            prev_commit=operation.base_instant,
            num_writes=result.rows,
            num_inserts=counts.inserted,
            num_updates=counts.updated,
            num_deletes=counts.deleted,
            file_size=result.bytes,
            total_write_bytes=result.bytes,
            prev_base_file=operation.base_file,
            other={
                "totalLogRecords": counts.records,
                "totalLogFilesCompacted": len(operation.log_files) - len(self.inputs.gone),
                "totalLogSizeCompacted": log_bytes,
                "totalUpdatedRecordsCompacted": counts.keys,
                "totalLogBlocks": counts.blocks,
            },
            change_files={changes.path: changes.size} if changes is not None else {},
        )
        kind = FileKind.MERGE if operation.base_file is not None else FileKind.CREATE
        columns = options.range_columns
        ranges = ranges_to_json(ranges_of_footer(result.footer, columns)) if columns else None
        return WriteStatus(stat, kind, False, ranges, result.bloom if options.returns_bloom else None)
