"""Time to live: outlived keys are unknown to a batch and forgotten at the next snapshot."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from tagstream.state.layout import StateLayout
from tagstream.state.tag_batch import OP_INSERT, OP_UPDATE
from tagstream.state.tag_group import tag_key_group
from tagstream.table.storage.posix import PosixStorage
from tests.state.tagging import LABEL, Event, make_batch, make_profile

HOUR = 3_600_000
START = 1_767_225_600_000


def test_outlived_keys_are_inserted_anew_and_swept(tmp_path: Path) -> None:
    layout = StateLayout(
        PosixStorage(str(tmp_path / "d"), sync=False), str(tmp_path / "l"), ttl_ms=2 * HOUR, snapshot_every=3
    )
    pointer = None
    steps = [(0, "old"), (1, "touched"), (2, "touched"), (3, "old"), (4, "touched"), (7, "new"), (8, "new")]
    ops, live = [], []
    for batch_id, (hours, key) in enumerate(steps):
        profile = make_profile(batch_id, batch_time_ms=START + hours * HOUR)
        result = tag_key_group(LABEL, pointer, make_batch([Event(key, "p", 1)], layout), profile, layout)
        pointer = result.pointer
        ops.append(int(result.op[0]))
        live.append(result.stats["live_keys"])
    # Hour 3: "old" is three hours old. Hour 4: "touched" is exactly two hours old and still counts.
    assert ops == [OP_INSERT, OP_INSERT, OP_UPDATE, OP_INSERT, OP_UPDATE, OP_INSERT, OP_UPDATE]
    # The snapshot of the seventh batch forgets both outlived keys.
    assert live == [1, 2, 2, 2, 2, 1, 1]


@pytest.mark.extended("fills a large key group to measure memory")
def test_a_sweep_holds_a_small_part_of_a_key_group(tmp_path: Path) -> None:
    """Of many keys in time it keeps none, of those that outlived theirs the names only."""
    durable = PosixStorage(str(tmp_path / "d"), sync=False)
    layout = StateLayout(durable, str(tmp_path / "l"), ttl_ms=2 * HOUR, snapshot_every=1)
    many = 200_000
    first = make_batch([Event(f"old-{i}", "p", 1) for i in range(1000)], layout)
    second = make_batch([Event(f"{i:020}", "p", 1) for i in range(many)], layout)
    last = make_batch([Event("new", "p", 1), Event("old-7", "p", 2)], layout)
    pointer, peaks = None, []
    for batch_id, (hours, batch) in enumerate([(0, first), (2, second), (3, last), (3, last)]):
        profile = make_profile(batch_id, batch_time_ms=START + hours * HOUR)
        tracemalloc.start()
        try:
            result = tag_key_group(LABEL, pointer, batch, profile, layout)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        pointer = result.pointer
    assert result.stats["live_keys"] == many + 2  # "old-7" came again
    assert max(peaks[2:]) < 20 << 20, peaks
