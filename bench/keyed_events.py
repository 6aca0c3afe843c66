"""Seeded keyed events for benchmarks, as files of JSON lines, with the final state they must lead to.

One file of the existing keys, then batches in which no key occurs twice: 60 % updates in place, 20 % inserts of new
keys and 20 % moves of an existing key to another partition. Eight flat fields, about 190 bytes a line.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

CITIES = ("Lisbon", "Oslo", "Kyoto", "Quito", "Accra", "Perth", "Turin", "Izmir")
FIRST_MS = 1_700_000_000_000
SCHEMA = {
    "type": "record",
    "name": "event",
    "fields": [
        {"name": name, "type": ["null", kind] if name not in ("id", "ts") else kind}
        | ({} if name in ("id", "ts") else {"default": None})
        for name, kind in (
            ("id", "string"),
            ("part", "string"),
            ("ts", "long"),
            ("name", "string"),
            ("city", "string"),
            ("amount", "double"),
            ("qty", "int"),
            ("note", "string"),
        )
    ],
}


@dataclass
class KeyedEvents:
    """``partition[k]`` and ``batch[k]``: where key k is after the last batch, and the batch that put it there."""

    folder: Path
    partitions: int
    seed: int

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)
        self.partition = np.zeros(0, np.int64)
        self.batch = np.zeros(0, np.int64)
        self._files = 0
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder.parent / "event.avsc").write_text(json.dumps(SCHEMA))

    def load(self, keys: int) -> Path:
        """The file of the existing keys."""
        return self._write(np.arange(keys), self._random.integers(0, self.partitions, keys))

    def step(self, records: int) -> Path:
        """The next batch's file."""
        n_move, n_insert = records // 5, records // 5
        known = len(self.partition)
        picked = self._random.choice(known, records - n_insert, replace=False)
        to = self.partition[picked].copy()
        shift = self._random.integers(1, max(2, self.partitions), n_move)
        to[:n_move] = (to[:n_move] + shift) % self.partitions
        numbers = np.concatenate([picked, np.arange(known, known + n_insert)])
        to = np.concatenate([to, self._random.integers(0, self.partitions, n_insert)])
        order = self._random.permutation(records)
        return self._write(numbers[order], to[order])

    def expected(self) -> pa.Table:
        """Key, partition and time of every row the table must hold, sorted by key."""
        numbers = range(len(self.partition))
        return pa.table(
            {
                "id": [_key(k) for k in numbers],
                "part": [f"p{p:02d}" for p in self.partition.tolist()],
                "ts": [_time(k, b) for k, b in zip(numbers, self.batch.tolist(), strict=True)],
            }
        )

    def _write(self, numbers: np.ndarray, partitions: np.ndarray) -> Path:
        grown = int(numbers.max()) + 1 - len(self.partition)
        if grown > 0:
            self.partition = np.concatenate([self.partition, np.zeros(grown, np.int64)])
            self.batch = np.concatenate([self.batch, np.zeros(grown, np.int64)])
        self.partition[numbers] = partitions
        self.batch[numbers] = self._files
        words = self._random.integers(0, 2**63, (len(numbers), 3)).tolist()
        cents = self._random.integers(1, 10_000_000, len(numbers)).tolist()
        path = self.folder / f"events-{self._files:05d}.json"
        hidden = path.with_name("." + path.name)
        with hidden.open("w", encoding="ascii") as f:
            f.writelines(
                f'{{"id":"{_key(k)}","part":"p{p:02d}","ts":{_time(k, self._files)},"name":"name-{w[0]:016x}",'
                f'"city":"{CITIES[k & 7]}","amount":{c / 100},'
                f'"qty":{c % 1000},"note":"b{self._files} {w[1]:016x}{w[2]:016x}"}}\n'
                for k, p, w, c in zip(numbers.tolist(), partitions.tolist(), words, cents, strict=True)
            )
        os.utime(hidden, (1_600_000_000 + self._files,) * 2)
        hidden.rename(path)
        self._files += 1
        return path


def _key(number: int) -> str:
    return f"k{number:010d}"


def _time(number: int, batch: int) -> int:
    return FIRST_MS + batch * 60_000 + number % 60_000
