"""Keep the table's metadata table in step: it gets a batch's changes in the same commit, before the batch completes.

Readers use the changes once the instant is completed on the table's timeline. A batch that is rolled back is
rolled back in the metadata table, too (``table.services.rollback``). The deleted keys and the keys that only left
a place come from ``index.base.WRITTEN_SCHEMA``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
from tagstream.table.services.metadata_changes import range_columns
from tagstream.table.timeline.commit_metadata import WriteStatus


def deleted_rows(written: pa.Table, *, by_partition: bool = False) -> pa.Table:
    """The rows of keys that a whole batch deleted: not those that it put elsewhere or, ``by_partition``, there again."""
    is_live = pc.is_valid(written["file_id"])
    live, gone = written.filter(is_live), written.filter(pc.invert(is_live))
    stays = pc.is_in(_names(gone, by_partition), value_set=_names(live, by_partition))
    return gone.filter(pc.invert(stays))


def without_moves(written: pa.Table) -> pa.Table:
    """A batch's rows without the places that moves leave: a key that moved comes once, with its new place."""
    return pa.concat_tables([written.filter(pc.is_valid(written["file_id"])), deleted_rows(written)])


def _names(rows: pa.Table, by_partition: bool) -> pa.Array:
    keys = rows["record_key"].combine_chunks()
    if not by_partition:
        return keys
    # No partition path has a control character, so the two parts cannot run into each other.
    return pc.binary_join_element_wise(rows["partition_path"].combine_chunks(), keys, "\0")


_WITH_RANGES = (COLUMN_STATS_PARTITION, PARTITION_STATS_PARTITION)


@dataclass(frozen=True)
class MetadataKeeper:
    """The metadata table as a batch begins. ``columns``: those of which it has statistics; none where it has none.

    ``new_index_groups``: how many file groups a record index by partition gets for a new partition.
    """

    writer: MetadataWriter
    columns: tuple[str, ...]
    new_index_groups: int = 1

    @staticmethod
    def open(table: HoodieTable, schema: pa.Schema, new_index_groups: int = 1) -> MetadataKeeper | None:
        """The keeper of a table's metadata table, None where it has none. ``schema``: the table's user columns.

        Errors as of ``MetadataWriter.open``.
        """
        writer = MetadataWriter.open(table)
        if writer is None:
            return None
        return MetadataKeeper(writer, range_columns(writer, schema) if _has_ranges(writer) else (), new_index_groups)

    @property
    def partitions(self) -> tuple[str, ...]:
        """The metadata table's own partitions, which are all told of every commit."""
        return self.writer.partitions

    @property
    def wants_places(self) -> bool:
        """Whether it has to know which keys were inserted, moved and deleted."""
        return RECORD_INDEX_PARTITION in self.partitions

    @property
    def by_partition(self) -> bool:
        """Whether a key in each partition is another key to it, so that a move takes one away and puts one."""
        return self.writer.has_partitioned_index

    @property
    def wants_blooms(self) -> bool:
        """Whether it has to know the bloom filter of each base file."""
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
        """Tell it of a batch's files and (``written``: ``index.base.WRITTEN_SCHEMA``) keys, before the batch completes.

        Returns the time that the completion of the batch must be later than; None up to table version 7. ``reach`` is told
        of the steps ``metadata_begun``, ``metadata_files`` and ``metadata_completed``. ``check``: as of ``delta_commit``.
        """
        changes = Changes(
            partitions=written_by(statuses),
            places=[self._places(written, instant)] if self.wants_places else (),
            deleted_keys=[deleted_rows(written, by_partition=self.by_partition)] if self.wants_places else (),
            columns=self.columns,
        )
        times = fresh_times(self.writer.table, self.writer, clock_ms)
        completed = delta_commit(self.writer, instant, changes, times, reach, self.new_index_groups, check)
        reach("metadata_completed")
        return completed.completion_time

    def maintain(self, clock_ms: Callable[[], int], max_delta_commits: int, execute: Execute = one_by_one) -> None:
        """Between two batches: finish what was cut off; compact it once so many commits have come, and remove old files.

        Its own timeline is then archived, as far as that of the table is. Nothing else may be pending on the table's
        timeline.
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
    """ForeignCommitError when the table has not the metadata table that the batch was begun with."""
    now = tuple(sorted(table.config.metadata_partitions))
    if now != (() if keeper is None else tuple(sorted(keeper.writer.table.config.metadata_partitions))):
        raise ForeignCommitError(
            f"table {table.base_path}: another writer made or dropped its metadata table while this job runs; it has "
            f"{', '.join(now) or 'none'} now"
        )
