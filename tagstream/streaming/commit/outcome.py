"""What the tasks of a batch sent back, as the driver goes on with it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tagstream.streaming.write.write import INDEX_STATUS, QUARANTINE_STATUS, TAG_STATUS, WRITE_STATUS
from tagstream.table.timeline.write_status import WriteStatus


@dataclass
class Outcome:
    """Of all tasks.

    ``deltas``: the name of the delta of each key group that changed. ``groups``: the sizes of their stores. ``written``:
    packed rows for an index that is told by the driver.
    """

    statuses: list[WriteStatus] = field(default_factory=list)
    deltas: dict[int, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    groups: dict[int, dict[str, int]] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, answers: Iterable[tuple[str, Any]], *, replay: bool) -> Outcome:
        """From the rows (kind, payload) of the batch's action."""
        outcome = cls()
        for kind, payload in answers:
            if kind == WRITE_STATUS:
                outcome.statuses.append(WriteStatus.from_json(payload))
            elif kind == TAG_STATUS:
                outcome._add_group(json.loads(payload), replay=replay)
            elif kind == QUARANTINE_STATUS:
                outcome.counts["quarantined"] += json.loads(payload)["records"]
            elif kind == INDEX_STATUS:
                outcome.written.append(payload)
        outcome.statuses.sort(key=lambda s: s.stat.path)
        return outcome

    def _add_group(self, tagged: dict[str, Any], *, replay: bool) -> None:
        label, stats = int(tagged["group"]), tagged["stats"]
        if tagged["delta"] is not None:
            self.deltas[label] = tagged["delta"]
        size = {k: stats.pop(k) for k in ("live_keys", "tombstones", "bytes")}
        if stats["records"] and not replay:  # else the store was not opened
            self.groups[label] = size
        self.counts.update(stats)
