"""What the drills print: a line each, and one table of all at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from tests.drills.stream_job import Job, Outcome

TABLE_TYPES = {"COPY_ON_WRITE": "cow", "MERGE_ON_READ": "mor"}


@dataclass
class Drill:
    """One drill as it goes: a context manager that fails when it injected fewer faults than it meant to.

    ``expected`` and ``found`` are rows at the last comparison; ``lost``, ``duplicates`` and ``wrong`` (rows that differ or
    should not be there) are summed over all comparisons.
    """

    fault: str
    table_type: str
    meant: int
    injected: int = 0
    comparisons: int = 0
    expected: int = 0
    found: int = 0
    duplicates: int = 0
    lost: int = 0
    wrong: int = 0
    seconds: float = 0.0
    passed: bool = False

    def compare(self, job: Job) -> None:
        """Compare the table with the oracle; AssertionError when they differ."""
        self.count(job.compare())

    def count(self, outcome: Outcome) -> None:
        """Add a comparison; AssertionError when the table differs."""
        self.comparisons += 1
        self.expected, self.found = outcome.expected, outcome.found
        self.duplicates += outcome.differences.doubled
        self.lost += outcome.differences.lost
        self.wrong += outcome.differences.unexpected + sum(outcome.differences.changed.values())
        assert not outcome.differences, f"{self.fault}, after {self.injected} faults: {outcome.differences}"

    def line(self) -> str:
        """The drill in one line."""
        each = f" ({self.seconds / self.injected:.1f} s a fault)" if self.injected else ""
        return (
            f"{'ok  ' if self.passed else 'FAIL'} {self.fault} [{TABLE_TYPES[self.table_type]}]: {self.injected} of "
            f"{self.meant} faults, {self.comparisons} comparisons, rows expected {self.expected}, found {self.found}, "
            f"duplicates {self.duplicates}, lost {self.lost}, wrong {self.wrong}; {self.seconds:.0f} s{each}"
        )

    def __enter__(self) -> Drill:
        self._began = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.seconds = time.monotonic() - self._began
        enough = self.injected >= self.meant and self.comparisons > 0
        self.passed = kind is None and enough
        assert kind is not None or enough, f"injected {self.injected} of {self.meant} faults: {self.line()}"


def table_of(drills: Sequence[Drill], seconds: float) -> Table:
    """All drills with their totals."""
    numbers = ("meant", "injected", "expected", "found", "duplicates", "lost", "wrong")
    table = Table(title="Restore drills", show_footer=True)
    footers = {n: str(sum(getattr(d, n) for d in drills)) for n in numbers if n not in ("expected", "found")}
    table.add_column("fault", footer=f"{len(drills)} drills")
    table.add_column("table")
    for name in numbers:
        table.add_column(name, footer=footers.get(name, ""), justify="right", no_wrap=True)
    table.add_column("s", footer=f"{seconds:.0f}", justify="right", no_wrap=True)
    table.add_column("", footer="" if all(d.passed for d in drills) else "FAIL", no_wrap=True)
    for d in drills:
        row = [d.fault, TABLE_TYPES[d.table_type], *(str(getattr(d, n)) for n in numbers), f"{d.seconds:.0f}"]
        table.add_row(*row, "ok" if d.passed else "FAIL")
    return table


def total_faults(drills: Sequence[Drill]) -> int:
    """Faults injected in all."""
    return sum(d.injected for d in drills)


def write_json(drills: Sequence[Drill], seconds: float, path: Path) -> None:
    """The same for machines. ``seconds``: wall time of the whole run."""
    totals = {n: sum(getattr(d, n) for d in drills) for n in ("meant", "injected", "duplicates", "lost", "wrong")}
    totals["failed"] = sum(not d.passed for d in drills)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({"seconds": round(seconds, 1), "totals": totals, "drills": [asdict(d) for d in drills]}, indent=1)
        + "\n"
    )
