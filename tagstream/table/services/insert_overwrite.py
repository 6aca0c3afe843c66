"""Insert overwrite: rows replace all rows of some partitions, by a replace commit in Hudi's form.

``INSERT_OVERWRITE`` replaces the partitions of the rows, or those that the caller names (Hudi's dynamic and static
mode), ``INSERT_OVERWRITE_TABLE`` all. Readers see the old rows until it completes; a later clean deletes the old files.
The rows are written to base files on merge-on-read tables, too. No index is used.

Of the records of a key the one with the greatest ordering value is written, of equal ones the later. If that is a
delete, the key is not written. Memory: keys, ordering values and a few numbers for each record, and the rows up to a
limit; rows beyond it are in temporary files that are memory-mapped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table import chunks
from tagstream.table.errors import InstantConflictError, PlanOverlapError
from tagstream.table.file_group.names import new_file_id, write_token
from tagstream.table.locks.lock import Hold, no_lock
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.schema.conform import as_schema
from tagstream.table.schema.schema import RECORD_KEY, avro_to_arrow
from tagstream.table.services.merged_rows import RowKeeper
from tagstream.table.services.metadata_changes import new_places, update_metadata, with_metadata_stats
from tagstream.table.services.replaced_partitions import groups_of_partitions, replaced_ids, rows_of
from tagstream.table.services.rollback import rollback
from tagstream.table.steps import Step
from tagstream.table.timeline.commit_metadata import CommitMetadata, WriteStatus
from tagstream.table.timeline.instant import REPLACE_COMMIT, Instant, State
from tagstream.table.timeline.operation import WriteOperationType
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.commit import WRITER_KEY, complete, inflight, publish_files, request
from tagstream.table.write.file_writer import write_new_group
from tagstream.table.write.upsert import new_rows
from tagstream.table.write.write_context import WriteContext, WriterOptions

Rows = npt.NDArray[np.int64]
_STEP_BYTES = 64 * 1024 * 1024
MAX_FILE_BYTES = 120 * 1024 * 1024  # hoodie.parquet.max.file.size
_RECORD_BYTES = 1024  # hoodie.copyonwrite.record.size.estimate
_TRUSTED_BYTES = 1024 * 1024
_BY = "insert-overwrite"
Check = Callable[[], None]


@dataclass(frozen=True)
class Records:
    """Some records in the order of the input.

    ``rows``: user columns. ``ordering``: int64 or binary in the order of the ordering values, None without an ordering
    field. ``deleted``: whether a record is a delete. ``unordered``: deletes without an ordering value, which come after
    all others.
    """

    rows: pa.Table
    keys: pa.Array
    partitions: pa.Array
    ordering: pa.Array | None
    deleted: npt.NDArray[np.bool_]
    unordered: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class NewRows:
    """Rows to write, one for each key, with the additional column :data:`RECORD_KEY`.

    ``partitions``: row indexes in the order of keys, by partition path. ``records``: number of input records.
    ``deletes``: number of keys whose newest record is a delete. The value can be used until its keeper is closed.
    """

    rows: pa.Table
    partitions: Mapping[str, Rows]
    records: int
    deletes: int

    @property
    def count(self) -> int:
        """Number of rows in all partitions."""
        return sum(map(len, self.partitions.values()))

    @property
    def keys(self) -> pa.Array:
        """The keys (large strings) of all partitions."""
        numbers = np.concatenate([*self.partitions.values(), np.zeros(0, np.int64)])
        keys = self.rows.column(RECORD_KEY).cast(pa.large_string()).combine_chunks()
        return keys.take(pa.array(numbers))

    def part(self, partition: str, number: int, parts: int) -> Iterator[pa.Table]:
        """The rows of one of ``parts`` files of a partition, in bounded batches."""
        numbers = self.partitions[partition]
        first, last = len(numbers) * number // parts, len(numbers) * (number + 1) // parts
        step = max(1, self.rows.num_rows * _STEP_BYTES // max(self.rows.nbytes, 1))
        for start in range(first, last, step):
            yield chunks.gather(self.rows, numbers[start : min(last, start + step)])


class RowsByKey:
    """Collects records and selects one for each key. Use it inside the keeper's block."""

    def __init__(self, schema: pa.Schema, keeper: RowKeeper, *, global_keys: bool) -> None:
        """``schema``: the user columns. ``global_keys``: a key is unique in the table, otherwise in a partition."""
        columns = [field.with_nullable(True) for field in schema]  # a delete may have only its key
        self._schema = pa.schema([*columns, pa.field(RECORD_KEY, pa.string())])
        self._keeper, self._global = keeper, global_keys
        self._rows: list[pa.Table] = []
        self._columns: list[pa.Table] = []
        self._paths: dict[str, int] = {}

    def add(self, records: Records) -> None:
        """Add some records."""
        count = records.rows.num_rows
        rows = records.rows.append_column(RECORD_KEY, records.keys.cast(pa.string()))
        self._rows.append(self._keeper.keep(as_schema(rows, self._schema)))
        paths = records.partitions.dictionary_encode()
        # A loop over the partitions of a block, not over records.
        own = np.array([self._paths.setdefault(p, len(self._paths)) for p in paths.dictionary.to_pylist()], np.int64)
        self._columns.append(
            pa.table(
                {
                    "part": own[paths.indices.to_numpy()] if count else np.zeros(0, np.int64),
                    "key": records.keys.cast(pa.large_binary()),
                    "unordered": records.unordered,
                    "ordering": records.ordering if records.ordering is not None else np.zeros(count, np.int64),
                    "deleted": records.deleted,
                }
            )
        )

    def chosen(self) -> NewRows:
        """The rows to write of all records so far."""
        rows = pa.concat_tables([*self._rows, self._schema.empty_table()])
        if not rows.num_rows:
            return NewRows(rows, {}, 0, 0)
        found = pa.concat_tables(self._columns).append_column("row", pa.array(np.arange(rows.num_rows)))
        same = ["key"] if self._global else ["part", "key"]
        by = [(name, "ascending") for name in (*same, "unordered", "ordering", "row")]
        order = pc.sort_indices(found, sort_keys=by)
        last = np.zeros(rows.num_rows, np.bool_)
        last[-1] = True
        for name in same:
            column = found.column(name).combine_chunks().take(order)
            last[:-1] |= pc.not_equal(column[:-1], column[1:]).to_numpy(zero_copy_only=False)
        newest: Rows = order.to_numpy()[last].astype(np.int64)
        stays = ~found.column("deleted").to_numpy()[newest]
        written = newest[stays]
        parts = found.column("part").to_numpy()[written]
        by_part = np.argsort(parts, kind="stable")
        written, parts = written[by_part], parts[by_part]
        names = list(self._paths)
        codes, starts = np.unique(parts, return_index=True)
        ends = [*starts[1:], len(parts)] if len(codes) else []
        partitions = {names[c]: written[s:e] for c, s, e in zip(codes.tolist(), starts, ends, strict=True)}
        return NewRows(rows, dict(sorted(partitions.items())), rows.num_rows, int((~stays).sum()))


@dataclass(frozen=True)
class OverwriteResult:
    """The commit, the replaced file groups by partition path, and the statuses of the new files."""

    instant: str
    replaced: Mapping[str, tuple[str, ...]]
    statuses: tuple[WriteStatus, ...]


def insert_overwrite(
    table: HoodieTable,
    rows: NewRows,
    groups: Mapping[str, tuple[str, ...]],
    schema_json: str,
    clock_ms: Callable[[], int],
    check: Check = lambda: None,
    reach: Callable[[str], None] = lambda _: None,
    *,
    whole_table: bool = False,
    max_file_bytes: int = MAX_FILE_BYTES,
    files: WriterOptions | None = None,
    read: Timeline | None = None,
    hold: Hold = no_lock,
    beat: Callable[[str | None], None] = lambda _: None,
) -> OverwriteResult:
    """Write the rows, which replace the file groups of some partitions (from ``groups_of_partitions``).

    ``read``: the timeline when ``groups`` and rows of the table were read. ``hold`` holds the table's lock, for the
    instant and for the commit. ``beat`` writes heartbeats for the instant until it is called with None.
    PlanOverlapError when another writer has changed one of the partitions since ``read``: then all is rolled back.

    ``schema_json``: the schema of the rows and of the table. ``whole_table``: the partitions are all partitions of the
    table. ValueError without rows. After an interruption it is a failed write, which ``roll_back_interrupted`` or any
    rollback undoes. ``check`` (of the lease) is called before each irreversible step. ``reach`` is called at the steps
    ``replace_requested``, ``replace_inflight``, ``replace_files``, ``replace_published``, ``metadata_begun``,
    ``metadata_files``, ``metadata_completed`` and ``replace_completed``.
    """
    if not rows.count:
        raise ValueError("an insert overwrite without rows")
    operation = WriteOperationType.INSERT_OVERWRITE_TABLE if whole_table else WriteOperationType.INSERT_OVERWRITE
    timeline, replaced = table.timeline(), replaced_ids(groups)
    with hold("the instant of an insert overwrite"):
        instant = fresh_times(table, MetadataWriter.open(table), clock_ms)()
        check()
        beat(instant)
        request(table, instant, REPLACE_COMMIT)
    reach(Step.REPLACE_REQUESTED)
    inflight(
        table, instant, REPLACE_COMMIT, CommitMetadata(extra={WRITER_KEY: json.dumps({"by": _BY})}, operation=operation)
    )
    reach(Step.REPLACE_INFLIGHT)
    schema = avro_to_arrow(schema_json)
    options = with_metadata_stats(table, files or WriterOptions(), schema)
    wanted_rows = max(1, max_file_bytes // record_bytes(table, timeline))
    statuses: list[WriteStatus] = []
    for partition, numbers in rows.partitions.items():
        parts = -(-len(numbers) // wanted_rows)
        for number in range(parts):
            task = len(statuses)
            ctx = WriteContext(
                instant, REPLACE_COMMIT, task, write_token(task, 0, 0), schema, schema_json, timeline.newest_completed,
                timeline, options,
            )  # fmt: skip
            file_id = new_file_id(_BY, instant, partition, number)
            statuses.append(_write(table, ctx, rows, partition, file_id, (number, parts)))
    reach(Step.REPLACE_FILES)
    with hold(f"insert overwrite {instant}"):
        check()
        try:
            _refuse_changed(table, read or timeline, {*groups, *rows.partitions})
        except InstantConflictError:
            rollback(table, instant, fresh_times(table, MetadataWriter.open(table), clock_ms)())
            beat(None)
            raise
        publish_files(table, instant, statuses)
        reach(Step.REPLACE_PUBLISHED)
        after = update_metadata(
            table, instant, statuses, clock_ms, check, reach,
            places=lambda: new_places(table, instant, statuses),
            deleted_keys=lambda: rows_of(table, timeline, [*replaced]),
        )  # fmt: skip
        metadata = CommitMetadata.build(statuses, {}, schema_json, operation, replaced)
        complete(table, instant, REPLACE_COMMIT, metadata, check, clock_ms, after)
    beat(None)
    reach(Step.REPLACE_COMPLETED)
    return OverwriteResult(instant, replaced, tuple(statuses))


def _refuse_changed(table: HoodieTable, read: Timeline, partitions: Set[str]) -> None:
    """PlanOverlapError when a write to one of the partitions was completed since the timeline was read, InstantConflictError
    when a service was planned over their file groups."""
    known, timeline = {i.time for i in read.completed_writes}, table.timeline()
    for instant in timeline.completed_writes:
        if instant.time in known:
            continue
        metadata = timeline.metadata(table.storage, instant)
        changed = {} if metadata.is_compaction else {*metadata.stats, *metadata.replaced} & partitions
        if changed:
            raise PlanOverlapError(
                f"table {table.base_path}: another writer made commit {instant.time} in partition {min(changed)!r}, which "
                "this command would replace; nothing was changed, run the command again"
            )
    groups_of_partitions(table, partitions, new_ones=True)


def roll_back_interrupted(
    table: HoodieTable, clock_ms: Callable[[], int], check: Check = lambda: None
) -> tuple[str, ...]:
    """Roll back the writes of killed runs of :func:`insert_overwrite`; returns their instants.

    The caller has the writer lease, so the runs have ended.
    """
    found = []
    for pending in table.timeline().pending_writes:
        if pending.action == REPLACE_COMMIT and _is_own(table, pending):
            check()
            rollback(table, pending.time, fresh_times(table, MetadataWriter.open(table), clock_ms)())
            found.append(pending.time)
    return tuple(found)


def record_bytes(table: HoodieTable, timeline: Timeline) -> int:
    """Bytes of a row in a base file, from the newest commit that wrote at least a MiB; else Hudi's estimate."""
    for instant in reversed(timeline.completed_writes):
        stats = timeline.metadata(table.storage, instant).all_stats()
        base = [s for s in stats if s.log_version is None and s.num_writes]
        size, count = sum(s.file_size for s in base), sum(s.num_writes for s in base)
        if size >= _TRUSTED_BYTES:
            return max(1, -(-size // count))
    return _RECORD_BYTES


def _write(
    table: HoodieTable, ctx: WriteContext, rows: NewRows, partition: str, file_id: str, which: tuple[int, int]
) -> WriteStatus:
    def with_meta(name: str) -> Iterator[pa.Table]:
        written = 0
        for each in rows.part(partition, *which):
            yield new_rows(ctx, each, partition, name, written)
            written += each.num_rows

    return write_new_group(table, ctx, partition, file_id, with_meta)


def _is_own(table: HoodieTable, pending: Instant) -> bool:
    rel = table.instant_path(Instant(pending.time, pending.action, State.INFLIGHT))
    try:
        data = table.storage.read(rel)
    except FileNotFoundError:
        return False
    told = CommitMetadata.from_bytes(data, table.storage.where(rel)).extra.get(WRITER_KEY)
    return told is not None and json.loads(told).get("by") == _BY
