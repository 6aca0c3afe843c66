"""Keep the table's metadata table in sync: it gets a batch's changes in a delta commit before the batch completes.

Readers use these changes once the instant is completed on the table's timeline. When a batch is rolled back, it is
rolled back in the metadata table, too (``table.services.rollback``). The deleted keys and the old locations of moved
keys come from rows of ``index.base.WRITTEN_SCHEMA``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import ForeignCommitError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.changes import Changes, written_by
from tagstream.table.metadata.compaction import Execute, clean, compact, one_by_one
from tagstream.table.metadata.delta_commit import delta_commit
from tagstream.table.metadata.metadata_table import (
    BLOOM_FILTERS_PARTITION,
    COLUMN_STATS_PARTITION,
    PARTITION_STATS_PARTITION,
    RECORD_INDEX_PARTITION,
)
from tagstream.table.metadata.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.metadata.record_encoding import PLACES, instant_ms
from tagstream.table.metadata.rollback import recover
from tagstream.table.services.archiving import archive_metadata
from tagstream.table.services.metadata_changes import older_ranges, overlooked_files, range_columns
from tagstream.table.steps import Step
from tagstream.table.timeline.commit_metadata import CommitMetadata, WriteStatus
from tagstream.table.timeline.instant import Instant
from tagstream.table.timeline.operation import WriteOperationType
from tagstream.table.timeline.timeline import Timeline


def deleted_rows(written: pa.Table, *, by_partition: bool = False) -> pa.Table:
    """The rows of keys that a batch deleted, without keys that it wrote at another location.

    ``by_partition``: a key in another partition is another key. Then only keys that it wrote again in the same
    partition are left out.
    """
    is_live = pc.is_valid(written["file_id"])
    live, gone = written.filter(is_live), written.filter(pc.invert(is_live))
    stays = pc.is_in(_names(gone, by_partition), value_set=_names(live, by_partition))
    return gone.filter(pc.invert(stays))


def without_moves(written: pa.Table) -> pa.Table:
    """A batch's rows without the old locations of moves: a moved key has one row, with its new location."""
    return pa.concat_tables([written.filter(pc.is_valid(written["file_id"])), deleted_rows(written)])


def _names(rows: pa.Table, by_partition: bool) -> pa.Array:
    keys = rows["record_key"].combine_chunks()
    if not by_partition:
        return keys
    # No partition path has a control character, so the joined text is unique for each pair.
    return pc.binary_join_element_wise(rows["partition_path"].combine_chunks(), keys, "\0")


_MOST_LOOKED_AT = 100  # commits at a start: of a table with none of this stream's
_WITH_RANGES = (COLUMN_STATS_PARTITION, PARTITION_STATS_PARTITION)


@dataclass(frozen=True)
class MetadataKeeper:
    """The metadata table at the start of a batch. ``columns``: columns with statistics; empty where it has no
    statistics.

    ``new_index_groups``: how many file groups a record index by partition gets for a new partition. ``overlooked``: by
    partition path, files whose ranges the next commit adds again (``overlooked_files``). ``schema``: of the user columns.
    """

    writer: MetadataWriter
    columns: tuple[str, ...]
    new_index_groups: int = 1
    overlooked: Mapping[str, Sequence[str]] = field(default_factory=dict)
    schema: pa.Schema | None = None

    @staticmethod
    def open(table: HoodieTable, schema: pa.Schema, new_index_groups: int = 1) -> MetadataKeeper | None:
        """Open a table's metadata table; None where it has none. ``schema``: the table's user columns.

        Errors: see ``MetadataWriter.open``.
        """
        writer = MetadataWriter.open(table)
        if writer is None:
            return None
        columns = range_columns(writer, schema) if _has_ranges(writer) else ()
        return MetadataKeeper(writer, columns, new_index_groups, schema=schema)

    def after(self, timeline: Timeline, new: Mapping[Instant, CommitMetadata]) -> MetadataKeeper:
        """The same after other writers' commits ``new``: their services may have narrowed the ranges of partitions."""
        if PARTITION_STATS_PARTITION not in self.partitions:
            return self
        services = {i: m for i, m in new.items() if m.is_compaction or m.operation == WriteOperationType.CLUSTER}
        found = overlooked_files(self.writer.table, timeline, services)
        both = {p: tuple({*found.get(p, ()), *self.overlooked.get(p, ())}) for p in {**self.overlooked, **found}}
        return replace(self, overlooked=both)

    def at_start(self, is_own: Callable[[CommitMetadata], bool]) -> MetadataKeeper:
        """The same after all services since the newest commit for which ``is_own`` is true began."""
        if PARTITION_STATS_PARTITION not in self.partitions:
            return self
        timeline, new = self.writer.table.timeline(), dict[Instant, CommitMetadata]()
        for instant in islice(reversed(timeline.completed_writes), _MOST_LOOKED_AT):
            metadata = timeline.metadata(self.writer.table.storage, instant)
            if is_own(metadata):
                return self.after(timeline, {i: m for i, m in new.items() if (i.completion_time or "") > instant.time})
            new[instant] = metadata
        return self.after(timeline, new)

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions of the metadata table. Each of them gets the changes of every commit."""
        return self.writer.partitions

    @property
    def wants_places(self) -> bool:
        """Whether it has a record index, which needs the inserted, moved and deleted keys."""
        return RECORD_INDEX_PARTITION in self.partitions

    @property
    def by_partition(self) -> bool:
        """Whether its record index is one by partition: a move deletes the key in one partition and inserts it in
        another.
        """
        return self.writer.has_partitioned_index

    @property
    def wants_blooms(self) -> bool:
        """Whether it needs the bloom filter of each base file."""
        return BLOOM_FILTERS_PARTITION in self.partitions

    def commit(
        self,
        instant: str,
        statuses: Sequence[WriteStatus],
        written: pa.Table,
        clock_ms: Callable[[], int],
        reach: Callable[[str], None] = lambda _: None,
        check: Callable[[], None] = lambda: None,
    ) -> str | None:
        """Write the changes of a batch to the metadata table before the batch completes.

        ``statuses``: its write statuses. ``written``: its keys, ``index.base.WRITTEN_SCHEMA``. ``reach`` is called with
        the steps ``metadata_begun``, ``metadata_files`` and ``metadata_completed``. ``check``: see ``delta_commit``.

        Returns the completion time of the delta commit. The batch must complete later. None up to table version 7.
        """
        changes = Changes(
            partitions=written_by(statuses),
            places=[self._places(written, instant)] if self.wants_places else (),
            deleted_keys=[deleted_rows(written, by_partition=self.by_partition)] if self.wants_places else (),
            columns=self.columns,
            older_ranges=older_ranges(self.writer.table, self.overlooked, self.columns, self._user_schema),
        )
        times = fresh_times(self.writer.table, self.writer, clock_ms)
        completed = delta_commit(self.writer, instant, changes, times, reach, self.new_index_groups, check)
        reach(Step.METADATA_COMPLETED)
        return completed.completion_time

    @property
    def _user_schema(self) -> pa.Schema:
        return self.schema if self.schema is not None else pa.schema([])

    def maintain(self, clock_ms: Callable[[], int], max_delta_commits: int, execute: Execute = one_by_one) -> None:
        """Maintain the metadata table between two batches: finish interrupted actions, compact it after
        ``max_delta_commits``, clean it.

        After a compaction its timeline is archived as far as that of the table. No other instant may be pending on the
        table's timeline.
        """
        times = fresh_times(self.writer.table, self.writer, clock_ms)
        recover(self.writer, times)
        if compact(self.writer, times, max_delta_commits, execute) is not None:
            clean(self.writer, times)
            archive_metadata(self.writer)

    def _places(self, written: pa.Table, instant: str) -> pa.Table:
        new = written.filter(pc.and_(written["is_new"], pc.is_valid(written["file_id"])))
        at = instant_ms(instant, self.writer.table.config.timezone_utc)
        columns = [*(new[name] for name in PLACES.names[:-1]), pa.repeat(pa.scalar(at, pa.int64()), new.num_rows)]
        return pa.Table.from_arrays(columns, schema=PLACES)


def _has_ranges(writer: MetadataWriter) -> bool:
    return any(name in writer.partitions for name in _WITH_RANGES)


def check_kept(table: HoodieTable, keeper: MetadataKeeper | None) -> None:
    """ForeignCommitError when the table's metadata table has other partitions than at the start of the batch."""
    now = tuple(sorted(table.config.metadata_partitions))
    if now != (() if keeper is None else tuple(sorted(keeper.writer.table.config.metadata_partitions))):
        raise ForeignCommitError(
            f"table {table.base_path}: another writer made or dropped its metadata table while this job runs; it now has "
            f"these partitions: {', '.join(now) or 'none'}. Restart the job, and let only one writer write to the table"
        )
