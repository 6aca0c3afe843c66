"""Whole partitions are deleted, in Hudi's form: a replace commit without files of its own.

The rows are gone for readers once it completes. The files, and at last the folder, go with a later clean. The commit keeps
the extra metadata that the caller gives it, and the schema of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from tagstream.table.errors import InstantConflictError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import RECORD_INDEX_PARTITION
from tagstream.table.metadata.write.changes import KEYS, Changes
from tagstream.table.metadata.write.delta import delta_commit
from tagstream.table.metadata.write.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.read.slice_lookup import key_reader
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.timeline.avro_schemas import parsed_schema
from tagstream.table.timeline.avro_timeline import write_parsed
from tagstream.table.timeline.commit_metadata import SCHEMA_KEY, CommitMetadata
from tagstream.table.timeline.instant import REPLACE_COMMIT, Instant, State
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.commit import completed_instant
from tagstream.table.write.markers import begin_markers, delete_markers

OPERATION = "DELETE_PARTITION"


def groups_of_partitions(table: HoodieTable, partitions: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The file groups that would go, by partition path; a partition without rows has none.

    InstantConflictError where one of them is not there, or has groups in a pending plan.
    """
    timeline = table.timeline()
    view = table.view(timeline)
    unknown = sorted({*partitions} - {*view.partitions()})
    if unknown:
        raise InstantConflictError(f"table {table.base_path} has no partition {unknown[0]!r}")
    found = {p: tuple(s.file_id for s in view.latest_merged_slices(p)) for p in sorted({*partitions})}
    plans = {**timeline.pending_compactions, **timeline.pending_clusterings}
    busy = next((plans[p, f] for p, ids in found.items() for f in ids if (p, f) in plans), None)
    if busy is not None:
        raise InstantConflictError(
            f"table {table.base_path}: the plan {busy} is pending over file groups of these partitions: carry it out first"
        )
    return found


def delete_partitions(
    table: HoodieTable,
    partitions: Sequence[str],
    clock_ms: Callable[[], int],
    check: Callable[[], None] = lambda: None,
    reach: Callable[[str], None] = lambda _: None,
    extra: Mapping[str, str] | None = None,
) -> str | None:
    """Delete all rows of the partitions; the instant of the commit, None where they have none. Errors as above.

    Cut off before its end it is a failed write without files, which a rollback takes away. ``reach`` is told of the steps
    ``replace_requested``, ``replace_inflight``, ``metadata_begun``, ``metadata_files`` and ``replace_completed``.
    """
    replaced = {p: ids for p, ids in groups_of_partitions(table, partitions).items() if ids}
    if not replaced:
        return None
    timeline, storage = table.timeline(), table.storage
    writer = MetadataWriter.open(table)
    instant = fresh_times(table, writer, clock_ms)()
    requested: dict[str, object] = {
        "operationType": OPERATION,
        "clusteringPlan": None,
        "extraMetadata": {},
        "version": 1,
    }
    planned = Instant(instant, REPLACE_COMMIT, State.REQUESTED)
    check()
    storage.write_new(_rel(table, planned), write_parsed(parsed_schema("HoodieRequestedReplaceMetadata"), requested))
    reach("replace_requested")
    begin_markers(storage, instant)
    inflight = Instant(instant, REPLACE_COMMIT, State.INFLIGHT)
    storage.write_new(_rel(table, inflight), CommitMetadata(operation=OPERATION).to_bytes(table.config.version))
    reach("replace_inflight")
    after = None
    if writer is not None:
        keys = list(_keys(table, timeline, replaced)) if RECORD_INDEX_PARTITION in writer.partitions else []
        times = fresh_times(table, writer, clock_ms)
        after = delta_commit(writer, instant, Changes(deleted_keys=keys), times, reach).completion_time
    schema = table.schema_json(timeline)
    metadata = CommitMetadata(
        {}, {**({SCHEMA_KEY: schema} if schema else {}), **(extra or {})}, OPERATION, replaced=replaced
    )
    check()
    completed = completed_instant(table, inflight, clock_ms(), after)
    storage.write_new(_rel(table, completed), metadata.to_bytes(table.config.version, replaces=True))
    reach("replace_completed")
    delete_markers(storage, instant)
    return instant


def _keys(table: HoodieTable, timeline: Timeline, replaced: Mapping[str, Sequence[str]]) -> list[pa.Table]:
    view = table.view(timeline)
    assert view.as_of is not None  # there are slices, so there is a commit
    reader = key_reader(table, timeline, view.as_of, None)
    return [
        pa.Table.from_arrays([keys, pa.repeat(pa.scalar(partition, pa.string()), len(keys))], schema=KEYS)
        for partition in replaced
        for at in view.latest_merged_slices(partition)
        for rows in reader.read(at)
        for keys in [rows.column(RECORD_KEY).combine_chunks().cast(pa.string())]
    ]


def _rel(table: HoodieTable, instant: Instant) -> str:
    return f"{table.config.timeline_folder}/{instant.file_name()}"
