"""What one key group costs to store and to restore: `python -m bench.group_costs --keys 2500000`.

One key group of K keys, no Spark. Measures the bytes of a batch's delta per changed key, the seconds and bytes of a whole
snapshot, and the restore of the local store from it and its deltas after the loss of an executor's disk. These are the unit
costs in bench/RESULTS.md.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.inputs.lines import append_lines
from bench.tag_step import make_batch, profile_of
from tagstream.state.durable_files import Pointer
from tagstream.state.layout import StateLayout
from tagstream.state.local_store import discard, open_at
from tagstream.state.snapshot_and_deltas import take_snapshot
from tagstream.state.tag_batch import GLOBAL_KEY
from tagstream.state.tag_group import tag_key_group
from tagstream.table.storage.posix import PosixStorage

_LABEL = 0
# The forms of record keys: from a number, always the same text.
KINDS: dict[str, Callable[[int], str]] = {
    "short": lambda n: f"k{n:07d}",
    "bigint": lambda n: str(1_000_000_007 * (n + 1) % 9_007_199_254_740_881),
    "composite": lambda n: f"customer:{n % 5000},order:{n}",
    "uuid": lambda n: str(uuid.UUID(bytes=hashlib.md5(str(n).encode(), usedforsecurity=False).digest(), version=4)),
    "hex": lambda n: hashlib.md5(str(n).encode(), usedforsecurity=False).hexdigest(),
}
_LOAD_BATCH = 250_000


def measure(keys: int, records: int, batches: int, partitions: int, folder: str, kind: str = "short") -> dict[str, Any]:
    """Load the group, change it, take a snapshot, lose the local store, restore it. Sizes in bytes, times in seconds.

    ``kind``: one of ``KINDS``, the form of the record keys.
    """
    durable = PosixStorage(os.path.join(folder, "durable"))
    layout = StateLayout(durable, os.path.join(folder, "local"), snapshot_every=1 << 30)
    pointer: bytes | None = None
    batch_id = 0
    for numbers in np.array_split(np.arange(keys), -(-keys // _LOAD_BATCH)):
        pointer = _tag(numbers, numbers % partitions, batch_id, pointer, partitions, layout, kind)
        batch_id += 1
    at = _pointer(pointer)
    store, _ = open_at(layout, _LABEL, at)
    with store:
        store.finish_compaction()
        began = time.perf_counter()
        snapshot = take_snapshot(store, layout, _LABEL, batch_id, at.chain, None)
        snapshot_s = time.perf_counter() - began
    stored = _size(durable.where(layout.snapshots_dir(_LABEL)))
    pointer = Pointer(at.index_load, at.catch_up, snapshot, ()).to_bytes()
    random = np.random.default_rng(7)
    for _ in range(batches):
        numbers = random.choice(keys, records, replace=False)
        pointer = _tag(numbers, numbers % partitions, batch_id, pointer, partitions, layout, kind)
        batch_id += 1
    at = _pointer(pointer)
    deltas = sum(delta.size for delta in at.deltas)
    discard(layout, _LABEL)
    began = time.perf_counter()
    store, meta = open_at(layout, _LABEL, at)
    restore_s = time.perf_counter() - began
    store.close()
    return {
        "keys": meta.live,
        "records": records,
        "deltas": batches,
        "delta_bytes_per_key": deltas / (records * batches),
        "snapshot_bytes_per_key": stored / keys,
        "snapshot_seconds": snapshot_s,
        "restore_seconds": restore_s,
        "restore_keys_per_second": meta.live / restore_s,
    }


def _tag(
    numbers: np.ndarray,
    partitions: np.ndarray,
    batch_id: int,
    pointer: bytes | None,
    places: int,
    layout: StateLayout,
    kind: str,
) -> bytes | None:
    batch = make_batch(numbers, partitions, batch_id, places)
    batch.skeys[:] = [GLOBAL_KEY + KINDS[kind](n).encode() for n in numbers.tolist()]
    return tag_key_group(_LABEL, pointer, batch, profile_of(batch_id, (_LABEL,)), layout).pointer


def _pointer(data: bytes | None) -> Pointer:
    assert data is not None
    return Pointer.from_bytes(data, _LABEL)


def _size(folder: str) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(folder))


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=2_500_000, help="of the key group")
    parser.add_argument("--records", type=int, default=12_500, help="changed keys of a batch")
    parser.add_argument("--deltas", type=int, default=10, help="batches since the snapshot")
    parser.add_argument("--partitions", type=int, default=20)
    parser.add_argument("--kind", choices=tuple(KINDS), default="short", help="form of the record keys")
    parser.add_argument("--json", type=Path, help="add the figures to this file of JSON lines")
    args = parser.parse_args(argv)
    folder = tempfile.mkdtemp(prefix="group_costs_")
    try:
        found = measure(args.keys, args.records, args.deltas, args.partitions, folder, args.kind)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    append_lines(args.json, [{"kind": "group", "run": 1, "record_keys": args.kind, **found}])
    table = Table("of one key group", "")
    for name, value in found.items():
        table.add_row(name.replace("_", " "), f"{value:,.2f}" if isinstance(value, float) else f"{value:,}")
    Console().print(table)


if __name__ == "__main__":
    main()
