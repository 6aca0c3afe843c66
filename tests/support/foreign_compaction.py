"""Another writer's compaction: planned over the committed slices of a partition, carried out later."""

from __future__ import annotations

import io

import fastavro
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.file_group.names import next_instant
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.schema.schema import FILE_NAME, RECORD_KEY, avro_json, avro_to_arrow
from tagstream.table.services.metadata_changes import with_metadata_stats
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import Instant, State
from tagstream.table.write.commit import completed_instant, publish_files
from tagstream.table.write.markers import delete_markers
from tagstream.table.write.upsert import write_base_file
from tagstream.table.write.write_context import WriteContext, WriterOptions
from tests.support import events as ev
from tests.support.foreign_writer import HeldCommit, tell

AVRO = avro_json(ev.AVRO_SCHEMA)
_OPTIONAL = ["null", "string"]
_OPERATION = {
    "type": "record",
    "name": "HoodieCompactionOperation",
    "fields": [
        {"name": "baseInstantTime", "type": _OPTIONAL},
        {"name": "deltaFilePaths", "type": ["null", {"type": "array", "items": "string"}]},
        {"name": "dataFilePath", "type": _OPTIONAL},
        {"name": "fileId", "type": _OPTIONAL},
        {"name": "partitionPath", "type": _OPTIONAL},
    ],
}
_PLAN = {
    "type": "record",
    "name": "HoodieCompactionPlan",
    "fields": [{"name": "operations", "type": ["null", {"type": "array", "items": _OPERATION}]}],
}


def plan_compaction(path: str, partition: str) -> HeldCommit:
    """Put the plan on the timeline; ``complete`` writes the new base files and the commit, from what the plan saw."""
    table = HoodieTable.open(path)
    timeline = table.timeline()
    slices = table.view(timeline, timeline.newest_completed).latest_merged_slices(partition)
    found = read_snapshot(table, partitions=[partition])
    at = next_instant(0, timeline.newest)
    operations = [
        {
            "baseInstantTime": s.base_instant,
            "deltaFilePaths": [log.name for log in s.log_files],
            "dataFilePath": s.base_file.name if s.base_file else None,
            "fileId": s.file_id,
            "partitionPath": partition,
        }
        for s in slices
    ]
    plan = io.BytesIO()
    fastavro.writer(plan, fastavro.parse_schema(_PLAN), [{"operations": operations}])
    requested = Instant(at, "compaction", State.REQUESTED).file_name()
    table.storage.write_new(f"{table.config.timeline_folder}/{requested}", plan.getvalue())

    def complete() -> None:
        inflight = Instant(at, "compaction", State.INFLIGHT).file_name()
        table.storage.write_new(f"{table.config.timeline_folder}/{inflight}", b"")
        statuses = []
        schema = avro_to_arrow(AVRO)
        options = with_metadata_stats(table, WriterOptions(), schema)
        for number, planned in enumerate(slices):
            names = [planned.file_id, *([planned.base_file.name] if planned.base_file else [])]
            mine = pc.is_in(found.column(FILE_NAME), pa.array(names))
            rows = found.filter(mine).combine_chunks()
            rows = rows.append_column("_is_insert", pa.array([True] * rows.num_rows, pa.bool_()))
            upserts = rows.select([*schema.names, RECORD_KEY, "_is_insert"])
            ctx = WriteContext(
                at, "compaction", number, f"{number}-9-9", schema, AVRO, timeline.newest_completed, timeline, options
            )
            none = pa.table({RECORD_KEY: pa.array([], pa.string()), "_ordering": pa.array([], pa.int64())})
            statuses.append(write_base_file(table, ctx, partition, planned.file_id, None, upserts, none, 0))
        publish_files(table, at, statuses)
        metadata = CommitMetadata.build(statuses, {}, AVRO, "COMPACT")
        done = completed_instant(
            table, Instant(at, "compaction", State.INFLIGHT), 0, tell(table, at, statuses)
        ).file_name()
        table.storage.write_new(f"{table.config.timeline_folder}/{done}", metadata.to_bytes(table.config.version))
        delete_markers(table.storage, at)

    return HeldCommit(at, complete)
