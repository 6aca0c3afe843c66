"""A source of files: what the world writes to a folder, and Spark's query over the plans of these files.

Each partition of the world's events has files of its own. A file of JSON lines grows while it is the newest of its
partition; other forms are written whole.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.spark_checkpoint import file_log, whole_file_log
from tagstream.streaming.job.sink import BatchSink
from tagstream.streaming.job.source_files import SourceFiles
from tagstream.streaming.source.file_plans import PLANS, plan_number, read_plan
from tagstream.streaming.source.file_reader import PlanReader
from tagstream.table.schema.schema import avro_to_arrow
from tagstream.table.storage.opening import uri
from tests.simulation.engine import Engine, Offsets, Query
from tests.simulation.model import Event
from tests.simulation.session import Session
from tests.simulation.settings import Settings
from tests.simulation.values import BY_NAME, ORDERING_VALUES

_GROWS = 0.5  # of the writes of JSON lines go to the newest file


@dataclass
class Written:
    """A file. ``first``: the number of its first event in its partition; ``ends``: its bytes after each event, for a
    file that is read in parts."""

    path: Path
    partition: int
    first: int
    ends: list[int] = field(default_factory=list)
    count: int = 0

    def reached(self, size: int) -> int:
        """The number, in the partition, of the first event that a reader of so many bytes has not read."""
        if not self.ends:
            return self.first + (self.count if size else 0)
        return self.first + sum(end <= size for end in self.ends)


@dataclass
class Folder:
    """The files of a source. Their writer's clock is never set back: a new checkpoint reads them in the order of events."""

    settings: Settings
    path: Path
    clock_ms: Callable[[], int]
    files: dict[str, Written] = field(default_factory=dict)
    _newest: dict[int, Written] = field(default_factory=dict)
    _sent: dict[int, int] = field(default_factory=dict)
    _written_ms: int = 0

    def __post_init__(self) -> None:
        self.path.mkdir(parents=True)

    def write(self, random: Random, partition: int, events: Sequence[Event], columns: tuple[str, ...]) -> None:
        """Put the next events of a partition into one of its files."""
        newest, grows = self._newest.get(partition), random.random() < _GROWS
        if self.settings.source == "json" and newest is not None and grows:
            file = newest
        else:
            name = f"p{partition}-{len(self.files):05d}.{self.settings.source}"
            file = Written(self.path / name, partition, self._sent.get(partition, 0))
            self.files[name] = self._newest[partition] = file
        if self.settings.source == "json":
            with file.path.open("ab") as out:
                for event in events:
                    out.write(json.dumps(event.row).encode() + b"\n")
                    file.ends.append(out.tell())
        else:
            pq.write_table(self._rows(events, columns), file.path, row_group_size=random.choice((1, 4, 1000)))
        file.count += len(events)
        self._sent[partition] = self._sent.get(partition, 0) + len(events)
        self._written_ms = max(self._written_ms + 1, self.clock_ms())
        os.utime(file.path, ns=(self._written_ms * 1_000_000,) * 2)

    def _rows(self, events: Sequence[Event], columns: tuple[str, ...]) -> pa.Table:
        schema = avro_to_arrow(self.settings.schema(columns))
        rows = []
        for event in events:
            row = dict(event.row)
            for name, column in BY_NAME.items():
                value = column.value(row.get(name))
                row[name] = float("nan") if value == "NaN" and name != "txt" else value
            if self.settings.ordering in ORDERING_VALUES:
                row["ts"] = ORDERING_VALUES[self.settings.ordering](row["ts"])
            rows.append({name: row.get(name) for name in schema.names})
        return pa.Table.from_pylist(rows, schema)

    def query(self, engine: Engine, session: Session, job: JobContext, sink: BatchSink, *more: Any) -> PlanQuery:
        """The query of a job that reads this folder."""
        return PlanQuery(engine, session, job, sink, more[0], self)


class PlanQuery(Query):
    """A query whose batches are plans, one each, as Spark's source of files reads them."""

    def __init__(
        self, engine: Engine, session: Session, job: JobContext, sink: BatchSink, files: SourceFiles, folder: Folder
    ) -> None:
        super().__init__(engine, session, job, sink)
        self._spec, self._folder, self._log = files.spec, folder, job.query_folder.files

    @property
    def reader(self) -> PlanReader:
        return self._spec

    def start(self, batch: int) -> Offsets:
        return {0: -1} if batch == 0 else super().start(batch)

    def next_end(self, start: Offsets) -> Offsets:
        """The next plan. A start that was killed may have logged one that no batch has; then a batch takes two."""
        names = [int(name) for name in self._log.names("sources/0") if name.isdigit()]
        newest = max(names, default=-1)
        seen = {entry["path"] for entry in whole_file_log(self._log)}
        found = sorted(
            (entry.mtime_ms, entry.name) for entry in self._log.list(PLANS) if entry.name.startswith("plan-")
        )
        for mtime_ms, name in found:
            path = uri(self._log.where(f"{PLANS}/{name}"))
            if path not in seen:
                newest += 1
                entry = {"path": path, "timestamp": mtime_ms, "batchId": newest}
                self._log.replace(f"sources/0/{newest}", f"v1\n{json.dumps(entry)}".encode())
                break
        return {0: newest} if newest > start[0] else start

    def doc(self, at: Offsets) -> dict[str, Any]:
        return {"logOffset": at[0]}

    def offsets(self, doc: Any) -> Offsets:
        return {0: int(doc["logOffset"])}

    def reads(self, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        first: Offsets = {}
        last: Offsets = {}
        for entry in file_log(self._log, start[0] + 1, end[0]):
            for split in read_plan(self._log, plan_number(entry["path"]) or 0).splits:
                file = self._folder.files[split.path]
                p = file.partition
                first[p] = min(first.get(p, file.reached(split.start)), file.reached(split.start))
                last[p] = max(last.get(p, 0), file.reached(split.end))
        return first, last

    def raw(self, start: Offsets, end: Offsets) -> list[list[pa.RecordBatch]]:
        """Each line of a plan is for one task."""
        found = []
        for entry in file_log(self._log, start[0] + 1, end[0]):
            text = self._log.read(f"{PLANS}/{entry['path'].rpartition('/')[2]}")
            at = 0
            for line in text.splitlines(keepends=True):
                columns = {
                    "key": pa.nulls(1, pa.binary()), "value": pa.array([line.rstrip(b"\n")], pa.binary()),
                    "src": pa.array([entry["path"]]), "pos_hi": pa.array([int(entry["timestamp"]) * 1000]),
                    "pos_lo": pa.array([-1]), "block_start": pa.array([at]),
                }  # fmt: skip
                found.append([pa.RecordBatch.from_pydict(columns)])
                at += len(line)
        return found
