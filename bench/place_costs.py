"""What locations without records cost a key group: `python -m bench.place_costs --places 20000 --used 1000`.

One key group, no Spark. Each key has its own file group. Then all keys move into a few new groups, as after a clustering.
Then small batches follow, until snapshots have been taken. Measures the bytes of the newest snapshot and of the local store,
and the cost of the batches. The slowest batch is the one that searches for unused locations.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.inputs.lines import append_lines
from bench.tag_step import make_batch, profile_of
from tagstream.state.durable_files import Pointer
from tagstream.state.index_view import sizes_at
from tagstream.state.layout import StateLayout
from tagstream.state.local_store import open_at
from tagstream.state.tag_group import tag_key_group
from tagstream.table.storage.posix import PosixStorage

_LABEL = 0
_CODES, _CODES_END = b"\x00c", b"\x00d"


def measure(keys: int, places: int, used: int, batches: int, records: int, folder: str) -> list[dict[str, Any]]:
    """Figures after the load, after the move, and after each snapshot. Sizes in bytes, times in processor milliseconds."""
    layout = StateLayout(PosixStorage(os.path.join(folder, "durable"), sync=False), os.path.join(folder, "local"))
    numbers = np.arange(keys)
    steps = [(numbers, numbers % places), (numbers, places + numbers % used)]
    random = np.random.default_rng(7)
    for _ in range(batches):
        some = random.choice(keys, records, replace=False)
        steps.append((some, places + some % used))
    found: list[dict[str, Any]] = []
    pointer: bytes | None = None
    snapshot = None
    slowest = 0.0
    for batch_id, (changed, partitions) in enumerate(steps):
        batch = make_batch(changed, partitions, batch_id, places + used)
        began = time.process_time()
        pointer = tag_key_group(_LABEL, pointer, batch, profile_of(batch_id, (_LABEL,)), layout).pointer
        if batch_id > 1:
            slowest = max(slowest, (time.process_time() - began) * 1e3)
        assert pointer is not None
        at = Pointer.from_bytes(pointer, _LABEL)
        if batch_id < 2 or at.snapshot != snapshot:
            found.append({"batch": batch_id, **_sizes(layout, at), "slowest_ms": slowest})
            snapshot, slowest = at.snapshot, 0.0
    return found


def _sizes(layout: StateLayout, at: Pointer) -> dict[str, Any]:
    store, meta = open_at(layout, _LABEL, at)
    with store:
        store.finish_compaction()
        places = 0
        for key, _ in store.items(_CODES):
            if key >= _CODES_END:
                break
            places += 1
        local = sum(f["size"] for f in store.live_files())
    return {"keys": meta.live, "places": places, "local": local, "snapshot": sizes_at(layout, _LABEL, at)[0]}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--places", type=int, default=20_000, help="that the keys have first")
    parser.add_argument("--used", type=int, default=1_000, help="that they have in the end")
    parser.add_argument("--batches", type=int, default=62, help="after the move")
    parser.add_argument("--records", type=int, default=200, help="of each of these")
    parser.add_argument("--json", type=Path, help="add the figures to this file of JSON lines")
    args = parser.parse_args(argv)
    folder = tempfile.mkdtemp(prefix="place_costs_")
    try:
        found = measure(args.keys, args.places, args.used, args.batches, args.records, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    append_lines(args.json, [{"kind": "places", "run": 1, **one} for one in found])
    table = Table(*found[0])
    for one in found:
        table.add_row(*(f"{value:,.1f}" if isinstance(value, float) else f"{value:,}" for value in one.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
