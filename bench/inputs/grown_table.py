"""A table of many small file groups and a timeline of many instants, with batches that touch the same few groups.

Each base file is real, written by this project's own writer. The instants before the last one are commits of one file group
each. The last instant replaced the base files that they wrote, and a cleaner removed them, so only their instants are left.
The keys of a group do not depend on the number of groups, so batches are the same for tables of all sizes.

A folder has ``table``, and for a workload ``batches``, ``event.avsc`` and ``expected.parquet``.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.inputs.event_rows import avro_schema, event_rows, json_lines, partitions_of
from tagstream.table.file_group.bloom import SIMPLE, BloomParams
from tagstream.table.file_group.names import base_file_name, instant_from_ms, new_file_id
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, TableConfig
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.timeline.commit_metadata import CommitMetadata, FileKind, WriteStat, WriteStatus
from tagstream.table.timeline.instant import COMMIT, DELTA_COMMIT, Instant, State
from tagstream.table.write import commit
from tagstream.table.write.file_writer import write_file_group
from tagstream.table.write.write_context import WriteContext, WriterOptions

TOUCHED = 10  # file groups of a batch, each in its own partition
ROWS = 100  # of a file group that batches touch
FEW_ROWS = 4  # of each other group
COLUMNS = 8
_PARTITIONS = 1_000  # at most
_PER_PARTITION = 10
_START_MS = 1_767_225_600_000
_STEP_MS = 1_000  # between two instants
_FIRST_TS, _BATCH_TS = 1_700_000_000_000, 10_000_000
_FIRST_MTIME_S = 1_600_000_000
_SEED = 7
_OPTIONS = WriterOptions(codec="zstd", bloom=BloomParams(SIMPLE, 1_000, 0.1), inserts_to_base_files=True)


@dataclass(frozen=True)
class Grown:
    """``sizes``: records of each batch, a multiple of :data:`TOUCHED` each."""

    groups: int
    instants: int
    sizes: tuple[int, ...]
    table_type: str
    version: int

    def __post_init__(self) -> None:
        if self.groups % TOUCHED or not TOUCHED <= self.groups <= _PARTITIONS * _PER_PARTITION or self.instants < 1:
            raise ValueError(
                f"file groups come in tens, {_PARTITIONS * _PER_PARTITION} at most, over one instant or more"
            )
        if any(size % TOUCHED or not TOUCHED <= size <= TOUCHED * ROWS for size in self.sizes):
            raise ValueError(f"a batch has tens of records, {TOUCHED * ROWS} at most")

    @property
    def name(self) -> str:
        """Name of the folder."""
        sizes = "-".join(map(str, self.sizes))
        return f"grown-{self.table_type.lower()}-v{self.version}-g{self.groups}-i{self.instants}-n{sizes}"

    @property
    def partitions(self) -> int:
        """Number of partitions: ten groups in each, if there are more than ten."""
        return max(TOUCHED, self.groups // _PER_PARTITION)

    @property
    def keys(self) -> int:
        """Rows of the table."""
        return TOUCHED * ROWS + (self.groups - TOUCHED) * FEW_ROWS

    def places(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """(partition, number of the group, its keys' numbers). The groups that batches touch come first."""
        for slot in range(self.groups // self.partitions):
            for partition in range(self.partitions):
                group = slot * _PARTITIONS + partition
                rows = ROWS if group < TOUCHED else FEW_ROWS
                yield partition, group, group * ROWS + np.arange(rows)


def make_grown(grown: Grown, cache: Path) -> Path:
    """The folder, made if it does not exist. It is renamed into place when it is complete."""
    folder = cache / grown.name
    if folder.is_dir():
        return folder
    hidden = folder.with_name("." + folder.name)
    shutil.rmtree(hidden, ignore_errors=True)
    (hidden / "batches").mkdir(parents=True)
    (hidden / "event.avsc").write_text(json.dumps(avro_schema(COLUMNS)), "utf-8")
    rows = _make_table(grown, hidden / "table", np.random.default_rng(_SEED))
    newest = rows["ts"].to_numpy(zero_copy_only=False).copy()  # the rows that batches touch come first
    for number, size in enumerate(grown.sizes):
        _make_batch(newest, number, size, hidden / "batches" / f"batch-{number:05d}.json")
    rows = rows.set_column(2, "ts", pa.array(newest))
    pq.write_table(rows, hidden / "expected.parquet", compression="zstd")
    hidden.rename(folder)
    return folder


def _make_table(grown: Grown, folder: Path, random: np.random.Generator) -> pa.Table:
    """Make the table and return id, part and ts of its rows."""
    avro = json.dumps(avro_schema(COLUMNS))
    config = TableConfig(
        name="bench",
        table_type=grown.table_type,
        version=grown.version,
        record_key_fields=("id",),
        partition_fields=("part",),
        ordering_fields=("ts",),
        create_schema=avro,
    )
    table = HoodieTable.create(PosixStorage(str(folder), sync=False), config, _START_MS)
    utc = table.config.timezone_utc
    times = [instant_from_ms(_START_MS + _STEP_MS * (n + 1), utc) for n in range(grown.instants)]
    action = COMMIT if grown.table_type == COPY_ON_WRITE else DELTA_COMMIT
    places = list(grown.places())
    for n, time in enumerate(times[:-1]):
        partition, group, _ = places[n % len(places)]
        done_ms = _START_MS + _STEP_MS * (n + 1) + _STEP_MS // 2
        done = instant_from_ms(done_ms, utc) if table.config.has_completion_times else None
        _small_commit(table, Instant(time, action, State.COMPLETED, done), partition, group, avro)
    instant = times[-1]
    commit.request(table, instant, action)
    commit.inflight(table, instant, action)
    none = pa.table({RECORD_KEY: pa.array([], pa.string()), "_ordering": pa.array([], pa.int64())})
    schema, timeline, statuses, made = _schema(), table.timeline(), list[WriteStatus](), list[pa.Table]()
    for partition, group, numbers in places:
        rows = event_rows(numbers, np.full(len(numbers), partition), _FIRST_TS + numbers, COLUMNS, random)
        made.append(rows.select(["id", "part", "ts"]))
        rows = rows.append_column("_is_insert", pa.repeat(True, len(numbers))).append_column(RECORD_KEY, rows["id"])
        ctx = WriteContext(instant, action, group, f"{group}-1-1", schema, avro, timeline.newest, timeline, _OPTIONS)
        statuses += write_file_group(table, ctx, _part(partition), _file_id(group), None, rows, none)
    commit.publish_files(table, instant, statuses)
    done_ms = _START_MS + _STEP_MS * (grown.instants + 1)
    commit.complete(table, instant, action, CommitMetadata.build(statuses, {}, avro), clock_ms=lambda: done_ms)
    return pa.concat_tables(made)


def _schema() -> pa.Schema:
    """The user columns."""
    none = np.zeros(0, np.int64)
    return event_rows(none, none, none, COLUMNS, np.random.default_rng(0)).schema


def _small_commit(table: HoodieTable, instant: Instant, partition: int, group: int, avro: str) -> None:
    """The timeline's files of a commit of one base file that is removed."""
    name = base_file_name(_file_id(group), f"{group}-0-0", instant.time)
    stat = WriteStat(_file_id(group), f"{_part(partition)}/{name}", _part(partition), num_writes=ROWS, num_updates=ROWS)
    status = WriteStatus(stat, FileKind.MERGE, new_group=False)
    content = CommitMetadata.build([status], {}, avro).to_bytes(table.config.version)
    folder = Path(table.storage.where(table.config.timeline_folder))
    for state in State:
        at = Instant(instant.time, instant.action, state, instant.completion_time)
        (folder / at.file_name()).write_bytes(content if state is State.COMPLETED else b"")


def _make_batch(newest: np.ndarray, number: int, size: int, path: Path) -> None:
    """Write one batch's file, with as many rows of each touched group. ``newest``: their times, which are updated."""
    random = np.random.default_rng([_SEED, number])
    some = np.sort(random.permutation(ROWS)[: size // TOUCHED])
    numbers = (np.arange(TOUCHED)[:, None] * ROWS + some[None, :]).ravel()
    ts = _FIRST_TS + (number + 1) * _BATCH_TS + np.arange(size)
    newest[numbers] = ts
    path.write_bytes(json_lines(event_rows(numbers, numbers // ROWS, ts, COLUMNS, random)))
    os.utime(path, (_FIRST_MTIME_S + number,) * 2)


def _part(partition: int) -> str:
    return str(partitions_of(np.array([partition]))[0].as_py())


def _file_id(group: int) -> str:
    return new_file_id("bench", group)
