"""Whole partitions are deleted, in Hudi's form: a replace commit without files of its own.

The rows are gone for readers once it completes. The files, and at last the folder, go with a later clean. The commit keeps
the extra metadata that the caller gives it, and the schema of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.write.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.services.compaction.in_metadata import tell_metadata
from tagstream.table.services.replacing.groups import groups_of_partitions, replaced_ids, rows_of
from tagstream.table.timeline.avro_schemas import parsed_schema
from tagstream.table.timeline.avro_timeline import write_parsed
from tagstream.table.timeline.commit_metadata import SCHEMA_KEY, CommitMetadata
from tagstream.table.timeline.instant import REPLACE_COMMIT, Instant, State
from tagstream.table.write.commit import completed_instant
from tagstream.table.write.markers import begin_markers, delete_markers

OPERATION = "DELETE_PARTITION"


def delete_partitions(
    table: HoodieTable,
    partitions: Sequence[str],
    clock_ms: Callable[[], int],
    check: Callable[[], None] = lambda: None,
    reach: Callable[[str], None] = lambda _: None,
    extra: Mapping[str, str] | None = None,
) -> str | None:
    """Delete all rows of the partitions; the instant of the commit, None where they have none.

    Errors of ``groups_of_partitions``. Cut off before its end it is a failed write without files, which a rollback takes
    away. ``reach`` is told of the steps ``replace_requested``, ``replace_inflight``, ``metadata_begun``, ``metadata_files``,
    ``metadata_completed`` and ``replace_completed``.
    """
    replaced = replaced_ids(groups_of_partitions(table, partitions))
    if not replaced:
        return None
    timeline, storage = table.timeline(), table.storage
    instant = fresh_times(table, MetadataWriter.open(table), clock_ms)()
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
    after = tell_metadata(
        table, instant, (), clock_ms, check, reach,
        deleted_keys=lambda: rows_of(table, timeline, [*replaced]),
    )  # fmt: skip
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


def _rel(table: HoodieTable, instant: Instant) -> str:
    return f"{table.config.timeline_folder}/{instant.file_name()}"
