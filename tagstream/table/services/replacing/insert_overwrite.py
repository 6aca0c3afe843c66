"""Rows take the place of all that some partitions hold, in Hudi's form: a replace commit with new file groups.

``INSERT_OVERWRITE`` replaces the partitions that the rows are in, or those that the caller names (Hudi's dynamic and static
way), ``INSERT_OVERWRITE_TABLE`` all. Readers see the old rows until it completes; the old files go with a later clean. The
rows are base files on merge-on-read tables, too. No index is asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from tagstream.table.file_group.names import new_file_id, write_token
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.write.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.schema.schema import avro_to_arrow
from tagstream.table.services.compaction.in_metadata import new_places, tell_metadata, told_to_metadata
from tagstream.table.services.replacing.groups import replaced_ids, rows_of
from tagstream.table.services.replacing.rows import NewRows
from tagstream.table.services.rollback import rollback
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import REPLACE_COMMIT, Instant, State
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.timeline.write_status import WriteStatus
from tagstream.table.write.commit import WRITER_KEY, complete, inflight, publish_files, request
from tagstream.table.write.new_group import write_new_group
from tagstream.table.write.write_context import WriteContext, WriterOptions
from tagstream.table.write.write_rows import new_rows

INSERT_OVERWRITE, INSERT_OVERWRITE_TABLE = "INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE"
MAX_FILE_BYTES = 120 * 1024 * 1024  # hoodie.parquet.max.file.size
_RECORD_BYTES = 1024  # hoodie.copyonwrite.record.size.estimate
_TRUSTED_BYTES = 1024 * 1024
_BY = "insert-overwrite"

Check = Callable[[], None]


@dataclass(frozen=True)
class OverwriteResult:
    """The commit, the file groups that are gone by partition path, and the new files."""

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
) -> OverwriteResult:
    """Write the rows in place of the file groups of some partitions (as ``groups_of_partitions`` gives them).

    ``schema_json``: of the rows, which is the table's. ``whole_table``: the partitions are all that there are. ValueError
    without rows. Cut off before its end it is a failed write, which ``forget_cut_off`` or any rollback takes away. ``check``
    (the lease's) is called before each step that cannot be taken back; ``reach`` is told of the steps ``replace_requested``,
    ``replace_inflight``, ``replace_files``, ``replace_published``, ``metadata_begun``, ``metadata_files``,
    ``metadata_completed`` and ``replace_completed``.
    """
    if not rows.count:
        raise ValueError("an insert overwrite without rows")
    operation = INSERT_OVERWRITE_TABLE if whole_table else INSERT_OVERWRITE
    timeline, replaced = table.timeline(), replaced_ids(groups)
    instant = fresh_times(table, MetadataWriter.open(table), clock_ms)()
    check()
    request(table, instant, REPLACE_COMMIT)
    reach("replace_requested")
    inflight(
        table, instant, REPLACE_COMMIT, CommitMetadata(extra={WRITER_KEY: json.dumps({"by": _BY})}, operation=operation)
    )
    reach("replace_inflight")
    schema = avro_to_arrow(schema_json)
    options = told_to_metadata(table, files or WriterOptions(), schema)
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
    reach("replace_files")
    check()
    publish_files(table, instant, statuses)
    reach("replace_published")
    after = tell_metadata(
        table, instant, statuses, clock_ms, check, reach,
        places=lambda: new_places(table, instant, statuses),
        deleted_keys=lambda: rows_of(table, timeline, [*replaced]),
    )  # fmt: skip
    metadata = CommitMetadata.build(statuses, {}, schema_json, operation, replaced)
    complete(table, instant, REPLACE_COMMIT, metadata, check, clock_ms, after)
    reach("replace_completed")
    return OverwriteResult(instant, replaced, tuple(statuses))


def forget_cut_off(table: HoodieTable, clock_ms: Callable[[], int], check: Check = lambda: None) -> tuple[str, ...]:
    """Roll back what a run of :func:`insert_overwrite` has left that was killed; the instants.

    The caller holds the writer lease, so that run is dead.
    """
    found = []
    for pending in table.timeline().pending_writes:
        if pending.action == REPLACE_COMMIT and _is_own(table, pending):
            check()
            rollback(table, pending.time, fresh_times(table, MetadataWriter.open(table), clock_ms)())
            found.append(pending.time)
    return tuple(found)


def record_bytes(table: HoodieTable, timeline: Timeline) -> int:
    """Bytes of a row in a base file: of the newest commit that wrote a MiB or more of them; else Hudi's estimate."""
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
    rel = f"{table.config.timeline_folder}/{Instant(pending.time, pending.action, State.INFLIGHT).file_name()}"
    try:
        data = table.storage.read(rel)
    except FileNotFoundError:
        return False
    told = CommitMetadata.from_bytes(data, table.storage.where(rel)).extra.get(WRITER_KEY)
    return told is not None and json.loads(told).get("by") == _BY
