"""One operation of a plan carried out: the slice's rows into a new base file, staged until the driver publishes it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tagstream.table.file_group.base_file import BaseFileResult, BaseFileWriter
from tagstream.table.file_group.names import base_file_name, write_token
from tagstream.table.file_group.partition_metadata import join
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.encode.column_ranges import ranges_of_footer, ranges_to_json
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.services.compaction.inputs import Inputs
from tagstream.table.services.compaction.merge import Counts, merged_rows
from tagstream.table.timeline.write_status import FileKind, WriteStat, WriteStatus
from tagstream.table.write.data_file import begin_data_file
from tagstream.table.write.write_context import WriteContext


@dataclass(frozen=True)
class CompactionTask:
    """The compaction of one file group: picklable, and done again with the same result.

    ``context``: the write; its ``task_partition`` is the number of the operation in the plan, and its ``as_of`` the newest
    instant whose log blocks count. ``run_id``: tells this execution of the plan from others in file names. ``max_memory``:
    bytes of log rows held; what is more lies in a temporary file of the machine.
    """

    table: HoodieTable
    context: WriteContext
    inputs: Inputs
    run_id: int
    max_memory: int

    @property
    def weight(self) -> int:
        """What the work is proportional to, compared with other tasks: MiB as the plan tells, else log files."""
        return round(self.inputs.operation.io_mib) or len(self.inputs.operation.log_files)

    @property
    def bytes(self) -> int:
        """Bytes of the files that are read, as far as the store tells: what the work is proportional to."""
        files = self.inputs.operation.file_slice(self.inputs.gone)
        return sum(self.table.storage.size(path) for path in (files.base_path, *files.log_paths) if path)

    def run(self, attempt: int = 0) -> WriteStatus:
        """Stage the new base file. ``attempt``: attempts that may run at once (Spark's) must have different ones.

        InstantConflictError when the compaction is not inflight any more.
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
        ):
            for rows in merged_rows(reader, file_slice, name, counts, self.max_memory):
                writer.append(rows)
            result = writer.close()
        log_bytes = sum(table.storage.size(path) for path in file_slice.log_paths)
        return self._status(name, counts, result, log_bytes)

    def _status(self, name: str, counts: Counts, result: BaseFileResult, log_bytes: int) -> WriteStatus:
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
        )
        kind = FileKind.MERGE if operation.base_file is not None else FileKind.CREATE
        columns = options.range_columns
        ranges = ranges_to_json(ranges_of_footer(result.footer, columns)) if columns else None
        return WriteStatus(stat, kind, False, ranges, result.bloom if options.tells_bloom else None)
