"""One group of a clustering's plan carried out: the rows of its slices into new file groups, staged for the driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from tagstream.table.file_group.names import new_file_id, seqnos, write_token
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.schema.schema import COMMIT_SEQNO, COMMIT_TIME
from tagstream.table.services.clustering.gather import GatheredRows
from tagstream.table.services.clustering.groups import ClusteringGroup
from tagstream.table.services.spill import RowKeeper
from tagstream.table.timeline.write_status import WriteStatus
from tagstream.table.write.new_group import write_new_group
from tagstream.table.write.write_context import WriteContext
from tagstream.table.write.write_rows import copied_rows


@dataclass(frozen=True)
class ClusteringTask:
    """The clustering of one group: picklable, and done again with the same result.

    ``context``: the write; its ``task_partition`` is the number of the group in the plan, and its ``as_of`` the newest
    instant whose log blocks count. ``run_id``: tells this execution of the plan from others in file names. ``max_memory``:
    bytes of rows held, what is more lies in temporary files of the machine.
    """

    table: HoodieTable
    context: WriteContext
    group: ClusteringGroup
    sort_columns: tuple[str, ...]
    keeps_meta: bool
    run_id: int
    max_memory: int

    @property
    def weight(self) -> int:
        """What the work is proportional to, compared with other tasks: files that are read."""
        return sum(1 + len(each.log_files) for each in self.group.slices)

    def run(self, attempt: int = 0) -> list[WriteStatus]:
        """Stage the new base files; none where all rows were deleted. ``attempt``: attempts that may run at once (Spark's)
        must have different ones.

        InstantConflictError when the clustering is not inflight any more.
        """
        ctx = replace(self.context, write_token=write_token(self.context.task_partition, self.run_id, attempt))
        schema = ctx.file_schema
        reader = SliceReader(self.table, ctx.timeline, ctx.as_of or ctx.instant, schema, tuple(schema.names))
        with RowKeeper(self.max_memory) as keeper:
            rows = GatheredRows(reader, self.group.slices, self.sort_columns, keeper, self.max_memory)
            parts = min(self.group.outputs, rows.num_rows)
            return [self._write(ctx, rows.part(number, parts), number) for number in range(parts)]

    def _write(self, ctx: WriteContext, rows: Iterator[pa.Table], number: int) -> WriteStatus:
        file_id = new_file_id("clustering", ctx.instant, ctx.task_partition, number)
        return write_new_group(
            self.table, ctx, self.group.partition_path, file_id, lambda name: self._named(ctx, rows, name)
        )

    def _named(self, ctx: WriteContext, rows: Iterator[pa.Table], name: str) -> Iterator[pa.Table]:
        written = 0
        for each in rows:
            yield self._with_meta(ctx, copied_rows(each, name), written)
            written += each.num_rows

    def _with_meta(self, ctx: WriteContext, rows: pa.Table, first: int) -> pa.Table:
        if self.keeps_meta:
            return rows
        count = rows.num_rows
        times = pa.repeat(pa.scalar(ctx.instant, pa.string()), count)
        numbers = seqnos(ctx.instant, ctx.task_partition, first, count)
        for name, column in ((COMMIT_TIME, times), (COMMIT_SEQNO, numbers)):
            index = rows.schema.get_field_index(name)
            rows = rows.set_column(index, rows.schema.field(index), column)
        return rows
