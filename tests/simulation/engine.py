"""Stands for Spark: micro-batches with Spark's checkpoint files, tasks and state versions, in one thread and no JVM.

The job itself (``streaming.job.job.stream``), its sink and all it calls are the product's. What takes Spark's place is named
in :func:`installed`: the query, the frames that the sink gets, the topic's ends, and what tells a task who it is.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.located import WriteTasks, packed_columns
from tagstream.streaming.batch.spark_checkpoint import newest_batch, raw_offset
from tagstream.streaming.batch.tag import TagSpec, tag_records
from tagstream.streaming.job.restart import schema_notes
from tagstream.streaming.job.sink import BatchSink
from tagstream.streaming.source.file_reader import PlanReader
from tagstream.streaming.source.kafka_topic import EARLIEST
from tagstream.streaming.source.packed import unpack
from tagstream.streaming.source.source import make_key_function
from tagstream.table.storage.opening import OPENERS, canonical
from tests.simulation.processes import Processes, QuietRenewals, SimulatedLock, SimulatedStorage
from tests.simulation.pull import located_by_index
from tests.simulation.session import Frame, Session
from tests.simulation.threads import Deferred, OneThread
from tests.simulation.topic import TOPIC, Topic

STATE, FIRST = "state/simulated", "sources/0/0"
Located = tuple[int, bytes | None, str | None]
Offsets = dict[int, int]


@dataclass
class Task:
    """Stands for Spark's ``TaskContext`` of the task that runs."""

    stage: int = 0
    partition: int = 0
    attempt: int = 0

    def get(self) -> Task:
        return self

    def partitionId(self) -> int:
        return self.partition

    def taskAttemptId(self) -> int:
        return self.attempt

    def attemptNumber(self) -> int:
        return 0

    def stageId(self) -> int:
        return self.stage


@dataclass
class Engine:
    """``limit``: records of a partition that a batch takes at most. ``retried``: how often a task runs a second time, as one
    that failed late or was speculated, by chance. ``reads``: where each batch began to read and where it ended, by query id
    and number: a query's first batch has no offsets before it in Spark's files. ``lock``: the number of the process that
    has the table's lock."""

    topic: Topic
    random: Random
    limit: int = 1000
    retried: float = 0.0
    task: Task = field(default_factory=Task)
    reads: dict[tuple[str, int], tuple[Offsets, Offsets]] = field(default_factory=dict)
    lock: list[int] = field(default_factory=list)

    def runs(self) -> int:
        """How often the next task runs."""
        self.task.attempt += 1
        return 2 if self.random.random() < self.retried else 1


class Query:
    """One start of a streaming query."""

    lastProgress = None  # noqa: N815 (Spark's name)

    def __init__(self, engine: Engine, session: Session, job: JobContext, sink: BatchSink, *_: object) -> None:
        self.engine, self.session, self.job, self.sink = engine, session, job, sink
        self._query_folder = job.query_folder.files

    def run(self) -> None:
        """All that the topic has, as the trigger ``availableNow`` does."""
        query_folder = self._query_folder
        if not query_folder.exists("metadata"):
            ident = f"00000000-0000-4000-8000-{self.engine.random.getrandbits(48):012x}"
            query_folder.replace("metadata", json.dumps({"id": ident}).encode())
        while True:
            finished, planned = newest_batch(query_folder, "commits"), newest_batch(query_folder, "offsets")
            batch = 0 if finished is None else finished + 1
            start = self.start(batch)
            if planned is not None and planned >= batch:
                end = self.offsets(raw_offset(query_folder, batch))
            else:
                end = self.next_end(start)
                if end == start:
                    return
                query_folder.replace(f"offsets/{batch}", "\n".join(["v1", "{}", json.dumps(self.doc(end))]).encode())
            self.engine.reads[json.loads(query_folder.read("metadata"))["id"], batch] = self.reads(start, end)
            self.sink(BatchFrame(self, batch, start, end), batch)  # type: ignore[arg-type]
            query_folder.replace(f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')

    def state(self, batch: int) -> dict[int, bytes]:
        """The pointers that the state has after a batch."""
        if batch < 0:
            return {}
        doc = json.loads(self._query_folder.read(f"{STATE}/{batch}"))
        return {int(label): base64.b64decode(text) for label, text in doc.items()}

    def keep_state(self, batch: int, pointers: dict[int, bytes]) -> None:
        """Commit a version of the state, over one that an attempt before has left."""
        doc = {str(label): base64.b64encode(value).decode() for label, value in sorted(pointers.items())}
        self._query_folder.replace(f"{STATE}/{batch}", json.dumps(doc).encode())

    def start(self, batch: int) -> Offsets:
        """Where a batch begins."""
        if batch > 0:
            return self.offsets(raw_offset(self._query_folder, batch - 1))
        if not self._query_folder.exists(FIRST):  # Spark's source keeps where it began, whatever a later start gives it
            self._query_folder.replace(FIRST, json.dumps(self.doc(self._given())).encode())
        return self.offsets(json.loads(self._query_folder.read(FIRST)))

    def _given(self) -> dict[int, int]:
        text = self.job.position.starting_offsets
        if text is None or text == "earliest":
            return {n: 0 for n, _ in enumerate(self.engine.topic.partitions)}
        return {p: 0 if at == EARLIEST else at for p, at in _offsets(json.loads(text)).items()}

    def next_end(self, start: Offsets) -> Offsets:
        """Where the next batch ends; ``start`` where nothing is there."""
        ends = self.engine.topic.ends()
        return {p: min(ends[p].latest, start.get(p, 0) + self.engine.limit) for p in ends}

    def doc(self, at: Offsets) -> dict[str, Any]:
        """Offsets as Spark logs them."""
        return {TOPIC: {str(p): n for p, n in at.items()}}

    def offsets(self, doc: Any) -> Offsets:
        """What :meth:`doc` gave."""
        return _offsets(doc)

    def reads(self, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        """The first event that a batch takes of each partition, and the first that it does not."""
        return start, end

    def raw(self, start: Offsets, end: Offsets) -> list[list[pa.RecordBatch]]:
        """The records of a batch, by task."""
        return self.engine.topic.raw(start, end)

    @property
    def reader(self) -> PlanReader | None:
        """What reads plans in the tasks."""
        return None


@dataclass
class BatchFrame:
    """The rows of a micro-batch, as the sink gets them."""

    query: Query
    batch_id: int
    start: Offsets
    end: Offsets
    locate: Callable[[dict[int, list[bytes]]], list[Located]] | None = None

    @property
    def sparkSession(self) -> Session:
        return self.query.session

    def persist(self, *_: object) -> BatchFrame:
        return self

    def unpersist(self) -> BatchFrame:
        return self

    def repartitionById(self, count: int, _column: str) -> BatchFrame:
        self._tasks = count
        return self

    def mapInArrow(self, write: Callable[..., Iterator[pa.RecordBatch]], _schema: object) -> Frame:
        """Run the stages; the tasks of the write stage that come last."""
        if self.query.job.bulk_inserts:
            return self._written_where_read(write)
        keyed = self.keyed()
        located = self._tagged(keyed) if self.locate is None else self.locate(keyed)
        engine, out = self.query.engine, []
        write_tasks: dict[int, list[Located]] = {}
        for row in located:
            write_tasks.setdefault(row[0], []).append(row)
        engine.task.stage += 1
        for write_task, rows in sorted(write_tasks.items()):
            batch = pa.RecordBatch.from_pydict(
                {
                    "lane": pa.array([write_task] * len(rows), pa.int32()),
                    "rows": pa.array([row[1] for row in rows], pa.binary()),
                    "status": pa.array([row[2] for row in rows], pa.string()),
                }
            )
            engine.task.partition = write_task
            for _ in range(engine.runs()):
                engine.task.attempt += 1
                answer = list(write(iter([batch])))
            out += answer
        return Frame(out)

    def _written_where_read(self, write: Callable[..., Iterator[pa.RecordBatch]]) -> Frame:
        """A bulk insert: the tasks that read the records write them."""
        engine, keys, out = self.query.engine, self._keys(), []
        engine.task.stage += 1
        for partition, raw in enumerate(self.query.raw(self.start, self.end)):
            engine.task.partition = partition
            for _ in range(engine.runs() if raw else 0):
                engine.task.attempt += 1
                answer = list(write(keys(iter(raw))))
            out += answer if raw else []
        return Frame(out)

    def keyed(self) -> dict[int, list[bytes]]:
        """The records by key group, packed: what a task of each partition of the topic makes of its records."""
        engine, keys = self.query.engine, self._keys()
        packed: dict[int, list[bytes]] = {}
        engine.task.stage += 1
        for partition, raw in enumerate(self.query.raw(self.start, self.end)):
            engine.task.partition = partition
            for batch in keys(iter(raw)) if raw else ():
                for label, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    if value is not None:
                        packed.setdefault(label, []).append(value)
        return packed

    def _keys(self) -> Callable[..., Iterator[pa.RecordBatch]]:
        """The function of a task that reads records."""
        job = self.query.job
        notes = schema_notes(job) if job.decode.evolution is not None else None
        depth = job.history.partition_depth
        if depth is None and job.decode.depth_is_open:
            depth = job.read_profile().partition_depth
        return make_key_function(job.decode, job.env.meta.labels, depth, self.query.reader, notes)

    def _tagged(self, keyed: dict[int, list[bytes]]) -> list[Located]:
        """The stateful operator."""
        query, job, profile = self.query, self.query.job, self.query.job.read_profile()
        spec = TagSpec(
            layout=job.layout, profiles=job.profiles, run=job.run, run_owner=job.run_owner, crash=job.env.crash,
            write_tasks=job.env.meta.shuffle_partitions, storage=job.table.storage,
            timeline_folder=job.table.config.timeline_folder, action=job.action, partial=job.decode.partial_rows,
        )  # fmt: skip
        pointers = query.state(self.batch_id - 1)
        out: list[Located] = []
        query.engine.task.stage += 1
        for label, values in sorted(keyed.items()):
            pointer = pointers.get(label)
            for _ in range(query.engine.runs()):
                rows, result = tag_records(label, pointer, unpack(values), profile, job.layout, spec.partial)
            if result.pointer is not None and result.pointer != pointer:
                spec.check_pending(profile)
                pointers[label] = result.pointer
            write_tasks = WriteTasks(spec.write_tasks, profile.write_tasks)
            out += zip(*packed_columns(label, rows, result.delta, result.stats, write_tasks), strict=True)
        query.keep_state(self.batch_id, pointers)
        return out


def _offsets(doc: Any) -> dict[int, int]:
    return {int(p): int(at) for p, at in doc[TOPIC].items()}


def _located_rows(job: JobContext, rows: BatchFrame, instant: str) -> BatchFrame:
    rows.locate = partial(located_by_index, job, instant)
    return rows


def _tasks_here(_spark: object, task: Callable[[int], Any], count: int, tick: Callable[[], None]) -> list[Any]:
    results = []
    for number in range(count):
        results.append(task(number))
        tick()
    return results


_TOPIC_ID = "T"


@contextmanager
def installed(
    engine: Engine, processes: Processes, clock_ms: Callable[[], int], query_of: Callable[..., Query] | None = None
) -> Iterator[None]:
    """The simulated Spark, storage, processes and clock take the place of the real ones. ``query_of``: makes the query of
    an engine, a session, a job, its sink and its files."""
    job, services = "tagstream.streaming.job.job", "tagstream.streaming.services"
    lease = "tagstream.table.timeline.lease"
    with ExitStack() as stack:

        def put(target: str, new: object) -> None:
            stack.enter_context(patch(target, new))

        def open_local(url: str) -> SimulatedStorage:
            return SimulatedStorage.of(canonical(url), processes)

        stack.enter_context(patch.dict(OPENERS, {"file": open_local}))
        put(f"{lease}.LeaseOwner.this_process", staticmethod(processes.owner))
        put(f"{lease}._process_start", processes.start_of)
        put("tagstream.streaming.lease_keeper.Renewals", lambda _s, renew, _name="": QuietRenewals(processes, renew))
        put("tagstream.streaming.lease_keeper._held", set())  # of this simulated process
        put(
            "tagstream.table.locks.opened.open_lock",
            lambda asked, *_: asked.provider and SimulatedLock(processes, engine.lock),
        )
        put(f"{job}.start_query", partial(query_of or Query, engine))
        put(f"{job}.run_to_end", _run_to_end)
        put(f"{job}.end_query", lambda _: None)
        put(f"{job}.choose_checkpoint_files", lambda *_: False)
        put(f"{job}.has_ended", lambda _: False)
        put("tagstream.streaming.recovery.takeover.topic_offsets", engine.topic.ends)
        put("tagstream.streaming.job.first_records.first_records", engine.topic.first)
        put("tagstream.streaming.recovery.same_source.topic_id", lambda *_: _TOPIC_ID)
        put(f"{job}.TopicWatch", lambda *_: ExitStack())  # it is never another one
        put("tagstream.streaming.job.sink.located_rows", _located_rows)
        put("tagstream.streaming.batch.write.TaskContext", engine.task)
        put("tagstream.streaming.batch.bulk_insert.TaskContext", engine.task)
        put("tagstream.streaming.source.source.TaskContext", engine.task)
        put("tagstream.bootstrap.run.run_tasks", _tasks_here)
        put("tagstream.bootstrap.catch_up.run_tasks", _tasks_here)
        put("tagstream.table.storage.storage.ThreadPoolExecutor", OneThread)
        for module in ("compaction", "clustering", "cleaning"):
            put(f"{services}.{module}.Background", Deferred)
        put("tagstream.cli.main._now_ms", clock_ms)
        yield


def _run_to_end(query: Query, job: JobContext, sink: BatchSink, *_: object) -> None:
    try:
        query.run()
    except Exception:
        if sink.failure is not None:
            raise sink.failure from None
        raise
    sink.end()
