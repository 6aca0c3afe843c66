"""Events of the soak: seeded, made before it starts, and the expected rows after any number of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.inputs.event_rows import avro_schema, event_rows, json_lines, keys_of, partitions_of
from bench.inputs.kafka_feed import keyed_lines
from bench.inputs.one_commit import one_commit_table
from tagstream.table.file_group.names import new_file_id
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.write.write_context import WriterOptions

FIRST_MS = 1_700_000_000_000
COLUMNS = 8
AVRO = json.dumps(avro_schema(COLUMNS))
_CHUNK = 100_000
INSERTS = 0.2
_IN_PLACE = 0.75  # of the events of existing keys; the others move the key to another partition


class SoakEvents:
    """`keys` existing rows, then events, each newer than all before it.

    ``inserts``: share of events with new keys. Of the others three in four update a row in place, one moves it.
    """

    def __init__(self, keys: int, partitions: int, seed: int, inserts: float = INSERTS) -> None:
        self._inserts = inserts
        self._partitions = partitions
        self._random = np.random.default_rng([seed, keys])
        self._first = self._random.integers(0, partitions, keys).astype(np.int16)
        self._numbers: list[np.ndarray] = []
        self._to: list[np.ndarray] = []

    @property
    def loaded(self) -> int:
        """Number of existing keys."""
        return len(self._first)

    def rows(self) -> Iterator[pa.Table]:
        """The existing rows, one partition at a time."""
        for p in range(self._partitions):
            mine = np.flatnonzero(self._first == p)
            for start in range(0, len(mine), _CHUNK):
                numbers = mine[start : start + _CHUNK]
                yield event_rows(numbers, np.full(len(numbers), p), FIRST_MS + numbers * 0, COLUMNS, self._random)

    def write(self, path: Path, count: int) -> None:
        """Write a file of `count` lines ``key TAB event``, compressed with zstd: those of an hour have tens of GiB."""
        at = self._first.copy()
        with pa.output_stream(path, compression="zstd") as f:
            chunk = min(_CHUNK, self.loaded)  # no key twice in a chunk
            for start in range(0, count, chunk):
                at, numbers, to = self._step(at, min(chunk, count - start))
                ts = FIRST_MS + 1 + start + np.arange(len(numbers))
                rows = event_rows(numbers, to, ts, COLUMNS, self._random)
                f.write(keyed_lines(rows["id"].combine_chunks(), json_lines(rows)))
                self._numbers.append(numbers.astype(np.int32))
                self._to.append(to.astype(np.int16))

    def expected(self, sent: int) -> pa.Table:
        """Key, partition and time of every row after the first `sent` events, sorted by key."""
        numbers = np.concatenate([*self._numbers, np.zeros(0, np.int32)])[:sent]
        to = np.concatenate([*self._to, np.zeros(0, np.int16)])[:sent]
        top = max(self.loaded, int(numbers.max(initial=-1)) + 1)
        place, ts = np.full(top, -1, np.int16), np.zeros(top, np.int64)
        place[: self.loaded], ts[: self.loaded] = self._first, FIRST_MS
        place[numbers], ts[numbers] = to, FIRST_MS + 1 + np.arange(len(numbers))  # the last event of a key counts
        there = np.flatnonzero(place >= 0)
        return pa.table({"id": keys_of(there), "part": partitions_of(place[there]), "ts": pa.array(ts[there])})

    def _step(self, at: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        inserts = round(count * self._inserts)
        picked = self._random.choice(len(at), count - inserts, replace=False)
        to = at[picked].astype(np.int64)
        moves = slice(round(len(picked) * _IN_PLACE), None)
        to[moves] = (to[moves] + self._random.integers(1, self._partitions, len(to[moves]))) % self._partitions
        fresh = self._random.integers(0, self._partitions, inserts)
        numbers = np.concatenate([picked, np.arange(len(at), len(at) + inserts)])
        to = np.concatenate([to, fresh])
        order = self._random.permutation(count)
        at = np.concatenate([at, fresh.astype(np.int16)])
        at[picked] = to[: len(picked)]
        return at, numbers[order], to[order]


def make_table(folder: Path, events: SoakEvents, table_type: str, at_ms: int) -> HoodieTable:
    """A table of one commit, with the existing rows in base files."""
    files = ((rows["part"][0].as_py(), new_file_id("soak", n), rows) for n, rows in enumerate(events.rows()))
    options = WriterOptions(codec="zstd", inserts_to_base_files=True)
    return one_commit_table(
        folder, "soak", AVRO, "part", files, options, created_ms=at_ms, committed_ms=at_ms, table_type=table_type
    )
