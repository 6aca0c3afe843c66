"""A small writer for tests: tags with a dict, writes through the table layer, and keeps the oracle of live rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tagstream.table.file_group.bloom import BloomParams
from tagstream.table.file_group.names import new_file_id, next_instant
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import MERGE_ON_READ, TableConfig
from tagstream.table.schema.schema import arrow_to_avro
from tagstream.table.services.rollback import rollback
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.commit_metadata import CommitMetadata, FileKind, WriteStatus
from tagstream.table.write import commit
from tagstream.table.write.file_writer import write_file_group
from tagstream.table.write.markers import list_markers
from tagstream.table.write.write_context import WriteContext, WriterOptions
from tests.support.table_version import metadata_wanted, table_version

SCHEMA = pa.schema([
    pa.field("id", pa.string()), pa.field("part", pa.string()), pa.field("ver", pa.int64()),
    pa.field("name", pa.string()), pa.field("amount", pa.float64()),
])  # fmt: skip
INT64 = pa.int64()
START_MS = 1_767_225_600_000  # 2026-01-01
SMALL_BLOOM = BloomParams(num_entries=100, fpp=0.01, dynamic_max_entries=1000)
Row = dict[str, Any]


class CrashError(Exception):
    """Stands for the death of the process at this point."""


@dataclass
class Writer:
    """One table and what ought to be in it. ``live`` and ``where`` are the rows and locations by record key.

    ``era``: counted up when the file groups were replaced, so that new rows go to others.
    """

    table: HoodieTable
    schema: pa.Schema = SCHEMA
    groups: int = 2
    options: WriterOptions = field(default_factory=lambda: WriterOptions(bloom=SMALL_BLOOM))
    live: dict[str, Row] = field(default_factory=dict)
    where: dict[str, tuple[str, str]] = field(default_factory=dict)
    now_ms: int = START_MS
    attempt: int = 0
    era: int = 0
    before_complete: Callable[[str, Sequence[WriteStatus], Mapping[str, tuple[str, str]]], None] | None = None

    @staticmethod
    def create(folder: Path, table_type: str, **options: Any) -> Writer:
        """A new table ``t`` below ``folder``, with the columns of SCHEMA unless ``schema`` names others.

        ``settings``: fields of the TableConfig that differ from the usual ones.
        A run of the tests that asks for metadata tables gets one here, which is told of each commit.
        """
        if metadata_wanted():
            from tests.table.metadata.case import Case  # which is made of a writer

            groups = options.pop("groups", Writer.groups)
            writer = Case.create(folder, table_type, table_version(), **options).writer
            writer.groups = groups
            # As the job does: hudi-rs passes over file groups of logs alone that one of version 8 or later lists.
            return writer.with_options(inserts_to_base_files=table_version() >= 8)
        return Writer.without_metadata(folder, table_type, **options)

    @staticmethod
    def without_metadata(folder: Path, table_type: str, **options: Any) -> Writer:
        """The same without a metadata table, whatever the run asks for."""
        settings = options.pop("settings", {})
        config = TableConfig(
            name="t",
            table_type=table_type,
            record_key_fields=("id",),
            partition_fields=("part",),
            ordering_fields=("ver",),
            create_schema=json.dumps(arrow_to_avro(options.get("schema", SCHEMA), "t")),
            version=table_version(),
        )
        return Writer(HoodieTable.create(str(folder / "t"), replace(config, **settings), START_MS), **options)

    @property
    def action(self) -> str:
        return "deltacommit" if self.table.config.table_type == MERGE_ON_READ else "commit"

    def instant(self) -> str:
        self.now_ms += 1000
        return next_instant(self.now_ms, self.table.timeline().newest, self.table.config.timezone_utc)

    def write(
        self,
        upserts: Sequence[Row] = (),
        deletes: Iterable[str] = (),
        orderings: Mapping[str, Any] | None = None,
        crash: str | None = None,
    ) -> str:
        """One commit: upserts with new and known keys, moves among them, and deletes of known keys.

        ``crash``: one of request, inflight, files (staged), publish, told (``before_complete``, which gets the instant, the
        write statuses and where each key will be): raises CrashError after that step and keeps the oracle.
        """
        table, timeline = self.table, self.table.timeline()
        where, live = dict(self.where), dict(self.live)
        work: dict[tuple[str, str], tuple[list[Row], list[tuple[str, Any]]]] = {}
        for key in deletes:
            work.setdefault(where.pop(key), ([], []))[1].append((key, (orderings or {}).get(key)))
            del live[key]
        for row in upserts:
            old, new = where.get(row["id"]), self.locate(row)
            if old is not None and old[0] == new[0]:
                new = old
            elif old is not None:
                work.setdefault(old, ([], []))[1].append((row["id"], row["ver"]))
            work.setdefault(new, ([], []))[0].append({**row, "_is_insert": old != new})
            where[row["id"]], live[row["id"]] = new, row
        instant = self.instant()
        self._step(commit.request, instant, crash, "request")
        self._step(commit.inflight, instant, crash, "inflight")
        avro = json.dumps(arrow_to_avro(self.schema, table.config.name))
        self.attempt += 1
        statuses: list[WriteStatus] = []
        view = table.view(timeline)
        for n, ((partition, file_id), (rows, gone)) in enumerate(sorted(work.items())):
            token = f"{n}-1-{self.attempt}"
            ctx = WriteContext(instant, self.action, n, token, self.schema, avro, timeline.newest_completed, timeline,
                               self.options)  # fmt: skip
            deletes = delete_rows(gone, self.schema.field("ver").type)
            statuses += write_file_group(
                table, ctx, partition, file_id, view.latest_slice(partition, file_id), self.rows(rows), deletes
            )
        if crash == "files":
            raise CrashError
        statuses = [WriteStatus.from_json(status.to_json()) for status in statuses]
        commit.publish_files(table, instant, statuses)
        if crash == "publish":
            raise CrashError
        if self.before_complete is not None:
            self.before_complete(instant, statuses, where)
        if crash == "told":
            raise CrashError
        metadata = CommitMetadata.build(statuses, {}, avro)
        commit.complete(table, instant, self.action, metadata, clock_ms=lambda: self.now_ms)
        self.where, self.live = where, live
        return instant

    def as_hudi_left_it(self) -> None:
        """The pending write as Hudi or an earlier version of this program leaves one: direct markers, nothing staged."""
        (failed,) = self.table.timeline().pending_writes
        storage, markers = self.table.storage, list_markers(self.table.storage, failed.time)
        content = CommitMetadata().to_bytes(self.table.config.version)
        storage.replace(self.timeline_rel(failed.file_name()), content)
        storage.delete_tree(f".hoodie/.temp/{failed.time}")
        for marker in markers:
            direct_marker(storage, failed.time, marker.path, marker.kind)

    def rollback_pending(self) -> None:
        """Roll back every pending write, as a new run does at its start."""
        for pending in self.table.timeline().pending_writes:
            rollback(self.table, pending.time, self.instant())

    def timeline_rel(self, name: str) -> str:
        """A file of the timeline, relative to the base path."""
        return f"{self.table.config.timeline_folder}/{name}"

    def completed_rel(self, time: str) -> str:
        """The file of a completed write."""
        (found,) = [i for i in self.table.timeline().completed_writes if i.time == time]
        return self.timeline_rel(found.file_name())

    def miscounted(self, partition: str, more: int) -> str:
        """The oldest commit says that a file of the partition has ``more`` rows than it has; the file's path."""
        table = self.table.reload()
        timeline = table.timeline()
        first = timeline.completed_writes[0]
        metadata = timeline.metadata(table.storage, first)
        stat, *others = metadata.stats[partition]
        stats = {**metadata.stats, partition: (replace(stat, num_writes=stat.num_writes + more), *others)}
        content = replace(metadata, stats=stats).to_bytes(table.config.version)
        table.storage.replace(self.completed_rel(first.time), content)
        return stat.path

    def locate(self, row: Row) -> tuple[str, str]:
        """Partition and file group of a new row."""
        number = sum(row["id"].encode()) % self.groups
        era = (self.era,) if self.era else ()
        return row["part"], new_file_id(self.table.config.name, row["part"], number, *era)

    def rows(self, rows: Sequence[Row]) -> pa.Table:
        """Upserts as write_file_group takes them."""
        table = pa.Table.from_pylist(
            [dict(r) for r in rows], schema=pa.schema([*self.schema, ("_is_insert", pa.bool_())])
        )
        return table.append_column("_hoodie_record_key", table.column("id"))

    def _step(self, step: Callable[[HoodieTable, str, str], None], instant: str, crash: str | None, name: str) -> None:
        step(self.table, instant, self.action)
        if crash == name:
            raise CrashError

    def with_options(self, **changes: Any) -> Writer:
        """The same writer with other file options from here on."""
        self.options = replace(self.options, **changes)
        return self


def direct_marker(storage: Storage, instant: str, path: str, kind: FileKind) -> None:
    """Announce a data file as Hudi's tasks do, and earlier versions of this program did."""
    storage.write_new(f".hoodie/.temp/{instant}/{path}.marker.{kind.value}", b"")


def delete_rows(gone: Sequence[tuple[str, Any]], ordering_type: pa.DataType = INT64) -> pa.Table:
    """Deletes as write_file_group takes them: record keys with their ordering values."""
    return pa.table({
        "_hoodie_record_key": pa.array([key for key, _ in gone], pa.string()),
        "_ordering": pa.array([ordering for _, ordering in gone], ordering_type),
    })  # fmt: skip


def row(key: int | str, part: str, ver: int, name: str = "n") -> Row:
    """A row of SCHEMA."""
    return {"id": f"k{key}", "part": part, "ver": ver, "name": name, "amount": ver / 2}
