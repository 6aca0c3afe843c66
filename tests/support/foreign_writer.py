"""Another writer of the table: knows nothing of streams or indexes, reads where a key is and writes through table/.
It keeps a metadata table in step, as every writer of the table must.

A commit can be held: the table has been read and the files written, and nobody sees it complete until ``complete`` is
called; or it can be late: not even its requested file is there until then, as of a writer that began in the last moment.
"""

from __future__ import annotations

import io
import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa

from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.file_group.names import next_instant
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import RECORD_INDEX_PARTITION
from tagstream.table.metadata.metadata_writer import MetadataWriter
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.schema.schema import FILE_NAME, PARTITION_PATH, RECORD_KEY, avro_json, avro_to_arrow
from tagstream.table.services.metadata_changes import update_metadata, with_metadata_stats
from tagstream.table.timeline.commit_metadata import CommitMetadata, WriteStat, WriteStatus
from tagstream.table.timeline.instant import Instant, State
from tagstream.table.write import commit as protocol
from tagstream.table.write.file_writer import write_file_group
from tagstream.table.write.write_context import WriteContext, WriterOptions
from tests.support import events as ev

AVRO = avro_json(ev.AVRO_SCHEMA)
_STRINGS = {"type": "array", "items": "string"}
_SLICE = {
    "type": "record",
    "name": "HoodieSliceInfo",
    "fields": [
        {"name": "dataFilePath", "type": ["null", "string"]},
        {"name": "deltaFilePaths", "type": _STRINGS},
        {"name": "fileId", "type": "string"},
        {"name": "partitionPath", "type": "string"},
    ],
}
_GROUPS = {
    "type": "record",
    "name": "Group",
    "fields": [{"name": "slices", "type": {"type": "array", "items": _SLICE}}],
}
_CLUSTERING = {
    "type": "record",
    "name": "HoodieRequestedReplaceMetadata",
    "fields": [
        {"name": "operationType", "type": "string"},
        {
            "name": "clusteringPlan",
            "type": {
                "type": "record",
                "name": "HoodieClusteringPlan",
                "fields": [{"name": "inputGroups", "type": {"type": "array", "items": _GROUPS}}],
            },
        },
    ],
}


class HeldCommit:
    """A commit that is not completed yet."""

    def __init__(self, instant: str, complete: Callable[[], None]) -> None:
        self.instant = instant
        self.complete = complete


class ForeignWriter:
    """Commits to the table at ``path``; each method is one commit and returns its instant.

    ``note``: the writer's schema has a column more, which gets the events' names. ``avro``: its schema, in place of the one
    of ``tests.support.events``; ``event_of``: what it makes of a row of the table when it writes it again.
    """

    def __init__(
        self,
        path: Path,
        *,
        note: bool = False,
        avro: str | None = None,
        event_of: Callable[[dict[str, Any]], Any] | None = None,
    ) -> None:
        self._path = str(path)
        self._event_of = event_of or _event_of
        added = [{"name": "note", "type": ["null", "string"], "default": None}] if note else []
        self._avro = avro or avro_json({**ev.AVRO_SCHEMA, "fields": [*ev.AVRO_SCHEMA["fields"], *added]})
        self._note = note

    def upsert(self, events: Iterable[ev.Event], instant: str | None = None) -> str:
        """Write the rows, moves and deletes of the events as they are, whatever their ordering values."""
        return _done(self.hold_upsert(events, instant))

    def hold_upsert(self, events: Iterable[ev.Event], instant: str | None = None, *, late: bool = False) -> HeldCommit:
        """The same, not completed."""
        table, where = self._look()
        rows: dict[tuple[str, str], list[tuple[ev.Event, bool]]] = defaultdict(list)
        deletes: dict[tuple[str, str], list[ev.Event]] = defaultdict(list)
        for event in events:
            known = where.get(event.key)
            if known is not None and (event.deleted or known[0] != event.partition):
                deletes[known].append(event)
            if event.deleted:
                continue
            assert event.partition is not None
            same = known is not None and known[0] == event.partition
            target = known if same and known is not None else (event.partition, self._group(event.partition))
            rows[target].append((event, not same))
        return self._hold(table, rows, deletes, instant=instant, late=late)

    def insert_overwrite(self, partition: str, events: Sequence[ev.Event]) -> str:
        """Replace all file groups of a partition by one that holds the events (none: delete the partition)."""
        table, _ = self._look()
        old = [s.file_id for s in table.view().latest_merged_slices(partition)]
        rows = {(partition, self._group(partition)): [(e, True) for e in events]} if events else {}
        return _done(self._hold(table, rows, {}, replaced={partition: tuple(old)}, operation="INSERT_OVERWRITE"))

    def cluster(self, partition: str) -> str:
        """Rewrite all rows of a partition into one new file group."""
        return _done(self.hold_cluster(partition))

    def hold_cluster(self, partition: str, *, late: bool = False) -> HeldCommit:
        """The same, not completed: its plan is on the timeline, unless it is ``late``."""
        table, _ = self._look()
        slices = table.view().latest_merged_slices(partition)
        found = read_snapshot(table, partitions=[partition]).to_pylist()
        events = [self._event_of(row) for row in found]
        rows = {(partition, self._group(partition)): [(e, True) for e in events]}
        replaced = {partition: tuple(s.file_id for s in slices)}
        plan = _clustering_plan(slices)
        return self._hold(table, rows, {}, replaced=replaced, operation="CLUSTER", plan=plan, late=late)

    def _look(self) -> tuple[HoodieTable, dict[str, tuple[str, str]]]:
        table = HoodieTable.open(self._path)
        found = read_snapshot(table, [RECORD_KEY, PARTITION_PATH, FILE_NAME])
        where = {}
        for key, partition, name in zip(*(column.to_pylist() for column in found.columns), strict=True):
            where[key] = (partition, name.split("_")[0])  # the file id, or the base file's name that begins with it
        return table, where

    def _group(self, partition: str) -> str:
        return f"{uuid.uuid5(uuid.NAMESPACE_URL, f'{self._path} {partition} {self._next()}')}-0"

    def _next(self) -> str:
        return next_instant(0, HoodieTable.open(self._path).timeline().newest)

    def _row(self, event: ev.Event) -> dict[str, Any]:
        return event.row() | ({"note": event.name} if self._note else {})

    def _hold(
        self,
        table: HoodieTable,
        rows: Mapping[tuple[str, str], list[tuple[ev.Event, bool]]],
        deletes: Mapping[tuple[str, str], list[ev.Event]],
        *,
        replaced: dict[str, tuple[str, ...]] | None = None,
        operation: str = "UPSERT",
        instant: str | None = None,
        plan: bytes | None = None,
        late: bool = False,
    ) -> HeldCommit:
        timeline = table.timeline()
        action = "replacecommit" if replaced else "deltacommit" if table.config.is_merge_on_read else "commit"
        held = instant or self._next()

        def begin(at: str) -> list[WriteStatus]:
            if plan is not None:
                name = Instant(at, action, State.REQUESTED).file_name()
                table.storage.write_new(f"{table.config.timeline_folder}/{name}", plan)
            else:
                protocol.request(table, at, action)
            groups = [] if plan is not None else sorted({**rows, **deletes})  # as Hudi: the groups are known before
            stats = {p: tuple(WriteStat(file_id, "", p) for path, file_id in groups if path == p) for p, _ in groups}
            protocol.inflight(table, at, action, CommitMetadata(stats=stats, operation=operation))
            written = self._write(table, timeline, at, action, rows, deletes)
            protocol.publish_files(table, at, written)  # other writers' files are in the table while it is pending
            return written

        def complete() -> None:
            at = self._next() if late and instant is None else held
            written = statuses if statuses is not None else begin(at)
            built = CommitMetadata.build(written, {}, self._avro, operation)
            metadata = CommitMetadata(built.stats, built.extra, operation, replaced=replaced or {})
            protocol.complete(table, at, action, metadata, after=tell(table, at, written))

        statuses = None if late else begin(held)
        return HeldCommit(held, complete)

    def _write(
        self,
        table: HoodieTable,
        timeline: Any,
        instant: str,
        action: str,
        rows: Mapping[tuple[str, str], list[tuple[ev.Event, bool]]],
        deletes: Mapping[tuple[str, str], list[ev.Event]],
    ) -> list[WriteStatus]:
        schema = avro_to_arrow(self._avro)
        statuses: list[WriteStatus] = []
        options = with_metadata_stats(table, WriterOptions(inserts_to_base_files=lists_base_files(table)), schema)
        for number, group in enumerate(sorted(rows.keys() | deletes.keys())):
            ctx = WriteContext(
                instant, action, number, f"{number}-7-7", schema, self._avro, timeline.newest_completed, timeline,
                options,
            )  # fmt: skip
            upserts = pa.Table.from_pylist([self._row(e) for e, _ in rows.get(group, [])], schema)
            upserts = upserts.append_column(
                RECORD_KEY, pa.array([e.key for e, _ in rows.get(group, [])], pa.string())
            ).append_column("_is_insert", pa.array([new for _, new in rows.get(group, [])], pa.bool_()))
            gone = deletes.get(group, [])
            dead = pa.table({
                RECORD_KEY: pa.array([e.key for e in gone], pa.string()),
                "_ordering": pa.array([e.ordering for e in gone], pa.int64()),
            })  # fmt: skip
            statuses += write_file_group(table, ctx, *group, table.view(timeline).latest_slice(*group), upserts, dead)
        return statuses


def lists_base_files(table: HoodieTable) -> bool:
    """Whether hudi-rs passes over file groups of logs alone: where a metadata table of version 8 or later lists them."""
    return bool(table.config.metadata_partitions) and table.config.version >= 8


def tell(table: HoodieTable, instant: str, statuses: Sequence[WriteStatus]) -> str | None:
    """Tell the table's metadata table, if it has one, of an action; returns the time that its completion must be after."""
    writer = MetadataWriter.open(table.reload())
    if writer is None:
        return None
    assert RECORD_INDEX_PARTITION not in writer.partitions, "this writer does not know where keys were"
    return update_metadata(table.reload(), instant, statuses, lambda: 0, lambda: None, lambda _: None)


def _event_of(row: dict[str, Any]) -> ev.Event:
    return ev.Event(row["id"], row["part"], row["ts"], False, row["name"], row["amount"])


def _done(held: HeldCommit) -> str:
    held.complete()
    return held.instant


def _clustering_plan(slices: Sequence[FileSlice]) -> bytes:
    found = [
        {
            "dataFilePath": s.base_path,
            "deltaFilePaths": list(s.log_paths),
            "fileId": s.file_id,
            "partitionPath": s.partition_path,
        }
        for s in slices
    ]
    buffer = io.BytesIO()
    record = {"operationType": "CLUSTER", "clusteringPlan": {"inputGroups": [{"slices": found}]}}
    fastavro.writer(buffer, fastavro.parse_schema(json.loads(json.dumps(_CLUSTERING))), [record])
    return buffer.getvalue()
