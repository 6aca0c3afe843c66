"""What the page says of bad records is what the quarantine has, and it is not read again and again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.state.checkpoint import QUARANTINE
from tagstream.streaming.batch.quarantine import forget_batch, write_quarantine
from tagstream.streaming.monitor import probes as quarantine_look
from tagstream.streaming.monitor.probes import QuarantineProbe
from tagstream.streaming.monitor.snapshot import Quarantine
from tagstream.table.storage.posix import PosixStorage
from tests.streaming.monitor.case import Clock, run_status


def bad(reason: str) -> dict[str, object]:
    return {"path": "f", "offset": 1, "reason": reason, "key": None, "value": b"x"}


def test_totals_and_the_newest_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint, status, count = PosixStorage(str(tmp_path)), run_status(Clock()), [0]
    quarantine = checkpoint.below(QUARANTINE)
    look = QuarantineProbe(status, checkpoint, lambda: count[0])
    look()
    assert status.snapshot().quarantine == Quarantine(0, True)
    for batch in range(40):
        write_quarantine(quarantine, batch, 0, [bad(f"reason {batch % 3}"), bad("always")])
    look()
    assert status.snapshot().quarantine == Quarantine(0, True), "nothing was told, so nothing was looked at"
    count[0] = 80
    look()
    found = status.snapshot().quarantine
    assert found == Quarantine(32, False, ((39, "always"), (39, "reason 0"), (38, "reason 2"), (37, "reason 1")))
    look()
    look()
    found = status.snapshot().quarantine
    assert found is not None and (found.records, found.whole) == (80, True)
    forget_batch(quarantine, 39)  # the newest batch is done again
    write_quarantine(quarantine, 39, 0, [bad("another")])
    count[0] += 1
    read: list[int] = []
    monkeypatch.setattr(
        quarantine_look, "read_quarantine", lambda q, b, r=quarantine_look.read_quarantine: read.append(b) or r(q, b)
    )
    look()
    found = status.snapshot().quarantine
    assert found is not None and (found.records, found.newest[1]) == (79, (39, "another"))
    assert read == [39], "the others were read before"
