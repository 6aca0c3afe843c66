"""Seeded workloads as folders of files, the same files for every writer, with the expected rows.

A folder has ``load.parquet`` (K existing rows), ``batches/batch-00000.json``... (JSON lines, modification times in order),
``event.avsc``, ``workload.json`` (the settings) and ``expected.parquet`` (id, part, ts of every row after the last batch,
with a correct index over all partitions). A key's newest event is the one with the greatest ts.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.inputs.envelopes import envelopes
from bench.inputs.event_rows import avro_schema, event_rows, json_lines, keys_of, partitions_of

FIRST_MS = 1_700_000_000_000
FIRST_MTIME_S = 1_600_000_000
BATCH_MS = 10_000_000  # between the times of two batches: greater than the number of records in a batch
NAMES = ("mixed", "zipf", "insert", "update", "one-row", "wide", "debezium")
_FORMAT = 1
_WIDE_COLUMNS, _COLUMNS = 100, 8
_CHUNK = 500_000
# The share of updates in place and of new keys; the rest are moves to another partition.
_SHARES = {"insert": (0.0, 1.0), "update": (1.0, 0.0)}
_MIXED = (0.6, 0.2)


@dataclass(frozen=True)
class Workload:
    """The settings: `keys` existing keys in `partitions`, then `batches` of `records`."""

    name: str
    keys: int
    records: int
    batches: int
    partitions: int = 10
    seed: int = 7

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise ValueError(f"there is no workload {self.name!r}; there are {', '.join(NAMES)}")
        if self.name not in ("zipf", "insert") and self.records > self.keys:
            raise ValueError(f"{self.name}: a batch of {self.records:,} different keys needs as many existing ones")
        if self.partitions < 2 or not 0 < self.records < BATCH_MS:
            raise ValueError(f"{self.name}: two partitions at least, and 1 to {BATCH_MS - 1:,} records")

    @property
    def columns(self) -> int:
        """Number of columns of an event."""
        return _WIDE_COLUMNS if self.name == "wide" else _COLUMNS

    @property
    def format(self) -> str:
        """Format of the lines, as in ``tagstream.source.format`` and Flink."""
        return "debezium-json" if self.name == "debezium" else "json"

    @property
    def load_name(self) -> str:
        """Name of the existing rows, which workloads of the same K and form share."""
        return f"k{self.keys}-p{self.partitions}-c{self.columns}-s{self.seed}"

    @property
    def folder_name(self) -> str:
        """Name of the folder."""
        return f"{self.name}-{self.load_name}-n{self.records}-b{self.batches}"


@dataclass
class _Rows:
    """`partition` and `ts` of every key after the batches so far, by the key's number."""

    partition: np.ndarray
    ts: np.ndarray


def make_workload(workload: Workload, cache: Path) -> Path:
    """The workload's folder under `cache`, made if it does not exist. It is renamed into place when it is complete."""
    folder = cache / workload.folder_name
    settings = {"format": _FORMAT, **asdict(workload)}
    if folder.is_dir():
        if json.loads((folder / "workload.json").read_text("utf-8")) == settings:
            return folder
        shutil.rmtree(folder)
    cache.mkdir(parents=True, exist_ok=True)
    hidden = folder.with_name("." + folder.name)
    shutil.rmtree(hidden, ignore_errors=True)
    (hidden / "batches").mkdir(parents=True)
    rows = _make_load(workload, cache, hidden / "load.parquet")
    for number in range(workload.batches):
        _make_batch(workload, rows, number, hidden / "batches" / f"batch-{number:05d}.json")
    (hidden / "event.avsc").write_text(json.dumps(avro_schema(workload.columns)), "utf-8")
    (hidden / "workload.json").write_text(json.dumps(settings, indent=2), "utf-8")
    expected = {"id": keys_of(np.arange(len(rows.ts))), "part": partitions_of(rows.partition), "ts": pa.array(rows.ts)}
    pq.write_table(pa.table(expected), hidden / "expected.parquet", compression="zstd")
    hidden.rename(folder)
    return folder


def _random(workload: Workload, *what: int) -> np.random.Generator:
    return np.random.default_rng([workload.seed, *what])


def _make_load(workload: Workload, cache: Path, path: Path) -> _Rows:
    """The existing rows, linked from the file that all workloads of this K share."""
    numbers = np.arange(workload.keys)
    partition = _random(workload, 0).integers(0, workload.partitions, workload.keys)
    rows = _Rows(partition, FIRST_MS + numbers % 60_000)
    shared = cache / f"load-{_FORMAT}-{workload.load_name}.parquet"
    if not shared.exists():
        hidden = shared.with_name("." + shared.name)
        random = _random(workload, 1)
        writer = None
        for start in range(0, workload.keys, _CHUNK):
            at = slice(start, start + _CHUNK)
            chunk = event_rows(numbers[at], partition[at], rows.ts[at], workload.columns, random)
            writer = writer or pq.ParquetWriter(hidden, chunk.schema, compression="zstd")
            writer.write_table(chunk)
        assert writer is not None
        writer.close()
        hidden.rename(shared)
    os.link(shared, path)
    return rows


def _make_batch(workload: Workload, rows: _Rows, number: int, path: Path) -> None:
    """Write one batch's file and update `rows`."""
    random = _random(workload, 2, number)
    updates, inserts, moves = _counts(workload, random)
    known = len(rows.ts)
    picked = _pick(workload, random, known, updates + moves)
    to = rows.partition[picked]
    if moves:
        to[updates:] = (to[updates:] + random.integers(1, workload.partitions, moves)) % workload.partitions
    keys = np.concatenate([picked, np.arange(known, known + inserts)])
    to = np.concatenate([to, random.integers(0, workload.partitions, inserts)])
    order = random.permutation(len(keys))
    keys, to = keys[order], to[order]
    before = before_rows(workload, rows, keys, number) if workload.format == "debezium-json" else None
    ts = FIRST_MS + (number + 1) * BATCH_MS + np.arange(len(keys))
    rows.partition = np.concatenate([rows.partition, np.zeros(inserts, np.int64)])
    rows.ts = np.concatenate([rows.ts, np.zeros(inserts, np.int64)])
    last = len(keys) - 1 - np.unique(keys[::-1], return_index=True)[1]  # a key's last event is its newest
    rows.partition[keys[last]], rows.ts[keys[last]] = to[last], ts[last]
    with path.open("wb") as f:
        for start in range(0, len(keys), _CHUNK):
            at = slice(start, start + _CHUNK)
            after = event_rows(keys[at], to[at], ts[at], workload.columns, random)
            f.write(json_lines(after) if before is None else envelopes(before.slice(start, _CHUNK), after))
    os.utime(path, (FIRST_MTIME_S + number,) * 2)


def before_rows(workload: Workload, rows: _Rows, keys: np.ndarray, number: int) -> pa.Table:
    """The rows before a batch's changes, with nulls where a key is new. Other values are random: they are not compared."""
    known = keys < len(rows.ts)
    old = np.where(known, keys, 0)
    random = _random(workload, 4, number)
    found = event_rows(keys, rows.partition[old], rows.ts[old], workload.columns, random)
    return found.take(pa.array(np.arange(len(keys)), mask=~known))


def _counts(workload: Workload, random: np.random.Generator) -> tuple[int, int, int]:
    """Updates in place, new keys and moves of a batch; a batch of one row is one of them by chance."""
    update, insert = _SHARES.get(workload.name, _MIXED)
    if workload.records == 1:
        updates, inserts, moves = random.multinomial(1, [update, insert, max(0.0, 1 - update - insert)])
        return int(updates), int(inserts), int(moves)
    updates, inserts = round(workload.records * update), round(workload.records * insert)
    return updates, inserts, workload.records - updates - inserts


def _pick(workload: Workload, random: np.random.Generator, known: int, count: int) -> np.ndarray:
    """Numbers of existing keys: distinct, or (zipf) drawn with weight 1/rank, so that some come several times."""
    if workload.name != "zipf":
        return random.choice(known, count, replace=False)
    ranked = _random(workload, 3).permutation(workload.keys)
    return ranked[np.floor(workload.keys ** random.random(count)).astype(np.int64) - 1]
