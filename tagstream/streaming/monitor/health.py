"""How a job is, in one word: a pure function of what is known, which includes how its earlier runs stopped.

The same rules for people: docs/operations/monitoring.md.

``tagstream/stops.json`` in the checkpoint says how runs ended that ended by an error, or were killed. The process
that stops takes its counters with it. So the next run, and whoever scrapes it, learns from this file how often
that was, and that nothing was committed since. A process that is killed can note nothing. So each run notes that
it has begun, and removes the note at its end. A run that finds the note of another one knows that it was killed,
by the kernel for lack of memory or by an operator. The file decides nothing: one that cannot be read counts as
none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from tagstream.streaming.monitor.snapshot import Doing, Health, Stop, Tasks
from tagstream.streaming.monitor.values import span
from tagstream.table.storage.storage import Storage

STOPS_FILE = "tagstream/stops.json"
KILLED = "Killed"  # stands where other stops have the class of their error
_NEXT = (
    "Look for it in the kernel's log (dmesg), for OOMKilled of the pod, for exit code 137. A batch that is planned stays as "
    "large as it is: give the job more memory, or fewer tasks at a time"
)
_VERSION = 1
_LONGEST = 1_000


@dataclass(frozen=True)
class Begun:
    """A run that is at work, or was killed: ``owner`` tells it from every other. ``committed``: it has a commit."""

    owner: str
    at_ms: int
    host: str
    pid: int
    committed: bool = False


@dataclass(frozen=True)
class Stops:
    """``counts``: runs by error class; ``in_row``: since the last commit, ``killed_in_row`` of them without an error.

    ``begun``: the newest run, None once it has come to its end. ``end``: how the one before it ended, ``error`` empty where
    that was in order.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    in_row: int = 0
    last: Stop | None = None
    killed_in_row: int = 0
    begun: Begun | None = None
    end: Stop | None = None

    def one_more(self, error: str, text: str, at_ms: int) -> Stops:
        """With a run that has just ended by this error."""
        counts = {**self.counts, error: self.counts.get(error, 0) + 1}
        last = Stop(at_ms, error, text[:_LONGEST])
        return replace(self, counts=counts, in_row=self.in_row + 1, last=last, begun=None, end=last)

    def killed(self, batch_id: int | None, seen_ms: int | None) -> Stops:
        """With the run that has begun and left no word; ``batch_id`` (None: between two) and ``seen_ms`` are its last."""
        begun = self.begun
        assert begun is not None
        at_ms = max(begun.at_ms, seen_ms or 0)
        so_far = self.after_commit() if begun.committed else self
        where = "between two batches" if batch_id is None else f"in batch {batch_id}"
        text = f"killed {where}; out of memory? {_NEXT} (process {begun.pid} on {begun.host})"
        return replace(so_far.one_more(KILLED, text, at_ms), killed_in_row=so_far.killed_in_row + 1)

    def in_order(self, text: str, at_ms: int) -> Stops:
        """With a run that has come to its end."""
        return replace(self, begun=None, end=Stop(at_ms, "", text[:_LONGEST]))

    def after_commit(self) -> Stops:
        """With a commit: what stopped the run before is overcome."""
        begun = None if self.begun is None else replace(self.begun, committed=True)
        return replace(self, in_row=0, killed_in_row=0, begun=begun)

    @property
    def knows_commit(self) -> bool:
        """Whether a commit of the run that has begun changes nothing here."""
        return self.in_row == 0 and (self.begun is None or self.begun.committed)


def read_stops(checkpoint: Storage) -> Stops:
    """What is noted; nothing where the file is missing, damaged or of another version."""
    try:
        doc = json.loads(checkpoint.read(STOPS_FILE))
        if doc["version"] != _VERSION:
            return Stops()
        last, begun, end = doc["last"], doc.get("begun"), doc.get("end")  # earlier versions noted errors alone
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
    """Note it. Only the holder of the table's lease does so."""
    checkpoint.replace(STOPS_FILE, json.dumps({"version": _VERSION, **asdict(stops)}).encode())


OK, STARTING, STUCK, BEHIND = "ok", "starting", "stuck", "behind"
RESTARTING, BAD_RECORDS, LEAVING_OUT, ENDED = "restarting", "bad_records", "leaving_out", "ended"
STATES = (OK, STARTING, STUCK, BEHIND, RESTARTING, BAD_RECORDS, LEAVING_OUT, ENDED)
# With these an orchestrator is told that all is well: to start the job anew would not help.
FINE = frozenset((OK, STARTING, BEHIND, LEAVING_OUT, ENDED))
TITLES = {
    OK: "ok", STARTING: "starting", STUCK: "stuck", BEHIND: "behind", RESTARTING: "restarting",
    BAD_RECORDS: "stopped by bad records", LEAVING_OUT: "leaving bad records out", ENDED: "ended",
}  # fmt: skip
STUCK_AFTER_S = 900.0
BEHIND_AFTER_S = 600.0
RESTARTING_AFTER = 3
BAD_SHARE = 0.01  # of the records of the last batches: so many bad ones are more than a slip
BAD_RECORDS_ERROR = "BadRecordsError"
# Steps in which it is right to stay for long: nothing is there to do, or progress shows.
WAITING, LOADING, STOPPED = "waiting for records", "loading the index", "ended"


@dataclass(frozen=True)
class Signs:
    """What health is judged by. ``restarts_in_row``: of the query in this run, without a commit in between.

    ``stops_in_row``: runs before this one without a commit, of which ``killed_in_row`` were killed. ``bad_share``: bad
    records of the last batches, and all of them. ``failing``: table services.
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
    """After how many seconds in one batch (or one step of the start) a job is stuck; with how many to catch up, behind."""

    stuck_after_s: float = STUCK_AFTER_S
    behind_after_s: float = BEHIND_AFTER_S


def judge(signs: Signs, limits: Thresholds) -> Health:
    """The worst that holds."""
    state, why = _state(signs, limits)
    if signs.failing:
        why += f"; {' and '.join(signs.failing)} {'fail and are' if len(signs.failing) > 1 else 'fails and is'} tried again"
    return Health(state, why, state in FINE)


def _state(s: Signs, limits: Thresholds) -> tuple[str, str]:
    last = s.last_stop
    if s.stopped_by == BAD_RECORDS_ERROR or (s.stops_in_row and last is not None and last.error == BAD_RECORDS_ERROR):
        again = "" if s.stopped_by else "; this run has not come past that yet"
        return BAD_RECORDS, f"{last.text if last else 'see the log'}{again}; {show_bad(s.checkpoint)}"
    if s.restarts_in_row >= RESTARTING_AFTER:
        return RESTARTING, f"the query began anew {s.restarts_in_row} times without a commit: {s.last_restart}"
    if s.stops_in_row >= RESTARTING_AFTER:
        return RESTARTING, _again_and_again(s)
    if s.doing.step == STOPPED:
        return ENDED, "the job has ended"
    stuck = _stuck(s, limits.stuck_after_s)
    if stuck is not None:
        return STUCK, stuck
    if s.catch_up_s is not None and s.catch_up_s > limits.behind_after_s:
        return BEHIND, f"what waits takes about {span(s.catch_up_s)} at the rate of the last batches"
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
    return f"{s.stops_in_row} runs ended without a commit{killed}, the last one by: {text}"


def _stuck(s: Signs, after_s: float) -> str | None:
    doing = s.doing
    if doing.batch_since_ms is not None:
        running = (s.now_ms - doing.batch_since_ms) / 1000
        which = f"batch {doing.batch_id}" if s.committed else f"its first batch ({doing.batch_id})"
        return f"in {which} for {span(running)}, now at: {doing.step}{_tasks(s)}" if running > after_s else None
    here = (s.now_ms - doing.since_ms) / 1000
    if s.query_started or doing.step == LOADING or here <= after_s:
        return None
    return f"at its start for {span(here)}: {doing.step}"


def _tasks(s: Signs) -> str:
    """How far Spark's tasks are: whether none is done any more, or the batch is only long."""
    tasks = s.tasks
    if tasks is None:
        return ""
    failed = f", {tasks.failed} failed and were tried again" if tasks.failed else ""
    last = f", the last one {span((s.now_ms - tasks.moved_ms) / 1000)} ago" if tasks.done else ""
    return f"; {tasks.done} of {tasks.total} tasks done{last}, {tasks.running} at work{failed}"


def show_bad(checkpoint: str) -> str:
    """Which command shows the bad records."""
    return f"`tagstream quarantine list --checkpoint-dir {checkpoint}` shows them"


def answer(health: Health) -> tuple[int, str]:
    """HTTP status and text for an orchestrator."""
    return (200 if health.fine else 503), f"{health.state}: {health.why}\n"


def as_states(health: Health) -> Mapping[str, bool]:
    """Every state, and whether it is the one."""
    return {state: state == health.state for state in STATES}
