"""A stream from the simulated table (HoodieIncrSource): its plans, made between the steps and read at once or later.

Each look is a start, from the positions that the plans have. Where the history that it needs is gone, it begins again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tagstream.streaming.errors import SourceError
from tagstream.streaming.source.file_plans import PlanLog, plan_name
from tagstream.streaming.source.incr_planner import IncrPlanner, IncrPlanOptions
from tagstream.streaming.source.incr_reader import IncrSpec
from tagstream.table.storage.posix import PosixStorage

_MARK = "_hoodie_is_deleted"
Row = dict[str, Any]


@dataclass
class Follower:
    """``rows``: by record key, as a target with a global index has them. ``taken``: plans that were read."""

    source: Path
    folder: Path
    looks: int = 0
    begun: int = 0
    taken: int = 0
    rows: dict[str, Row] = field(default_factory=dict)

    def look(self) -> tuple[list[str], bool]:
        """Plan and read. Returns what is wrong with the changes, and whether the rows must be those of now."""
        self.looks += 1
        random = Random(self.looks)
        try:
            found = [*self._take()]
            planner = self._planner(random)
            planner.look()
            if planner.waiting or random.random() < 0.4:
                return found, False
            return [*found, *self._take()], True
        except SourceError:
            self.begun, self.taken = self.begun + 1, 0
            self.rows.clear()
            return [], False

    def _storage(self) -> PosixStorage:
        return PosixStorage(str(self.folder / str(self.begun)), sync=False)

    def _planner(self, random: Random) -> IncrPlanner:
        storage = self._storage()
        options = IncrPlanOptions(random.choice((1, 20_000, 1 << 30)), 2, random.randrange(1, 9))
        return IncrPlanner(PosixStorage(str(self.source)), storage, PlanLog(storage), options)

    def _take(self) -> Iterator[str]:
        """Apply the plans that were not read yet."""
        storage = self._storage()
        spec = IncrSpec(PosixStorage(str(self.source)), ("id", "part"))
        for number in PlanLog(storage).numbers[self.taken :]:
            batches = spec.planned(storage.read(plan_name(number)).splitlines()[1:], {})
            found = [row for batch in batches for row in batch.to_pylist()]
            for item in sorted(found, key=lambda row: (row["pos_hi"], row["pos_lo"])):
                row = item["row"]
                if not row[_MARK]:
                    self.rows[row["id"]] = row
                elif self.rows.pop(row["id"], None) is None:
                    yield f"plan {number} of a stream from the table deletes {row['id']}, which is not there"
            self.taken += 1
