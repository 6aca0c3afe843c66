"""The status of a run and its table services. The job's threads write it, and the threads of the status server read it.

A trend over time has bounded memory: when it is full, every second point is dropped and the spacing doubles.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice

from tagstream.bootstrap.report import BootstrapProgress
from tagstream.streaming.batch.report import COUNTS, BatchReport
from tagstream.streaming.monitor import health
from tagstream.streaming.monitor.health import Signs, Stops, Thresholds
from tagstream.streaming.monitor.snapshot import (
    About,
    BatchLine,
    CommitLine,
    Doing,
    GroupSize,
    Quarantine,
    ServiceLine,
    Snapshot,
    TableFiles,
    Tasks,
    Waiting,
    Warned,
)


class Trend:
    """Points (time in ms, value): at most ``room``, and at least ``spacing_ms`` apart."""

    def __init__(self, room: int = 240, spacing_ms: int = 2_000) -> None:
        self._room = room
        self._spacing = spacing_ms
        self._points: list[tuple[int, int]] = []

    def add(self, at_ms: int, value: int) -> None:
        """Add a point. Within the spacing, the newest point replaces the one before it."""
        points = self._points
        if len(points) > 1 and at_ms - points[-2][0] < self._spacing:
            points[-1] = (at_ms, value)
            return
        points.append((at_ms, value))
        if len(points) > self._room:
            self._points = list(islice(points, 0, None, 2))
            self._spacing *= 2

    def points(self) -> tuple[tuple[int, int], ...]:
        """The points, oldest first."""
        return tuple(self._points)


SERVICES = ("compaction", "clustering", "expiry", "cleaning", "archiving")


class Services:
    """Held by the status, under its lock. A service that is not among :data:`SERVICES` gets a line at its first turn."""

    def __init__(self) -> None:
        self._lines = {name: ServiceLine(name, 0) for name in SERVICES}

    def turn(self, name: str, completed: int, error: str | None, now_ms: int) -> None:
        """A service has run: how many actions it completed, and its error."""
        before = self._lines.get(name, ServiceLine(name, 0))
        last_ms = now_ms if completed else before.last_ms
        self._lines[name] = replace(
            before, completed=before.completed + completed, last_ms=last_ms, failing=error or "", tried=True
        )

    def look(self, due: Mapping[str, str], last_ms: Mapping[str, int]) -> None:
        """Set when each service is due next, in words, and when it last ran according to the table."""
        for name, before in self._lines.items():
            seen = max((at for at in (before.last_ms, last_ms.get(name)) if at is not None), default=None)
            self._lines[name] = replace(before, due=due.get(name, before.due), last_ms=seen)

    def lines(self) -> tuple[ServiceLine, ...]:
        """One line per service."""
        return tuple(self._lines.values())


DURATION_BOUNDS = (0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 300, 600, 1800)
_RECENT, _WARNINGS, _RATE_OF = 60, 20, 5


class RunStatus:
    """The status of a run, under one lock that is held only while a few values are copied. ``clock_ms`` returns epoch
    milliseconds.
    """

    def __init__(self, about: About, clock_ms: Callable[[], int], limits: Thresholds) -> None:
        self._lock = threading.Lock()
        self._clock_ms = clock_ms
        self._limits = limits
        now = clock_ms()
        self._s = Snapshot(now, about, now, Doing("starting", now), health.judge(_signs_at_start(now), limits))
        self._counts = dict.fromkeys(COUNTS, 0)
        self._phases: Counter[str] = Counter()
        self._durations = [0] * (len(DURATION_BOUNDS) + 1)
        self._recent: deque[BatchLine] = deque(maxlen=_RECENT)
        self._warnings: deque[Warned] = deque(maxlen=_WARNINGS)
        self._groups: dict[int, GroupSize] = {}
        self._key_groups: int | None = None
        self._lag = Trend()
        self._services = Services()
        self._restarts: Counter[str] = Counter()
        self._restarts_in_row, self._last_restart = 0, ""
        self._query_started = False
        self._stopped_by: str | None = None

    @property
    def about(self) -> About:
        """The constants of the run, as far as they are known."""
        return self._s.about

    def bad_records(self) -> int:
        """Bad records of this run so far."""
        return self._counts["quarantined"]

    # Called by the job

    def know(self, **about: str | int) -> None:
        """Set fields of ``About`` that became known after the start."""
        with self._lock:
            self._s = replace(self._s, about=replace(self._s.about, **about))  # type: ignore[arg-type]

    def began(self, run: int) -> None:
        """Set the number of this start of the checkpoint."""
        with self._lock:
            self._s = replace(self._s, run=run)

    def step(self, step: str, batch_id: int | None = None) -> None:
        """Set what the job does from now on, and in which batch."""
        now = self._clock_ms()
        with self._lock:
            before = self._s.doing
            since = None
            if batch_id is not None:
                same = before.batch_id == batch_id and before.batch_since_ms is not None
                since = before.batch_since_ms if same else now
            self._s = replace(self._s, doing=Doing(step, now, batch_id, since))

    def query_started(self) -> None:
        """The query has started: Spark looks for records from now on."""
        self._query_started = True
        self.step(health.WAITING)

    def batch(self, report: BatchReport) -> None:
        """A batch is done."""
        now = self._clock_ms()
        with self._lock:
            for label, found in report.groups.items():
                self._groups[label] = GroupSize(label, found["live_keys"], found["tombstones"], found["bytes"])
            self._s = replace(self._s, doing=Doing(health.WAITING, now))
            if report.replayed:
                self._s = replace(self._s, replayed=self._s.replayed + 1)
                return
            for name in COUNTS:
                self._counts[name] += getattr(report, name)
            self._phases.update(report.phases)
            self._durations[bisect_left(DURATION_BOUNDS, report.seconds)] += 1
            self._recent.append(
                BatchLine(
                    report.batch_id,
                    report.instant,
                    now,
                    report.records,
                    report.seconds,
                    dict(report.phases),
                    report.quarantined,
                )
            )
            self._s = replace(self._s, batches=self._s.batches + 1, seconds=self._s.seconds + report.seconds)
            if report.instant is not None:
                self._restarts_in_row = 0
                self._s = replace(self._s, last_commit_ms=now, last_commit_exact=True, stops_in_row=0, killed_in_row=0)

    def lag(self, records: int | None) -> None:
        """Set the lag: records in the source that no batch has read; None: unknown."""
        now = self._clock_ms()
        with self._lock:
            if records is not None:
                self._lag.add(now, records)
            self._s = replace(self._s, lag=records)

    def loading(self, at: BootstrapProgress) -> None:
        """Set the progress of an index load."""
        done = at.stage == "load" and at.done == at.total
        if done or self._s.doing.step != health.LOADING:
            self.step("comparing index and table" if done else health.LOADING)
        if not done:
            detail = f"{'reading files' if at.stage == 'scan' else 'key groups'} {at.share:.0%}, {at.keys:,} keys"
            with self._lock:
                self._s = replace(self._s, doing=replace(self._s.doing, detail=detail))

    def warned(self, level: str, text: str) -> None:
        """Add a warning of the log."""
        now = self._clock_ms()
        with self._lock:
            self._warnings.append(Warned(now, level, text))
            self._s = replace(self._s, warnings_total=self._s.warnings_total + 1)

    def restarted(self, error: str, why: str) -> None:
        """The query restarts after an error that a restart fixes. ``why``: the error's text."""
        with self._lock:
            self._restarts[error] += 1
            self._restarts_in_row, self._last_restart = self._restarts_in_row + 1, why
            self._query_started = False
        self.step("restarting the query")

    def service(self, name: str, completed: int, error: str | None) -> None:
        """A table service has run: how many actions it completed, and its error."""
        with self._lock:
            self._services.turn(name, completed, error, self._clock_ms())

    def stopped(self, error: str) -> None:
        """The run ends with an error of this class."""
        self._stopped_by = error

    def ended(self) -> None:
        """The run has ended."""
        self.step(health.STOPPED)

    # Called by the probes

    def stops(self, noted: Stops) -> None:
        """Set how earlier runs of this checkpoint ended."""
        with self._lock:
            self._s = replace(
                self._s,
                stops=dict(noted.counts),
                stops_in_row=noted.in_row,
                killed_in_row=noted.killed_in_row,
                last_stop=noted.last,
                last_end=noted.end,
            )

    def commits(self, found: Iterable[CommitLine], last_ms: int | None, *, exact: bool) -> None:
        """Set the newest writes on the timeline, and the time of this stream's last commit. ``exact`` False: it may be
        earlier.
        """
        with self._lock:
            self._s = replace(self._s, commits=tuple(found))
            if last_ms is not None and last_ms > (self._s.last_commit_ms or 0):
                self._s = replace(self._s, last_commit_ms=last_ms, last_commit_exact=exact)

    def files(self, found: TableFiles) -> None:
        """Set the table's files as last listed."""
        with self._lock:
            self._s = replace(self._s, files=found)

    def waits(self, found: Iterable[Waiting]) -> None:
        """Set the uncommitted records of each partition of the topic, as read from the broker."""
        partitions = tuple(found)
        oldest = [part.oldest_ms for part in partitions if part.records and part.oldest_ms is not None]
        with self._lock:
            self._s = replace(self._s, waiting=partitions, oldest_ms=min(oldest, default=None))
        self.lag(sum(part.records for part in partitions))

    def tasks(self, found: Tasks | None) -> None:
        """Set the tasks of the current batch; None where none runs."""
        with self._lock:
            self._s = replace(self._s, tasks=found)

    def quarantine(self, found: Quarantine) -> None:
        """Set the bad records that the checkpoint has."""
        with self._lock:
            self._s = replace(self._s, quarantine=found)

    def services_due(self, due: Mapping[str, str], last_ms: Mapping[str, int]) -> None:
        """Set when each table service is due next, in words, and when it last ran according to the table."""
        with self._lock:
            self._services.look(due, last_ms)

    def new_index(self, key_groups: int) -> None:
        """The query uses another index, whose sizes are not known yet."""
        with self._lock:
            self._groups.clear()
            self._key_groups = key_groups
            self._s = replace(self._s, groups_whole=False)

    def groups(self, found: Iterable[GroupSize], *, whole: bool) -> None:
        """Set the sizes of key groups as the checkpoint has them. A size that a batch has reported already is kept."""
        with self._lock:
            for group in found:
                self._groups.setdefault(group.label, group)
            self._s = replace(self._s, groups_whole=whole)

    def snapshot(self) -> Snapshot:
        """All values at this moment."""
        now = self._clock_ms()
        with self._lock:
            recent = tuple(self._recent)
            lines = self._services.lines()
            running = self._s.doing.batch_since_ms is not None
            tasks = self._s.tasks if running else None
            rate = _rate(recent[-_RATE_OF:])
            lag = self._s.lag
            catch_up = None if lag is None else 0.0 if lag == 0 else lag / rate if rate else None
            signs = Signs(
                now_ms=now,
                doing=self._s.doing,
                committed=self._s.batches,
                query_started=self._query_started,
                catch_up_s=catch_up,
                restarts_in_row=self._restarts_in_row,
                last_restart=self._last_restart,
                stops_in_row=self._s.stops_in_row,
                killed_in_row=self._s.killed_in_row,
                last_stop=self._s.last_stop,
                stopped_by=self._stopped_by,
                tasks=tasks,
                bad_share=_bad_share(recent[-_RATE_OF:]),
                checkpoint=self._s.about.checkpoint,
                failing=tuple(line.name for line in lines if line.failing),
            )
            return replace(
                self._s,
                at_ms=now,
                health=health.judge(signs, self._limits),
                lag_trend=self._lag.points(),
                catch_up_s=catch_up,
                rate=rate,
                durations=tuple(self._durations),
                counts=dict(self._counts),
                phases=dict(self._phases),
                recent=recent,
                groups=tuple(sorted(self._groups.values(), key=lambda g: g.label)),
                groups_whole=self._s.groups_whole or len(self._groups) == self._key_groups,
                warnings=tuple(self._warnings),
                restarts=dict(self._restarts),
                tasks=tasks,
                services={line.name: line.completed for line in lines},
                services_failing={line.name: line.failing for line in lines if line.failing},
                service_lines=lines,
            )


def _rate(batches: tuple[BatchLine, ...]) -> float | None:
    """Records per second over some batches."""
    seconds = sum(batch.seconds for batch in batches)
    return sum(batch.records for batch in batches) / seconds if seconds > 0 else None


def _bad_share(batches: tuple[BatchLine, ...]) -> tuple[int, int]:
    """Number of bad records and of all records in some batches."""
    return sum(batch.quarantined for batch in batches), sum(batch.records for batch in batches)


def _signs_at_start(now: int) -> Signs:
    return Signs(now, Doing("starting", now), 0, False, None, 0, "", 0, 0, None)
