"""Time to live: outlived keys are unknown to a batch and forgotten at the next snapshot."""

from __future__ import annotations

from pathlib import Path

from tagstream.state.layout import StateLayout
from tagstream.state.tag.tag_group import tag_key_group
from tagstream.state.tag_batch import OP_INSERT, OP_UPDATE
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
    assert live == [1, 2, 2, 2, 2, 3, 1]
