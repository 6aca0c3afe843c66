"""A compaction of a test's merge-on-read table: planned over all newest slices, carried out later, in Hudi's form."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.schema.schema import FILE_NAME, PARTITION_PATH, RECORD_KEY, arrow_to_avro
from tagstream.table.timeline.avro_timeline import parsed_schema, write_parsed
from tagstream.table.timeline.commit_metadata import CommitMetadata, WriteStatus
from tagstream.table.timeline.instant import COMPACTION, Instant, State
from tagstream.table.write.commit import completed_instant, publish_files
from tagstream.table.write.markers import delete_markers
from tagstream.table.write.upsert import write_base_file
from tagstream.table.write.write_context import WriteContext
from tests.table.writer import Writer

Tell = Callable[[str, Sequence[WriteStatus]], None]


def plan_compaction(writer: Writer) -> Callable[[Tell | None], str]:
    """Put a plan on the timeline; what is returned carries it out from what the plan saw, and gives its instant."""
    table, timeline = writer.table, writer.table.timeline()
    view = table.view(timeline)
    slices = [s for p in view.partitions() for s in view.latest_merged_slices(p)]
    rows = read_snapshot(table)
    instant = writer.instant()
    operations = [operation(s) for s in slices]
    plan = {
        "operations": operations, "extraMetadata": {}, "version": 2, "strategy": None, "preserveHoodieMetadata": False,
        "missingSchedulePartitions": [],
    }  # fmt: skip
    requested = writer.timeline_rel(Instant(instant, COMPACTION, State.REQUESTED).file_name())
    table.storage.write_new(requested, write_parsed(parsed_schema("HoodieCompactionPlan"), plan))

    def complete(tell: Tell | None = None) -> str:
        pending = Instant(instant, COMPACTION, State.INFLIGHT)
        table.storage.write_new(writer.timeline_rel(pending.file_name()), b"")
        avro = json.dumps(arrow_to_avro(writer.schema, table.config.name))
        none = pa.table({RECORD_KEY: pa.array([], pa.string()), "_ordering": pa.array([], pa.int64())})
        statuses = []
        for number, planned in enumerate(slices):
            ids = pc.list_element(pc.split_pattern(pc.replace_substring_regex(rows[FILE_NAME], r"^\.", ""), "_"), 0)
            mine = pc.and_(pc.equal(ids, planned.file_id), pc.equal(rows[PARTITION_PATH], planned.partition_path))
            own = rows.filter(mine).combine_chunks()
            own = own.append_column("_is_insert", pa.array([True] * own.num_rows, pa.bool_()))
            ctx = WriteContext(instant, COMPACTION, number, f"{number}-9-9", writer.schema, avro,
                               timeline.newest_completed, timeline, writer.options)  # fmt: skip
            upserts = own.select([*writer.schema.names, RECORD_KEY, "_is_insert"])
            statuses.append(
                write_base_file(table, ctx, planned.partition_path, planned.file_id, None, upserts, none, 0)
            )
        publish_files(table, instant, statuses)
        if tell is not None:
            tell(instant, statuses)
        elif writer.before_complete is not None:
            writer.before_complete(instant, statuses, writer.where)
        metadata = CommitMetadata.build(statuses, {}, avro, "COMPACT")
        done = completed_instant(table, pending, writer.now_ms)
        table.storage.write_new(writer.timeline_rel(done.file_name()), metadata.to_bytes(table.config.version))
        delete_markers(table.storage, instant)
        return instant

    return complete


def operation(found: FileSlice) -> dict[str, object]:
    """A slice in a plan."""
    return {
        "baseInstantTime": found.base_instant,
        "deltaFilePaths": [log.name for log in found.log_files],
        "dataFilePath": found.base_file.name if found.base_file else None,
        "fileId": found.file_id,
        "partitionPath": found.partition_path,
        "metrics": {},
        "bootstrapFilePath": None,
    }
