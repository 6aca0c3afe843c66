"""Batches of messages into a table without Spark: the real steps of a batch, called one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tagstream.state.layout import StateLayout
from tagstream.state.tag_batch import TagResult
from tagstream.streaming.batch.located import OP_BAD, WriteTasks, packed_columns
from tagstream.streaming.batch.tag import tag_records
from tagstream.streaming.batch.write import WRITE_STATUS, WriteSpec, write_files
from tagstream.streaming.process import CrashPlan
from tagstream.streaming.source.decode.make_format import FormatRules
from tagstream.streaming.source.decode.record_format import Noticed
from tagstream.streaming.source.decode.record_schemas import in_order
from tagstream.streaming.source.decode.schema_names import table_schema
from tagstream.streaming.source.decode_spec import DecodeSpec, cached_decoder
from tagstream.streaming.source.packed import unpack
from tagstream.streaming.source.source import pack_by_group
from tagstream.table.file_group.bloom import BloomParams
from tagstream.table.file_group.names import next_instant
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import MERGE_ON_READ, TableConfig
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.schema.record_schema import keep_defaults, record_schema
from tagstream.table.schema.schema import META_COLUMNS, arrow_to_avro, avro_json, avro_to_arrow
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.timeline.commit_metadata import CommitMetadata, WriteStatus
from tagstream.table.write import commit
from tagstream.table.write.write_context import WriteProfile, WriterOptions
from tests.support import cdc
from tests.support.table_version import table_version

START_MS = 1_767_225_600_000
LABELS = (3, 8)
WRITE_TASKS = 2


@dataclass
class Pipeline:
    """One table, its index and what was counted. ``bad``: the bad records' notes.

    ``on_news``: told of schemas of records with something new; it changes ``spec``, and the batch is decoded again.
    """

    table: HoodieTable
    spec: DecodeSpec
    layout: StateLayout
    pointers: dict[int, bytes | None] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    bad: list[str] = field(default_factory=list)
    batch_id: int = 0
    now_ms: int = START_MS
    on_news: Callable[[list[Noticed]], None] = lambda _: None

    @staticmethod
    def create(
        folder: Path,
        table_type: str,
        schema_text: str,
        keys: Sequence[str],
        partitions: Sequence[str],
        rules: FormatRules,
        ordering: Sequence[str] = (),
        *,
        drops: bool = False,
    ) -> Pipeline:
        """A new table below ``folder``. ``drops``: its files leave out the partition columns."""
        text = table_schema(schema_text)
        schema = avro_to_arrow(text)
        written = avro_json(keep_defaults(arrow_to_avro(schema, "t"), text))
        config = TableConfig(
            name="t", table_type=table_type, record_key_fields=tuple(keys), partition_fields=tuple(partitions),
            ordering_fields=tuple(ordering), create_schema=written, version=table_version(), drops_partition_columns=drops,
        )  # fmt: skip
        table = HoodieTable.create(PosixStorage(str(folder / "t"), sync=False), config, START_MS)
        spec = replace(DecodeSpec.of(table, written, text, global_index=True, files=False), format=rules)
        durable = PosixStorage(str(folder / "durable"), sync=False)
        layout = StateLayout(durable, str(folder / "local"), ordering=spec.ordering_kind, snapshot_every=4)
        return Pipeline(table, spec, layout)

    def batch(self, messages: Sequence[cdc.Message]) -> None:
        """One batch into one commit."""
        if not messages:
            return
        self.now_ms += 1000
        instant = next_instant(self.now_ms, self.table.timeline().newest, self.table.config.timezone_utc)
        action = "deltacommit" if self.table.config.table_type == MERGE_ON_READ else "commit"
        profile = WriteProfile(
            table_name="t", query_id="q", batch_id=self.batch_id, run=1, instant=instant, batch_time_ms=self.now_ms,
            labels=LABELS, slots=1, records_per_new_file=1000, chains_whole=False,
        )  # fmt: skip
        write_tasks: dict[int, list[bytes]] = {}
        by_task: dict[int, list[cdc.Message]] = {}
        for message in messages:
            by_task.setdefault(message.partition, []).append(message)
        packed: dict[int, list[bytes]] = {}
        news: list[Noticed] = []
        for mine in by_task.values():
            decoder = cached_decoder(self.spec)
            keyed = decoder.keys(cdc.raw_batch(mine))
            news += [] if decoder.watch is None else decoder.watch.take()
            groups = pack_by_group(pa.Table.from_batches([keyed]), LABELS).to_pydict()
            for label, value in zip(groups["kg"], groups["rows"], strict=True):
                if value is not None:
                    packed.setdefault(label, []).append(value)
        if news:
            self.on_news(in_order(news))
            self.batch(messages)
            return
        for label, values in packed.items():
            partial = self.spec.partial_rows
            rows, result = tag_records(label, self.pointers.get(label), unpack(values), profile, self.layout, partial)
            self.pointers[label] = result.pointer
            self._count(result)
            write_task, content, _ = packed_columns(label, rows, None, {}, WriteTasks(WRITE_TASKS))
            for to, value in zip(write_task, content, strict=True):
                if value is not None:
                    write_tasks.setdefault(to, []).append(value)
        commit.request(self.table, instant, action)
        commit.inflight(self.table, instant, action)
        statuses = [
            s for to, values in sorted(write_tasks.items()) for s in self._write(to, unpack(values), instant, action)
        ]
        commit.publish_files(self.table, instant, statuses)
        metadata = CommitMetadata.build(statuses, {}, self.spec.stored_json)
        commit.complete(self.table, instant, action, metadata, clock_ms=lambda: self.now_ms)
        self.batch_id += 1

    def restart(self) -> None:
        """As a new start on another machine: table and schema are opened anew, the index comes from the checkpoint alone."""
        self.table = self.table.reload()
        self.layout = replace(self.layout, local_dir=f"{self.layout.local_dir}-{self.batch_id}")
        written = self.table.schema_json()
        assert written is not None, "no batch was written"
        written = record_schema(written, self.spec.dropped)
        self.spec = replace(self.spec, avro_json=written, defaults_json=written)

    def rows(self) -> list[dict[str, Any]]:
        """What our own reader finds in the table."""
        found = read_snapshot(self.table)
        return found.drop_columns([c for c in META_COLUMNS if c in found.column_names]).to_pylist()

    def _count(self, result: TagResult) -> None:
        for name, n in result.stats.items():
            self.counts[name] = self.counts.get(name, 0) + n

    def _write(self, write_task: int, rows: pa.Table, instant: str, action: str) -> list[WriteStatus]:
        bad = [op == OP_BAD for op in rows.column("op").to_pylist()]
        self.bad += rows.filter(pa.array(bad)).column("note").to_pylist()
        timeline = self.table.timeline()
        spec = WriteSpec(
            table=self.table, timeline=timeline, instant=instant, action=action, batch_id=self.batch_id, run=1,
            avro_json=self.spec.stored_json, options=WriterOptions(bloom=BloomParams(num_entries=100)), decode=self.spec,
            quarantine=PosixStorage(self.table.base_path + "-quarantine"),
            changed_keys=PosixStorage(self.table.base_path + "-changed-keys"), topic="t", crash=CrashPlan(),
        )  # fmt: skip
        kept = rows.filter(pa.array([not b for b in bad]))
        told = write_files(spec, kept, partition=write_task, attempt=1) if kept.num_rows else []
        return [WriteStatus.from_json(text) for kind, text in told if kind == WRITE_STATUS]
