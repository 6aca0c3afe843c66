"""A stream from a Hudi table without Spark: each look is a start, and the records are applied to rows by key and place."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tagstream.streaming.source.file_plans import PlanLog, plan_name
from tagstream.streaming.source.incr_planner import IncrPlanner, IncrPlanOptions
from tagstream.streaming.source.incr_reader import IncrSpec
from tagstream.table.storage.posix import PosixStorage
from tests.table.writer import Row

LIMITS = IncrPlanOptions(limit=1 << 30, tasks=3, instants=1_000)
DELETED = "_hoodie_is_deleted"


@dataclass
class Follower:
    """``rows``: by record key and partition, as a target without a global index has them. ``batches``: number of records
    of each plan. ``identity``: see ``IncrSpec``."""

    source: Path
    folder: Path
    options: IncrPlanOptions = LIMITS
    identity: tuple[str, ...] | None = ("id", "part")
    rows: dict[tuple[str, str], Row] = field(default_factory=dict)
    batches: list[int] = field(default_factory=list)

    @property
    def storage(self) -> PosixStorage:
        return PosixStorage(str(self.folder))

    def planner(self, check: Callable[[], None] = lambda: None) -> IncrPlanner:
        return IncrPlanner(PosixStorage(str(self.source)), self.storage, PlanLog(self.storage), self.options, check)

    def look(self) -> int:
        """Plan what is new, and apply the plans that were not applied; the number of new plans."""
        made = self.planner().look()
        self.take()
        return made

    def take(self) -> None:
        """Apply the plans that were not applied."""
        for number in PlanLog(self.storage).numbers[len(self.batches) :]:
            found = self.records(number)
            self.batches.append(len(found))
            for _, row in found:
                key, deleted = (row["id"], row["part"]), row.pop(DELETED)
                if deleted:
                    assert self.rows.pop(key, None) is not None, f"{key} is deleted and was not there"
                else:
                    self.rows[key] = row

    def records(self, number: int) -> list[tuple[tuple[int, int], Row]]:
        """The records of a plan in the order of their positions."""
        tasks = self.storage.read(plan_name(number)).splitlines()[1:]
        assert all(json.loads(task) for task in tasks)
        spec = IncrSpec(PosixStorage(str(self.source)), self.identity)
        batches = [pa.Table.from_batches([batch]) for batch in spec.planned(tasks, {})]
        found = [row for batch in batches for row in batch.to_pylist()]
        return sorted((((row["pos_hi"], row["pos_lo"]), row["row"]) for row in found), key=lambda item: item[0])

    def by_key(self) -> dict[str, Row]:
        """The rows by record key; one key in two partitions is an error."""
        found: dict[str, Row] = {}
        for (key, _), row in self.rows.items():
            assert key not in found, f"{key} is in two partitions"
            found[key] = row
        return found


def plain(rows: dict[str, Any]) -> dict[str, Row]:
    """Rows without nulls, so that a missing column is one."""
    return {key: {name: v for name, v in row.items() if v is not None} for key, row in rows.items()}
