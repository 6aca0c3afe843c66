"""Another writer of the table: knows nothing of streams or indexes, reads where a key is and writes through table/."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.schema.schema import FILE_NAME, PARTITION_PATH, RECORD_KEY, avro_json, avro_to_arrow
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.write_status import WriteStatus
from tagstream.table.write import commit as protocol
from tagstream.table.write.file_writer import write_file_group
from tagstream.table.write.write_context import WriteContext
from tests.support import events as ev

AVRO = avro_json(ev.AVRO_SCHEMA)


class ForeignWriter:
    """Commits to the table at ``path``; each method is one commit and returns its instant."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def upsert(self, events: Iterable[ev.Event], instant: str | None = None) -> str:
        """Write the rows, moves and deletes of the events as they are, whatever their ordering values."""
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
        return self._commit(table, rows, deletes, instant=instant)

    def insert_overwrite(self, partition: str, events: Sequence[ev.Event]) -> str:
        """Replace all file groups of a partition by one that holds the events (none: delete the partition)."""
        table, _ = self._look()
        old = [s.file_id for s in table.view().latest_merged_slices(partition)]
        rows = {(partition, self._group(partition)): [(e, True) for e in events]} if events else {}
        return self._commit(table, rows, {}, replaced={partition: tuple(old)})

    def cluster(self, partition: str) -> str:
        """Rewrite all rows of a partition into one new file group."""
        table, _ = self._look()
        found = read_snapshot(table, partitions=[partition]).to_pylist()
        events = [ev.Event(r["id"], r["part"], r["ts"], False, r["name"], r["amount"]) for r in found]
        return self.insert_overwrite(partition, events)

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
        newest = HoodieTable.open(self._path).timeline().newest or "20200101000000000"
        return str(int(newest) + 1)

    def _commit(
        self,
        table: HoodieTable,
        rows: dict[tuple[str, str], list[tuple[ev.Event, bool]]],
        deletes: dict[tuple[str, str], list[ev.Event]],
        *,
        replaced: dict[str, tuple[str, ...]] | None = None,
        instant: str | None = None,
    ) -> str:
        timeline = table.timeline()
        instant = instant or self._next()
        action = "replacecommit" if replaced else "deltacommit" if table.config.is_merge_on_read else "commit"
        protocol.request(table, instant, action)
        protocol.inflight(table, instant, action)
        schema = avro_to_arrow(AVRO)
        statuses: list[WriteStatus] = []
        for number, group in enumerate(sorted(rows.keys() | deletes.keys())):
            ctx = WriteContext(
                instant, action, number, f"{number}-7-7", schema, AVRO, timeline.newest_completed, timeline
            )
            upserts = pa.Table.from_pylist([e.row() for e, _ in rows.get(group, [])], schema)
            upserts = upserts.append_column(
                RECORD_KEY, pa.array([e.key for e, _ in rows.get(group, [])], pa.string())
            ).append_column("_is_insert", pa.array([new for _, new in rows.get(group, [])], pa.bool_()))
            gone = deletes.get(group, [])
            dead = pa.table({
                RECORD_KEY: pa.array([e.key for e in gone], pa.string()),
                "_ordering": pa.array([e.ordering for e in gone], pa.int64()),
            })  # fmt: skip
            statuses += write_file_group(table, ctx, *group, upserts, dead)
        operation = "INSERT_OVERWRITE" if replaced else "UPSERT"
        built = CommitMetadata.build(statuses, {}, AVRO, operation)
        metadata = CommitMetadata(built.stats, built.extra, operation, replaced=replaced or {})
        protocol.publish_files(table, instant, statuses)
        protocol.complete(table, instant, action, metadata)
        return instant
