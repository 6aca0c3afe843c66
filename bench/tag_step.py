"""How fast one core tags: `python -m bench.tag_step`. Only the tag step, without Spark and decoding.

Keys are `k0000001`... as in the peers' generator. Every batch has 60 % updates, 20 % inserts and 20 % moves, divided over
the key groups by hash. Prints records per second of thread CPU (for one Python worker), the same with the CPU of RocksDB's
background threads, the raw multi-get rate of the same keys, and the bytes of local state per key.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.inputs.lines import append_lines
from tagstream.state.durable_files import Pointer
from tagstream.state.key_crc import state_key_groups
from tagstream.state.layout import StateLayout, balanced_labels
from tagstream.state.local_store import open_at
from tagstream.state.tag_batch import TagBatch
from tagstream.state.tag_group import tag_key_group
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.write.write_context import WriteProfile

_MOVE_SHARE = _INSERT_SHARE = 0.2
_LOAD_BATCH = 500_000
_FIRST_TIME_US = 1_760_000_000_000_000


@dataclass
class Figures:
    """Sums over the measured batches."""

    records: int = 0
    thread_cpu: float = 0.0
    process_cpu: float = 0.0
    wall: float = 0.0
    get_records: int = 0
    get_cpu: float = 0.0


def make_batch(numbers: np.ndarray, partitions: np.ndarray, batch_id: int, places: int) -> TagBatch:
    """A batch of one key group; orderings grow from batch to batch."""
    n = len(numbers)
    skeys, parts, source = (np.empty(n, object) for _ in range(3))
    skeys[:] = [b"\x01k%07d" % i for i in numbers.tolist()]
    names = np.empty(places, object)
    names[:] = [f"city={i:03d}" for i in range(places)]
    parts[:] = names[partitions]
    source[:] = "events"
    ordering = _FIRST_TIME_US + batch_id * 1_000_000 + np.arange(n, dtype=np.int64)
    return TagBatch(skeys, parts, ordering, np.zeros(n, np.uint8), source, np.zeros(n, np.int64), np.arange(n))


def batches(
    rng: np.random.Generator, keys: int, records: int, count: int, places: int
) -> Iterator[tuple[np.ndarray, ...]]:
    """(key numbers, partitions) of each measured batch."""
    top = keys
    for _ in range(count):
        fresh = int(records * _INSERT_SHARE)
        old = rng.integers(0, keys, records - fresh)
        numbers = np.concatenate([old, np.arange(top, top + fresh)])
        top += fresh
        partitions = numbers % places
        moved = rng.random(len(numbers)) < _MOVE_SHARE / (1 - _INSERT_SHARE)
        moved[len(old) :] = False
        partitions[moved] = rng.integers(0, places, int(moved.sum()))
        mixed = rng.permutation(records)
        yield numbers[mixed], partitions[mixed]


def profile_of(batch_id: int, labels: tuple[int, ...]) -> WriteProfile:
    """A profile as the driver would pin it."""
    instant = f"20260101{batch_id:09d}"
    return WriteProfile("bench", "query", batch_id, 1, instant, 1_767_225_600_000 + batch_id, labels, slots=1)


def main() -> None:
    """Load, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=500_000)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--partitions", type=int, default=20)
    parser.add_argument("--fsync", action="store_true", help="durable files as in production")
    parser.add_argument("--run", type=int, default=1, help="number of the run, for the JSON line")
    parser.add_argument("--json", type=Path, help="add the figures to this file of JSON lines")
    parser.add_argument("--profile", action="store_true", help="print where the time goes (slows it down)")
    args = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="tag_step_")
    layout = StateLayout(PosixStorage(os.path.join(folder, "durable"), args.fsync), os.path.join(folder, "local"))
    try:
        _run(args, layout)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(args: argparse.Namespace, layout: StateLayout) -> None:
    labels = balanced_labels(args.groups, 2)
    pointers: dict[int, bytes | None] = dict.fromkeys(labels)
    rng = np.random.default_rng(7)
    started = time.perf_counter()
    loads = -(-args.keys // _LOAD_BATCH)
    for b, numbers in enumerate(np.array_split(np.arange(args.keys), loads)):
        _tag_all(numbers, numbers % args.partitions, b, labels, pointers, layout, args, Figures())
    print(f"loaded {args.keys:,} keys in {time.perf_counter() - started:.1f} s")
    profiler = cProfile.Profile() if args.profile else None
    total = Figures()
    for b, (numbers, partitions) in enumerate(
        batches(rng, args.keys, args.records, args.batches, args.partitions), loads
    ):
        one = Figures()
        _tag_all(numbers, partitions, b, labels, pointers, layout, args, one, profiler)
        print(
            f"batch {b:4d}: {one.records / one.thread_cpu:9,.0f} records/s of thread CPU, "
            f"{one.records / one.process_cpu:9,.0f} with background threads, wall {one.wall:.2f} s, "
            f"raw multi-get {one.get_records / one.get_cpu:9,.0f}/s"
        )
        for name in vars(total):
            setattr(total, name, getattr(total, name) + getattr(one, name))
    if profiler is not None:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
    tag, get = total.records / total.thread_cpu, total.get_records / total.get_cpu
    size, keys = _local_bytes(labels, pointers, layout)
    print(
        f"\nall: {tag:,.0f} records/s per core ({total.records / total.process_cpu:,.0f} with background threads), "
        f"raw multi-get of the batch's keys {get:,.0f}/s, ratio {tag / get:.2f}; "
        f"{size / keys:.1f} bytes a key of local sorted files ({keys:,} keys)"
    )
    figures = {"per_second": tag, "with_background": total.records / total.process_cpu, "raw_per_second": get}
    figures |= {"share_of_raw": tag / get, "bytes_per_key": size / keys, "records": args.records, "groups": args.groups}
    rounded = {name: round(value, 3) for name, value in figures.items()}
    append_lines(args.json, [{"kind": "tag", "run": args.run, "keys": args.keys, **rounded}])


def _tag_all(
    numbers: np.ndarray,
    partitions: np.ndarray,
    batch_id: int,
    labels: tuple[int, ...],
    pointers: dict[int, bytes | None],
    layout: StateLayout,
    args: argparse.Namespace,
    figures: Figures,
    profiler: cProfile.Profile | None = None,
) -> None:
    groups = state_key_groups(pa.array([b"\0k%07d" % i for i in numbers.tolist()], pa.binary()), len(labels))
    profile = profile_of(batch_id, labels)
    for index, label in enumerate(labels):
        mine = groups == index
        batch = make_batch(numbers[mine], partitions[mine], batch_id, args.partitions)
        clocks = time.perf_counter(), time.thread_time(), time.process_time()
        if profiler is not None:
            profiler.enable()
        result = tag_key_group(label, pointers[label], batch, profile, layout)
        if profiler is not None:
            profiler.disable()
        figures.wall += time.perf_counter() - clocks[0]
        figures.thread_cpu += time.thread_time() - clocks[1]
        figures.process_cpu += time.process_time() - clocks[2]
        figures.records += len(batch)
        _raw_get(label, pointers[label], batch, layout, figures)
        pointers[label] = result.pointer


def _raw_get(label: int, pointer: bytes | None, batch: TagBatch, layout: StateLayout, figures: Figures) -> None:
    """Measure the plain multi-get of the batch's keys, in arrival order, on a store that was just opened."""
    if pointer is None:
        return
    store, _ = open_at(layout, label, Pointer.from_bytes(pointer, label))
    with store:
        keys = batch.skeys.tolist()
        clock = time.thread_time()
        store.get(keys)
        figures.get_cpu += time.thread_time() - clock
        figures.get_records += len(keys)


def _local_bytes(labels: tuple[int, ...], pointers: dict[int, bytes | None], layout: StateLayout) -> tuple[int, int]:
    size = keys = 0
    for label in labels:
        pointer = pointers[label]
        assert pointer is not None
        store, meta = open_at(layout, label, Pointer.from_bytes(pointer, label))
        with store:
            store.finish_compaction()
            size += sum(f["size"] for f in store.live_files())
            keys += meta.live + meta.tombstones
    return size, keys


if __name__ == "__main__":
    main()
