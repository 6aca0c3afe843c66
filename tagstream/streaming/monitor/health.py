"""The health of a job as one word: a pure function of its status, which includes how its earlier runs stopped.

docs/operations/monitoring.md explains the same rules.

``tagstream/stops.json`` in the checkpoint says how runs ended that ended with an error or were killed. A process that
stops loses its counters. So the next run, and the system that scrapes its metrics, reads from this file how often that
happened, and that nothing was committed since. A process that is killed can record nothing. So each run records its
begin, and removes that record at its end. A run that finds the record of another one knows that it was killed, by the
kernel for lack of memory or by an operator. No decision depends on the file: a file that cannot be read counts as
empty.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from tagstream.streaming.monitor.snapshot import Doing, Health, Stop, Tasks
from tagstream.streaming.monitor.values import span
from tagstream.table.storage.storage import Storage

STOPS_FILE = "tagstream/stops.json"
KILLED = "Killed"  # used instead of the class of an error
_NEXT = (
    "Check the kernel's log (dmesg), the pod for OOMKilled, and the exit code for 137. A planned batch keeps its size: give "
    "the job more memory, or fewer tasks in parallel"
)
_VERSION = 1
_LONGEST = 1_000


@dataclass(frozen=True)
class Begun:
    """A run that is active or was killed. ``owner`` identifies it among all runs. ``committed``: it has made a commit."""

    owner: str
    at_ms: int
    host: str
    pid: int
    committed: bool = False


@dataclass(frozen=True)
class Stops:
    """How runs ended. ``counts``: runs by error class. ``in_row``: runs since the last commit. ``killed_in_row``: those
    of them that were killed.

    ``begun``: the newest run, None once it has ended. ``end``: how the run before it ended; ``error`` is empty where
    that was without an error.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    in_row: int = 0
    last: Stop | None = None
    killed_in_row: int = 0
    begun: Begun | None = None
    end: Stop | None = None

    def one_more(self, error: str, text: str, at_ms: int) -> Stops:
        """Add a run that has just ended with this error."""
        counts = {**self.counts, error: self.counts.get(error, 0) + 1}
        last = Stop(at_ms, error, text[:_LONGEST])
        return replace(self, counts=counts, in_row=self.in_row + 1, last=last, begun=None, end=last)

    def killed(self, batch_id: int | None, seen_ms: int | None) -> Stops:
        """Add the begun run as killed. ``batch_id``: its last batch, None between two. ``seen_ms``: when it last
        renewed its lease.
        """
        begun = self.begun
        assert begun is not None
        at_ms = max(begun.at_ms, seen_ms or 0)
        so_far = self.after_commit() if begun.committed else self
        where = "between two batches" if batch_id is None else f"in batch {batch_id}"
        text = f"killed {where}; out of memory? {_NEXT} (process {begun.pid} on {begun.host})"
        return replace(so_far.one_more(KILLED, text, at_ms), killed_in_row=so_far.killed_in_row + 1)

    def in_order(self, text: str, at_ms: int) -> Stops:
        """Add a run that ended without an error."""
        return replace(self, begun=None, end=Stop(at_ms, "", text[:_LONGEST]))

    def after_commit(self) -> Stops:
        """Add a commit: the error of the run before is overcome."""
        begun = None if self.begun is None else replace(self.begun, committed=True)
        return replace(self, in_row=0, killed_in_row=0, begun=begun)

    @property
    def knows_commit(self) -> bool:
        """Whether a commit of the begun run would change nothing here."""
        return self.in_row == 0 and (self.begun is None or self.begun.committed)


def read_stops(checkpoint: Storage) -> Stops:
    """Read the file; empty where it is missing, damaged or of another version."""
    try:
        doc = json.loads(checkpoint.read(STOPS_FILE))
        if doc["version"] != _VERSION:
            return Stops()
        last, begun, end = doc["last"], doc.get("begun"), doc.get("end")  # earlier versions stored only errors
        return Stops(
            counts={str(error): int(count) for error, count in doc["counts"].items()},
            in_row=int(doc["in_row"]),
            last=None if last is None else Stop(**last),
            killed_in_row=int(doc.get("killed_in_row", 0)),
            begun=None if begun is None else Begun(**begun),
            end=None if end is None else Stop(**end),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Stops()


def write_stops(checkpoint: Storage, stops: Stops) -> None:
    """Write the file. Only the holder of the table's lease may do so."""
    checkpoint.replace(STOPS_FILE, json.dumps({"version": _VERSION, **asdict(stops)}).encode())


OK, STARTING, STUCK, BEHIND = "ok", "starting", "stuck", "behind"
RESTARTING, BAD_RECORDS, LEAVING_OUT, ENDED = "restarting", "bad_records", "leaving_out", "ended"
STATES = (OK, STARTING, STUCK, BEHIND, RESTARTING, BAD_RECORDS, LEAVING_OUT, ENDED)
# For these states an orchestrator gets a healthy answer, because a restart of the job would not help.
FINE = frozenset((OK, STARTING, BEHIND, LEAVING_OUT, ENDED))
TITLES = {
    OK: "ok", STARTING: "starting", STUCK: "stuck", BEHIND: "behind", RESTARTING: "restarting",
    BAD_RECORDS: "stopped by bad records", LEAVING_OUT: "leaving bad records out", ENDED: "ended",
}  # fmt: skip
STUCK_AFTER_S = 900.0
BEHIND_AFTER_S = 600.0
RESTARTING_AFTER = 3
BAD_SHARE = 0.01  # of the records of the last batches: a greater share of bad records is reported
BAD_RECORDS_ERROR = "BadRecordsError"
# Steps that may take long: the job has nothing to do, or its progress is shown.
WAITING, LOADING, STOPPED = "waiting for records", "loading the index", "ended"


@dataclass(frozen=True)
class Signs:
    """The values that the health depends on. ``restarts_in_row``: restarts of the query in this run since its last
    commit.

    ``stops_in_row``: earlier runs since the last commit. ``killed_in_row``: those of them that were killed.
    ``bad_share``: number of bad records and of all records in the last batches. ``failing``: table services whose last
    try failed.
    """

    now_ms: int
    doing: Doing
    committed: int
    query_started: bool
    catch_up_s: float | None
    restarts_in_row: int
    last_restart: str
    stops_in_row: int
    killed_in_row: int
    last_stop: Stop | None
    stopped_by: str | None = None
    tasks: Tasks | None = None
    bad_share: tuple[int, int] = (0, 0)
    checkpoint: str = ""
    failing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Thresholds:
    """Limits in seconds. A job is stuck after so long in one batch or one step of its start. It is behind with so long
    to catch up.
    """

    stuck_after_s: float = STUCK_AFTER_S
    behind_after_s: float = BEHIND_AFTER_S


def judge(signs: Signs, limits: Thresholds) -> Health:
    """The worst state that applies."""
    state, why = _state(signs, limits)
    if signs.failing:
        why += f"; {' and '.join(signs.failing)} {'fail and are' if len(signs.failing) > 1 else 'fails and is'} tried again"
    return Health(state, why, state in FINE)


def _state(s: Signs, limits: Thresholds) -> tuple[str, str]:
    last = s.last_stop
    if s.stopped_by == BAD_RECORDS_ERROR or (s.stops_in_row and last is not None and last.error == BAD_RECORDS_ERROR):
        again = "" if s.stopped_by else "; this run has not got past these records yet"
        return BAD_RECORDS, f"{last.text if last else 'see the log'}{again}; {show_bad(s.checkpoint)}"
    if s.restarts_in_row >= RESTARTING_AFTER:
        return RESTARTING, f"the query restarted {s.restarts_in_row} times without a commit: {s.last_restart}"
    if s.stops_in_row >= RESTARTING_AFTER:
        return RESTARTING, _again_and_again(s)
    if s.doing.step == STOPPED:
        return ENDED, "the job has ended"
    stuck = _stuck(s, limits.stuck_after_s)
    if stuck is not None:
        return STUCK, stuck
    if s.catch_up_s is not None and s.catch_up_s > limits.behind_after_s:
        return BEHIND, f"the lag takes about {span(s.catch_up_s)} to read at the rate of the last batches"
    bad, records = s.bad_share
    if bad and bad >= BAD_SHARE * records:
        share = f"{bad:,} of the {records:,} records ({bad / records:.1%}) of the last batches were left out as bad"
        return LEAVING_OUT, f"{share}; {show_bad(s.checkpoint)}"
    if not s.query_started:
        detail = f" ({s.doing.detail})" if s.doing.detail else ""
        return STARTING, f"{s.doing.step}{detail}, before the first batch"
    if s.doing.batch_id is None:
        return OK, s.doing.step
    if not s.committed:
        before = f"; the run before was {last.text}" if s.killed_in_row and last and last.error == KILLED else ""
        return OK, f"first batch of this run, {s.doing.step}{before}"
    return OK, f"batch {s.doing.batch_id}, {s.doing.step}"


def _again_and_again(s: Signs) -> str:
    text = s.last_stop.text if s.last_stop else ""
    if s.killed_in_row == s.stops_in_row:
        return f"{s.killed_in_row} runs were {text}"
    killed = f", {s.killed_in_row} of them killed" if s.killed_in_row else ""
    return f"{s.stops_in_row} runs ended without a commit{killed}, the last one with: {text}"


def _stuck(s: Signs, after_s: float) -> str | None:
    doing = s.doing
    if doing.batch_since_ms is not None:
        running = (s.now_ms - doing.batch_since_ms) / 1000
        which = f"batch {doing.batch_id}" if s.committed else f"its first batch ({doing.batch_id})"
        return f"in {which} for {span(running)}, now at: {doing.step}{_tasks(s)}" if running > after_s else None
    here = (s.now_ms - doing.since_ms) / 1000
    if s.query_started or doing.step == LOADING or here <= after_s:
        return None
    return f"starting for {span(here)}, now at: {doing.step}"


def _tasks(s: Signs) -> str:
    """How far Spark's tasks are. Shows whether tasks still complete or the batch is stuck."""
    tasks = s.tasks
    if tasks is None:
        return ""
    failed = f", {tasks.failed} failed and were tried again" if tasks.failed else ""
    last = f", the last one {span((s.now_ms - tasks.moved_ms) / 1000)} ago" if tasks.done else ""
    return f"; {tasks.done} of {tasks.total} tasks done{last}, {tasks.running} running{failed}"


def show_bad(checkpoint: str) -> str:
    """A text with the command that shows the bad records."""
    return f"`tagstream quarantine list --checkpoint-dir {checkpoint}` shows them"


def answer(health: Health) -> tuple[int, str]:
    """HTTP status and text for an orchestrator."""
    return (200 if health.fine else 503), f"{health.state}: {health.why}\n"


def as_states(health: Health) -> Mapping[str, bool]:
    """Every state, and whether the job is in it."""
    return {state: state == health.state for state in STATES}
