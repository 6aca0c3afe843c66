"""Reports of a run: what one batch did, the sums of a run, and the progress of the index load.

On a terminal the index load is shown as a progress bar. Otherwise each tenth of it is a log line.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tagstream.bootstrap.report import BootstrapProgress
from tagstream.table.timeline.commit_metadata import WriteStatus

# Each record that was read is counted under exactly one of these, so their sum is `records`.
KINDS = (
    "inserts", "updates", "deletes", "moves", "late", "superseded", "unknown_deletes", "quarantined",
    "skipped",
)  # fmt: skip
FIRST = "batch %d begins, the first batch of this run"  # the next log line comes when the batch is done
COUNTS = ("records", *KINDS, "files", "bytes")


@dataclass(frozen=True)
class BatchReport:
    """One batch. ``seconds`` is wall time, ``phases`` the seconds of its parts. ``lag``: records in the source that
    were not read yet; None: unknown.

    ``superseded``: records that lost to a newer record of their key in the same batch. ``unknown_deletes``: deletes of
    keys without a row. ``skipped``: records that change no row, such as a tombstone after its delete. ``groups``: live
    keys, tombstones and bytes by label of the key groups that the query has seen. ``instant`` None: nothing was
    committed. ``replayed``: the table already had the batch and nothing was written.
    """

    batch_id: int
    instant: str | None
    replayed: bool
    records: int
    inserts: int
    updates: int
    deletes: int
    moves: int
    late: int
    superseded: int
    unknown_deletes: int
    quarantined: int
    files: int
    bytes: int
    seconds: float
    phases: Mapping[str, float]
    index_keys: int
    index_tombstones: int
    index_bytes: int
    lag: int | None
    groups: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    skipped: int = 0

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.records / self.seconds if self.seconds > 0 else 0.0


def report_of(
    batch_id: int,
    instant: str,
    counts: Counter[str],
    statuses: Sequence[WriteStatus],
    phases: Mapping[str, float] | None = None,
) -> BatchReport:
    """The report of a batch by its ``counts`` of records and its write statuses. Its time and its index are not known
    yet.
    """
    kinds: dict[str, Any] = {kind: counts[kind] for kind in KINDS}
    return BatchReport(
        batch_id=batch_id,
        instant=instant,
        replayed=False,
        records=counts["records"] + counts["quarantined"] + counts["skipped"],
        **kinds,
        files=len(statuses),
        bytes=sum(s.stat.total_write_bytes for s in statuses),
        seconds=0.0,
        phases=phases or {},
        index_keys=0,
        index_tombstones=0,
        index_bytes=0,
        lag=None,
    )


@dataclass
class RunTotals:
    """Sums over the batches of a run. Replayed batches are counted separately, since they wrote nothing."""

    batches: int = 0
    replayed: int = 0
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    last: BatchReport | None = None

    def add(self, report: BatchReport) -> None:
        """Add one batch."""
        self.last = report
        if report.replayed:
            self.replayed += 1
            return
        self.batches += 1
        self.seconds += report.seconds
        for name in COUNTS:
            self.counts[name] += getattr(report, name)


def line(report: BatchReport) -> str:
    """The log line of a batch."""
    skipped = f", {report.skipped:,} skipped" if report.skipped else ""
    what = (
        f"{report.records:,} records in {report.seconds:.1f} s ({report.rate:,.0f}/s): {report.inserts:,} inserts, "
        f"{report.updates:,} updates, {report.deletes:,} deletes, {report.moves:,} moves, {report.late:,} late, "
        f"{report.superseded:,} superseded, {report.unknown_deletes:,} unknown deletes, "
        f"{report.quarantined:,} quarantined{skipped}; {report.files} files, {size(report.bytes)}"
    )
    if report.replayed:
        what = f"replayed in {report.seconds:.1f} s, the table already had it"
    elif report.instant is None:
        what += "; nothing committed"
    lag = "" if report.lag is None else f"; lag {report.lag:,}"
    phases = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in report.phases.items())
    index = f"; index {report.index_keys:,} keys, {size(report.index_bytes)}" if report.index_bytes else ""
    return f"batch {report.batch_id} ({report.instant or '-'}) {what}{index}{lag}{f' [{phases}]' if phases else ''}"


def summary(totals: RunTotals) -> list[tuple[str, str]]:
    """The rows of the summary at the end of a run: (name, value)."""
    replayed = f" (and {totals.replayed:,} replayed)" if totals.replayed else ""
    rows = [("batches", f"{totals.batches:,}{replayed}")]
    for name in COUNTS:
        value = totals.counts[name]
        rows.append((name.replace("_", " "), size(value) if name == "bytes" else f"{value:,}"))
    rate = totals.counts["records"] / totals.seconds if totals.seconds > 0 else 0.0
    rows.append(("time in batches", f"{totals.seconds:.1f} s, {rate:,.0f} records/s"))
    if totals.last is not None:
        last = totals.last
        if last.index_bytes:  # a pull-type index has no state
            rows.append(("index", f"{last.index_keys:,} keys, {last.index_tombstones:,} tombstones, "
                                  f"{size(last.index_bytes)}"))  # fmt: skip
        rows.append(("last commit", last.instant or "-"))
    return rows


def size(count: int) -> str:
    """A number of bytes as text with a unit."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


LOG = logging.getLogger("tagstream")
_STAGES = {"scan": "step 1 of 2, reading files", "load": "step 2 of 2, loading key groups"}


class LoadLog:
    """Writes one log line for each tenth of a stage of the index load."""

    def __init__(self) -> None:
        self._said = ("", -1)

    def __call__(self, at: BootstrapProgress) -> None:
        step = (at.stage, int(at.share * 10))
        if step == self._said:
            return
        self._said = step
        LOG.info("loading the index, %s", " · ".join([f"{_STAGES[at.stage]} {at.share:.0%}", *_facts(at)]))


def bar(title: str, at: BootstrapProgress) -> RenderableType:
    """The progress bar of the current stage, and a line with its figures."""
    head = Table.grid(padding=(0, 1), expand=True)
    head.add_column(no_wrap=True)
    head.add_column(ratio=1)
    head.add_column(no_wrap=True, justify="right")
    name = f"{title}: loading the index, {_STAGES[at.stage]}"
    head.add_row(name, ProgressBar(total=1.0, completed=at.share), f"{at.share:4.0%}")
    return Group(head, Text("  " + " · ".join(_facts(at)), no_wrap=True, overflow="ellipsis"))


def _facts(at: BootstrapProgress) -> list[str]:
    groups = [f"{at.done:,}/{at.total:,} groups"] if at.stage == "load" else []
    left = at.seconds_left
    return [
        *groups,
        f"{at.files:,}/{at.total_files:,} files",
        f"{at.keys:,} keys",
        f"{at.rate:,.0f} keys/s",
        "time left ?" if left is None else f"{_duration(left)} left{', step 2 included' if at.stage == 'scan' else ''}",
    ]


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
