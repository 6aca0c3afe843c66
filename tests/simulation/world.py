"""One simulated world: a topic, a stream, its table, an operator, a clock; and what may happen in it."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from tagstream.cli.main import main as tagstream
from tagstream.cli.services_run import ProcessOptions, one_round
from tagstream.streaming.batch.commit_record import parse
from tagstream.streaming.batch.report import BatchReport
from tagstream.streaming.job.job import open_table, stream
from tagstream.streaming.monitor.watch import Watch
from tagstream.streaming.options.cli import load_options
from tagstream.streaming.process import CrashPlan, StopFlag
from tagstream.table.errors import TagstreamError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.operation import APPENDS, WriteOperationType
from tests.simulation.changes import Database, Message
from tests.simulation.engine import Engine, installed
from tests.simulation.events import EventMaker
from tests.simulation.files import Folder
from tests.simulation.follow import Follower
from tests.simulation.model import Event, Ident, Model
from tests.simulation.processes import Killed, Process, Processes
from tests.simulation.session import Session
from tests.simulation.settings import Settings
from tests.simulation.topic import TOPIC, Topic

START_MS = 1_767_225_600_000
_LINE_BYTES = 60  # of an event in a file, about


class Reports:
    """Stands where a run is shown to people."""

    def __init__(self, world: World) -> None:
        self._world = world

    def batch(self, report: BatchReport) -> None:
        self._world.say(f"  batch {report.batch_id} {report.instant}{' replayed' if report.replayed else ''}")
        self._world.take_in()

    def begin(self, batch_id: int) -> None: ...

    def lag(self, records: int | None) -> None: ...

    def loading(self, at: object) -> None: ...


class Waits(StopFlag):
    """Nobody asks for the end; whoever waits for that lets the clock go on."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def wait(self, seconds: float) -> bool:
        self._world.now_ms += max(5000, int(seconds * 1000))  # in larger steps: what it waits for is minutes away
        self._world.processes.renew()
        return False


@dataclass
class World:
    """``sent``: the events of each partition of the topic, in their order. ``log``: what happened, for people."""

    settings: Settings
    folder: Path
    random: Random = field(default_factory=Random)
    log: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    now_ms: int = START_MS

    def __post_init__(self) -> None:
        told = self.settings
        clock = [self.clock_ms] if told.source else []  # plans of files have times of their own
        self.topics = [Topic() for _ in range(told.streams)]
        self.topic, self.processes = self.topics[0], Processes(lambda: self.now_ms, *clock)
        self._lock: list[int] = []
        self._at_order: dict[Ident, tuple[tuple[int, int], int]] = {}
        self.follower = Follower(self.path, self.folder / "follower")
        self.events = EventMaker(told)
        self.database = Database(told, len(self.topic.partitions)) if told.changes else None
        self.source: EventMaker | Database = self.database or self.events
        self.sent: list[list[Event | None]] = [[] for topic in self.topics for _ in topic.partitions]
        self.model = Model(told.partial, told.stays, bool(told.changes))
        self.columns = self.settings.columns
        self.index_is_whole = self.woken = False
        self.operation = ""  # of the stream's next runs, in place of the one of its settings
        self.faults: list[str] = []
        self.past_is_lost = ("hoodie.clean.policy", "KEEP_LATEST_FILE_VERSIONS") in self.settings.services
        self._reads: dict[tuple[str, int], tuple[dict[int, int], dict[int, int]]] = {}
        self.source_folder = Folder(told, self.folder / "in", self.clock_ms) if told.source else None
        self.copies: set[str] = set()
        self.overwritten: dict[str, list[Event]] = {}
        self.of_others: dict[str, list[Event]] = {}
        self._schema = self.folder / "event.avsc"
        self.set_columns(self.columns)

    # what it looks like

    @property
    def path(self) -> Path:
        """The table's base path."""
        return self.folder / "table"

    @property
    def checkpoint(self) -> Path:
        """The stream's checkpoint."""
        return self.folder / "checkpoint"

    @property
    def has_table(self) -> bool:
        """Whether there is a table."""
        return (self.path / ".hoodie" / "hoodie.properties").exists()

    @property
    def has_state_index(self) -> bool:
        """Whether the stream has an index as its state, with a batch in it."""
        told = self.settings
        is_kept = told.index == "FLINK_STATE" and told.operation not in APPENDS
        return is_kept and bool(self.model.log) and self.checkpoint.exists()

    def table(self) -> HoodieTable:
        """The table as it is now, looked at from outside."""
        return HoodieTable.open(str(self.path))

    def clock_ms(self) -> int:
        """The clock of all processes; each look takes some time."""
        self.now_ms += 7
        return self.now_ms

    def say(self, text: str) -> None:
        """Note what happens."""
        self.log.append(text)

    # what happens

    def set_columns(self, columns: tuple[str, ...]) -> None:
        """The schema file of the stream has these columns from now on, and the events, too."""
        self.columns = columns
        self._schema.write_text(self.settings.schema(columns), "utf-8")

    def send(self, count: int) -> None:
        """So many new events, or changes of the database, are in the source."""
        if self.database is not None:
            self.put(self.database.make(self.random, self.columns, count))
            return
        in_files: dict[int, list[Event]] = {}
        for event in self.events.make(self.random, self.columns, count):
            key = event.ident if isinstance(event.ident, str) else "/".join(event.ident)
            stream, to = self._stream_for(event), sum(key.encode()) % len(self.topic.partitions)
            self.sent[stream * len(self.topic.partitions) + to].append(event)
            if self.source_folder is None:
                self.topics[stream].add(to, None, json.dumps(event.row).encode())
            else:
                in_files.setdefault(to, []).append(event)
        if self.source_folder is not None:
            for to, mine in sorted(in_files.items()):
                self.source_folder.write(self.random, to, mine, self.columns)

    def _stream_for(self, event: Event) -> int:
        """Any, but of events of one key with one order only one stream has some: between two, nobody says which is later."""
        at = self._at_order.get(event.ident)
        stream = at[1] if at is not None and at[0] == event.order else self.random.randrange(len(self.topics))
        if at is None or event.order >= at[0]:
            self._at_order[event.ident] = (event.order, stream)
        return stream

    def put(self, messages: Iterable[Message]) -> None:
        """Messages of the database are in the topic."""
        for message in messages:
            self.sent[message.partition].append(message.event)
            self.topic.add(message.partition, message.key, message.value, message.headers)

    def roll_back(self, instant: str) -> None:
        """An operator undoes the newest write."""
        argv = ("rollback", "--target-base-path", str(self.path), "--instant", instant, "--yes")
        assert self.operate("table", *argv) == "done"
        self.model.forget(instant)

    def run(self, limit: int, retried: float, plan: dict[str, Any], which: int = 0) -> str:
        """Start a stream; it takes all that its topic has, unless it dies. "done", "killed", or why it was refused."""
        engine = Engine(self.topics[which], self.random, limit, retried, reads=self._reads, lock=self._lock)
        session = Session(str(self.folder / "spark"))
        argv = self.settings.arguments(self.folder, self._schema, which, self.operation)
        folder = self.source_folder
        if folder is not None:
            argv += ["--source-limit", str(limit * _LINE_BYTES)]
        query_of = None if folder is None else folder.query
        with self.processes.process(**plan) as process, installed(engine, self.processes, self.clock_ms, query_of):
            try:
                options = load_options(argv)
                table = open_table(options, self.clock_ms())
                with Watch(options, self.clock_ms) as watch:
                    stop = Waits(self)
                    stream(session, options, table, Reports(self), stop, CrashPlan(), self.clock_ms, watch)  # type: ignore[arg-type]
                ended = "done"
            except Killed:
                ended = "killed"
            except Exception as error:
                woken = any(text.startswith("paused") for text in process.done)  # whatever it stumbles over
                if not woken and not isinstance(error, TagstreamError | OSError):
                    raise
                ended = f"refused: {type(error).__name__}: {error}"
        self.faults = list(process.done)
        for text in process.done:
            self.say(f"  {text.replace(str(self.folder), '')}")
        name = f" of stream {which}" if which else ""
        self.say(f"  run{name}: {ended.replace(str(self.folder), '')[:300]} ({process.calls} calls)")
        self.take_in()
        return ended

    def operate(self, *argv: str, plan: dict[str, Any] | None = None) -> str:
        """Somebody gives a command: "done", "killed", or what it said when it refused."""
        told = io.StringIO()
        with self.elsewhere(**(plan or {})) as process:
            try:
                with redirect_stderr(told):
                    code = tagstream(argv, io.StringIO())
                ended = "done" if code == 0 else f"refused: {told.getvalue().strip()}"
            except Killed:
                ended = "killed"
        self.faults += process.done
        for text in process.done:
            self.say(f"  {text.replace(str(self.folder), '')}")
        self.say(f"  {' '.join(argv[:2])}: {ended.replace(str(self.folder), '')[:300]} ({process.calls} calls)")
        return ended

    @contextmanager
    def elsewhere(self, **plan: Any) -> Iterator[Process]:
        """The body runs in a process of its own, which is not the stream's."""
        engine = Engine(self.topic, self.random)
        with self.processes.process(**plan) as process, installed(engine, self.processes, self.clock_ms):
            yield process

    def service_round(self, options: ProcessOptions, plan: dict[str, Any] | None = None) -> str:
        """A round of a service process (``tagstream services run``)."""
        try:
            with self.elsewhere(**(plan or {})):
                done = one_round(self.table(), options, self.clock_ms, lambda text: self.say(f"  service: {text}"))
            ended = f"{done} services"
        except Killed:
            ended = "killed"
        except (TagstreamError, OSError) as error:  # it tries again in the next round
            ended = f"{type(error).__name__}: {error}"
        self.say(f"  service round: {ended.replace(str(self.folder), '')[:200]}")
        return ended

    # what came of it

    def take_in(self) -> None:
        """Let the oracle know which events the new commits of the table say they hold."""
        if not self.has_table:
            return
        process = self.processes.current
        storage = PosixStorage(str(self.path), sync=False)
        table = HoodieTable.open(str(self.path)) if process is None else _outside(self.path)
        timeline = table.timeline()
        new = [
            (i.completion_time or i.time, i.time, timeline.metadata(storage, i))
            for i in timeline.completed_writes
            if not self.model.knows(i.time)
        ]
        if new and timeline.start is not None:  # one may have been archived in the run that made it
            for action in table.archived_writes():
                if self.model.knows(action.time) or not self.model.log:
                    break
                if action.time < timeline.start:
                    metadata = CommitMetadata.from_bytes(action.metadata or b"", action.time)
                    new.append((action.completion_time or action.time, action.time, metadata))
        for _, time, metadata in sorted(new, key=lambda found: found[:2]):
            self._take_in(time, metadata)

    def _take_in(self, time: str, metadata: CommitMetadata) -> None:
        record = parse(metadata.extra)
        if record is None:
            if metadata.operation == "DELETE_PARTITION":
                self.source.forget(tuple(metadata.replaced))
                self.model.delete_partitions(time, tuple(metadata.replaced))
            elif metadata.operation in ("INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE"):
                for part, rows in self.overwritten.items():
                    self.source.forget((part,))
                    self.source.taken(rows)
                    self.model.delete_partitions(time, (part,))
                    self.model.put(rows)
            elif time in self.of_others:
                self.model.other(time)
                self.model.put(self.of_others[time])
                self.source.taken(self.of_others[time])
            else:
                self.model.other(time)
            return
        is_second = self.source_folder is None and "-" in record.stream_id  # that of files is their folder
        first = len(self.topic.partitions) * (int(record.stream_id.rpartition("-")[2]) if is_second else 0)
        begin, reached = self._reads[record.query_id, record.batch_id]
        if self.source_folder is None:
            reached = {int(p): int(at) for p, at in record.end_offsets[TOPIC].items()}
        end = {first + p: at for p, at in reached.items()}
        start = {first + p: at for p, at in begin.items()}
        taken = [e for p in sorted(end) for e in self.sent[p][start.get(p, 0) : end[p]] if e is not None]
        if metadata.operation == WriteOperationType.DELETE:
            self.source.forget_keys(event.ident for event in taken)
        if self.settings.operation not in ("", metadata.operation):
            self.problems.append(f"commit {time} is of {metadata.operation}, and the stream's operation is another")
        problem = self.model.batch(time, taken, start, end, metadata.operation)
        if problem is not None:
            self.problems.append(problem)

    def undone(self) -> None:
        """Something was undone: what other writers wrote does not come again, so no event is late for its keys."""
        for instant in [time for time in self.of_others if not self.model.knows(time)]:
            self.source.forget_keys(event.ident for event in self.of_others.pop(instant))

    def all_taken(self) -> bool:
        """Whether the table has all events of the topic."""
        at = self.model.now.offsets
        return all(at.get(p, 0) == len(mine) for p, mine in enumerate(self.sent))

    # faults of files

    def lose_local(self) -> None:
        """The local stores are gone, as on another host."""
        shutil.rmtree(self.folder / "local", ignore_errors=True)

    def truncate_local(self) -> str:
        """One file of the local stores is cut off; its name."""
        found = sorted(p for p in (self.folder / "local").rglob("*") if p.is_file())
        if not found:
            return ""
        path = self.random.choice(found)
        os.truncate(path, path.stat().st_size // 2)
        return str(path.relative_to(self.folder))

    def copy(self, what: str, name: str) -> None:
        """Keep a copy of a folder of this world."""
        shutil.rmtree(self.folder / name, ignore_errors=True)
        if (self.folder / what).exists():
            shutil.copytree(self.folder / what, self.folder / name)

    def put_back(self, what: str, name: str) -> bool:
        """Put a copy in the place of a folder; False where there is none."""
        if not (self.folder / name).exists():
            return False
        shutil.rmtree(self.folder / what, ignore_errors=True)
        shutil.copytree(self.folder / name, self.folder / what)
        return True


def _outside(path: Path) -> HoodieTable:
    """The table, looked at past the gate of the process that runs."""
    return replace(HoodieTable.open(str(path)), storage=PosixStorage(str(path), sync=False))
