"""What the driver itself costs, with up to 100,000 file groups: `python -m bench.driver_scale --groups 1000 10000 100000`.

One process, no Spark: the driver's own code runs over a simulated table (bench/inputs/driver_table.py says which parts of
it are real), and each step is measured alone. Prints for each step when it runs (at a start of the job, in every batch, in a
task, or in the rollback of a write), its seconds and bytes, as median of the runs. The costs of Spark itself (planning,
scheduling) are not included.
"""

from __future__ import annotations

import argparse
import gc
import os
import pickle
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from bench.inputs import driver_table as sim
from bench.inputs.lines import append_lines
from tagstream.state.batch_manifest import BatchManifest
from tagstream.state.checkpoint import INDEX, QueryFolder, open_or_create_meta
from tagstream.state.layout import StateLayout, balanced_labels
from tagstream.streaming.batch.added_keys import AddedKeys
from tagstream.streaming.batch.commit_record import CommitRecord, extra_metadata
from tagstream.streaming.batch.context import JobContext, RunEnvironment
from tagstream.streaming.batch.small_files import PinnedSizes, SmallFiles
from tagstream.streaming.batch.spark_checkpoint import SparkBatch, read_spark_batch
from tagstream.streaming.batch.tag import profile_name
from tagstream.streaming.batch.write import slices_of
from tagstream.streaming.job.commit import Outcome
from tagstream.streaming.job.timeline_guard import TimelineGuard
from tagstream.streaming.lease_keeper import LeaseKeeper
from tagstream.streaming.options.cli import load_options
from tagstream.streaming.process import CrashPlan, StopFlag
from tagstream.streaming.recovery.coverage import CheckpointState, IndexPlace, assess
from tagstream.streaming.source.decode_spec import DecodeSpec
from tagstream.table.locks.lock import TableLock
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.failed_writes import plan_rollback
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.timeline.commit_metadata import CommitMetadata, WriteStatus
from tagstream.table.timeline.instant import DELTA_COMMIT, Instant, State
from tagstream.table.write import commit as protocol
from tagstream.table.write.file_sizes import FileSizeOptions
from tagstream.table.write.write_context import WriteProfile, WriterOptions

RETAINED = 100  # batches whose state Spark may still read, its default
BATCH = RETAINED + RETAINED // 10  # the measured batch, one of those that collect garbage
_LOG_RATIO, _TRUST = 0.35, 1.0
Groups = Sequence[tuple[str, str]]


@dataclass
class Steps:
    """Figures of one table. ``size``: the fields that every line of the table has."""

    run: int
    size: dict[str, Any]
    lines: list[dict[str, Any]] = field(default_factory=list)

    def measure(
        self, when: str, step: str, work: Callable[[], Any], bytes_of: Callable[[Any], int] | None = None, **more: Any
    ) -> Any:
        """Time one step and return its result."""
        gc.collect()
        started, cpu = time.perf_counter(), time.process_time()
        result = work()
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        size = None if bytes_of is None else bytes_of(result)
        line = {"kind": "driver", "run": self.run, "when": when, "step": step, **self.size, **more}
        self.lines.append({**line, "seconds": round(seconds, 6), "cpu_seconds": round(cpu, 6), "bytes": size})
        return result


def main() -> None:
    """Make the tables, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, nargs="+", default=[1_000, 10_000, 100_000], help="file groups")
    parser.add_argument("--touched", type=int, nargs="+", default=[10, 1_000, 100_000], help="file groups of a batch")
    parser.add_argument("--per-partition", type=int, default=100, help="file groups of a partition")
    parser.add_argument("--logs", type=int, default=1, help="log files of a file group before the batch")
    parser.add_argument("--small", type=float, default=0.1, help="share of the file groups that still take inserts")
    parser.add_argument("--key-groups", type=int, nargs="+", default=[256], help="the first one with every table")
    parser.add_argument("--instants", type=int, nargs="+", default=[30], help="commits on the timeline; first as above")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to make the tables; a temporary folder by default")
    parser.add_argument("--json", type=Path, help="add the figures to this file of JSON lines")
    args = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 150)
    lines: list[dict[str, Any]] = []
    for groups, keys, instants in sizes(args.groups, args.key_groups, args.instants):
        folder = Path(tempfile.mkdtemp(prefix="driver-scale-", dir=args.folder))
        try:
            found = measure_table(folder, groups, keys, instants, args)
        finally:
            shutil.rmtree(folder)
        append_lines(args.json, found)
        lines += found
        console.print(as_table(found))


def sizes(groups: list[int], key_groups: list[int], instants: list[int]) -> Iterator[tuple[int, int, int]]:
    """(file groups, key groups, instants): one of them varies while the others have their first value."""
    yield from ((g, key_groups[0], instants[0]) for g in groups)
    yield from ((groups[0], k, instants[0]) for k in key_groups[1:])
    yield from ((groups[0], key_groups[0], i) for i in instants[1:])


def measure_table(
    folder: Path, groups: int, key_groups: int, instants: int, args: argparse.Namespace
) -> list[dict[str, Any]]:
    """All lines of one simulated table."""
    partitions = max(1, groups // args.per_partition)
    made = sim.make_table(folder / "table", groups, partitions, args.logs, instants, args.small, BATCH)
    layout = StateLayout(PosixStorage(str(folder / "checkpoint")).below(INDEX), str(folder / "local"))
    labels = balanced_labels(key_groups, 64)
    sim.make_checkpoint(folder / "checkpoint", layout, labels, BATCH, made.instants)
    size = {"file_groups": groups, "partitions": partitions, "key_groups": key_groups, "instants": instants}
    size["files"] = groups * (1 + args.logs)
    out: list[dict[str, Any]] = []
    for run in range(1, args.runs + 1):
        steps = Steps(run, size)
        job = start(steps, made, folder, layout, labels)
        for count in (n for n in args.touched if n <= groups):
            one_batch(steps, job, made, count)
        every_small(steps, job, made)
        out += steps.lines
    return out


def start(steps: Steps, made: sim.Simulated, folder: Path, layout: StateLayout, labels: tuple[int, ...]) -> JobContext:
    """The steps of a job's start before its first batch."""
    rss = psutil.Process().memory_info().rss
    table = steps.measure("start", "open table", lambda: HoodieTable.open(made.table.base_path))
    timeline = steps.measure("start", "list timeline", table.timeline)
    steps.measure("start", "list partitions", table.view(timeline).partitions)
    small = new_small_files(sim.FULL_BYTES)
    steps.measure("start", "list all slices (SmallFiles.load)", lambda: small.load(table.view(timeline)))
    job = make_job(table, folder, layout, labels, small)
    query_folder = job.query_folder.files
    place = IndexPlace(query_folder, layout, 0, RETAINED, False)
    state = CheckpointState.read(query_folder)
    steps.measure("start", "compare index and table (assess)", lambda: assess(place, table, timeline, state))
    job.position.covered = frozenset(i.time for i in timeline.completed_writes)
    steps.lines[-1]["rss_grown"] = psutil.Process().memory_info().rss - rss
    return job


def one_batch(steps: Steps, job: JobContext, made: sim.Simulated, touched: int) -> None:
    """The driver's steps, in order, of a batch that writes one log file to each of ``touched`` file groups."""
    job.position.covered = frozenset(i.time for i in job.table.timeline().completed_writes)
    job.env.lease.acquire("bench")
    guard = TimelineGuard(job)
    batch = BATCH
    guard.before_batch(
        lambda: read_spark_batch(job.query_folder.files, batch, files=False)
    )  # the first batch of a run takes other code paths
    now: dict[str, Any] = {"touched": touched}
    spark_batch = steps.measure(
        "batch", "read epoch", lambda: read_spark_batch(job.query_folder.files, batch, files=False), **now
    )
    steps.measure("batch", "timeline guard before the batch", lambda: guard.before_batch(lambda: spark_batch), **now)
    instant = steps.measure("batch", "next instant", guard.next_instant, **now)
    statuses = sim.touched(made, touched)
    pin_and_read(steps, job, spark_batch, instant, [(s.stat.partition_path, s.stat.file_id) for s in statuses], now)
    steps.measure("batch", "requested and inflight", lambda: begin(job.table, instant), **now)
    sim.write_files(job.table, instant, statuses)
    tasks(steps, job, made, statuses, now)
    texts = [s.to_json() for s in statuses]
    parse = lambda: [WriteStatus.from_json(text) for text in texts]  # noqa: E731
    steps.measure("batch", "parse the tasks' answers", parse, lambda _: sum(map(len, texts)), **now)
    deltas = sim.delta_refs(job.layout, job.env.meta.labels, batch)
    manifest = BatchManifest(spark_batch.query_id, batch, job.run, deltas, instant)
    write = lambda: manifest.write(job.manifests)  # noqa: E731
    name = steps.measure("batch", "write batch manifest", write, job.manifests.size, **now)
    steps.measure("start", "read batch manifest", lambda: BatchManifest.read(job.manifests, name), **now)
    publish = lambda: protocol.publish_files(job.table, instant, statuses)  # noqa: E731
    steps.measure("batch", "publish the files, under markers", publish, **now)
    pending = Instant(instant, DELTA_COMMIT, State.INFLIGHT)
    steps.measure("rollback", "plan a rollback by markers", lambda: plan_rollback(job.table, pending), **now)
    metadata = steps.measure(
        "batch", "build commit metadata", lambda: commit_metadata(guard, spark_batch, name, statuses), **now
    )
    steps.measure(
        "batch", "write commit metadata as JSON", lambda: metadata.to_bytes(job.table.config.version), len, **now
    )
    look = lambda: guard.before_complete(instant, Outcome(statuses), AddedKeys(any=True))  # noqa: E731
    complete = lambda: protocol.complete(job.table, instant, DELTA_COMMIT, metadata, guard=look)  # noqa: E731
    steps.measure("batch", "complete (JSON, guard, publish, staged files removed)", complete, **now)
    guard.committed(instant)
    steps.measure("batch", "SmallFiles.apply", lambda: job.small_files.apply(statuses), **now)
    steps.measure(
        "batch", "garbage collection of the index, every tenth batch", lambda: job.collect_garbage(batch), **now
    )
    timeline = job.table.timeline()
    newest = timeline.completed_writes[-1]
    steps.measure("start", "read the newest commit", lambda: timeline.metadata(job.table.storage, newest), **now)
    undo(job, made, instant, statuses, Path(job.manifests.where(name)))


def pin_and_read(
    steps: Steps, job: JobContext, spark_batch: SparkBatch, instant: str, groups: Groups, now: dict[str, Any]
) -> None:
    """The write profile: the driver makes and writes it, and every Python worker reads it.

    ``groups``: the file groups (partition path, file id) that the batch before has changed and this batch writes to.
    """
    pinned = Path(job.profiles.where(profile_name(spark_batch.batch_id, job.run)))
    size = lambda _: pinned.stat().st_size  # noqa: E731
    now = {**now, "small_file_groups": sum(map(len, job.small_files.profile().values()))}
    before = set(job.profiles.names(""))
    job.history.sizes = PinnedSizes()
    all_of = lambda _: sum(job.profiles.size(name) for name in set(job.profiles.names("")) - before)  # noqa: E731
    steps.measure("start", "pin the first write profile", lambda: job.pin_profile(spark_batch, instant), all_of, **now)
    pinned.unlink()
    job.small_files.reload(job.table.view(), groups)
    steps.measure("batch", "pin the write profile", lambda: job.pin_profile(spark_batch, instant), size, **now)
    partitions = sorted({partition for partition, _ in groups})

    def read() -> None:
        profile = WriteProfile.from_json(pinned.read_text("utf-8"), storage=job.profiles)
        profile.small_files_of(partitions)

    steps.measure("task", "read the first write profile of a process", read, size, **now)
    steps.measure("task", "read the write profile", read, size, **now)
    job.profiles.delete_many(set(job.profiles.names("")) - before)


def tasks(steps: Steps, job: JobContext, made: sim.Simulated, statuses: list[WriteStatus], now: dict[str, Any]) -> None:
    """The input of each write task: the timeline from the driver, and the folder of every partition that it writes to."""
    packed = pickle.dumps(job.history.timeline)
    unpack = lambda: pickle.loads(packed)  # noqa: E731, S301 -- what Spark does with it
    timeline = steps.measure("task", "unpack the timeline", unpack, lambda _: len(packed), **now)
    view = job.table.view(timeline, made.instants[-1])
    some = statuses[: min(100, len(statuses))]
    groups = [(s.stat.partition_path, s.stat.file_id) for s in some]
    steps.measure("task", f"find the slices of {len(some)} file groups", lambda: slices_of(view, groups), **now)


def every_small(steps: Steps, job: JobContext, made: sim.Simulated) -> None:
    """Pin the write profile when every file group takes inserts, the worst case for a table."""
    job.small_files = new_small_files(2 * sim.FULL_BYTES)
    job.small_files.load(made.table.view())
    spark_batch = read_spark_batch(job.query_folder.files, BATCH, files=False)
    some = [(s.stat.partition_path, s.stat.file_id) for s in sim.touched(made, min(10, steps.size["file_groups"]))]
    pin_and_read(steps, job, spark_batch, made.instants[-1], some, {"touched": None})


def begin(table: HoodieTable, instant: str) -> None:
    """Request the instant."""
    protocol.request(table, instant, DELTA_COMMIT)
    protocol.inflight(table, instant, DELTA_COMMIT)


def commit_metadata(
    guard: TimelineGuard, spark_batch: SparkBatch, manifest: str, statuses: list[WriteStatus]
) -> CommitMetadata:
    """Commit metadata as in the sink."""
    record = CommitRecord(
        "simulated",
        spark_batch.query_id,
        spark_batch.batch_id,
        spark_batch.start_offsets,
        spark_batch.end_offsets,
        manifest,
        guard.follows,
    )
    return CommitMetadata.build(statuses, extra_metadata(record, ""), sim.AVRO)


def undo(job: JobContext, made: sim.Simulated, instant: str, statuses: list[WriteStatus], manifest: Path) -> None:
    """Restore the table and the checkpoint, so that every batch starts from the same state."""
    for state in State:
        job.table.storage.delete(
            f"{job.table.config.timeline_folder}/{Instant(instant, DELTA_COMMIT, state).file_name()}"
        )
    sim.remove_files(made.table, statuses)
    manifest.unlink()
    job.small_files = new_small_files(sim.FULL_BYTES)
    job.small_files.load(made.table.view())
    job.env.lease.release()
    job.env = replace(job.env, lease=LeaseKeeper(made.table.storage, lambda: sim.START_MS))


def new_small_files(limit: int) -> SmallFiles:
    """Small files as the job finds them in a merge-on-read table: groups under ``limit`` bytes take inserts."""
    return SmallFiles(
        FileSizeOptions(limit, limit, record_bytes=1024, trust_share=_TRUST, log_ratio=_LOG_RATIO),
        merge_on_read=True,
        base_only=False,
    )


def make_job(
    table: HoodieTable, folder: Path, layout: StateLayout, labels: tuple[int, ...], small: SmallFiles
) -> JobContext:
    """The job's context without Spark."""
    schema = folder / "event.avsc"
    schema.write_text(sim.AVRO)
    conf = {"bootstrap.servers": "127.0.0.1:9", "hoodie.streamer.source.kafka.topic": sim.TOPIC}
    conf["hoodie.streamer.schemaprovider.source.schema.file"] = str(schema)
    checkpoint = PosixStorage(str(folder / "checkpoint"))
    command = [
        "--source-class",
        "JsonKafkaSource",
        "--target-base-path",
        table.base_path,
        "--checkpoint-dir",
        checkpoint.root,
    ]
    options = load_options([*command, *(w for k, v in conf.items() for w in ("--hoodie-conf", f"{k}={v}"))])
    meta = open_or_create_meta(
        checkpoint,
        shuffle_partitions=64,
        key_groups=len(labels),
        stream_id="simulated",
        ordering="int64",
        global_index=True,
        table_name=table.config.name,
        table_path=table.base_path,
    )
    env = RunEnvironment(
        checkpoint=checkpoint,
        meta=meta,
        writer=WriterOptions(),
        lease=LeaseKeeper(table.storage, lambda: sim.START_MS),
        stop=StopFlag(),
        crash=CrashPlan.from_env(os.environ, os.getpgrp()),
        clock_ms=lambda: sim.START_MS,
        retain_batches=RETAINED,
        lock=TableLock(None, options.lock),
    )
    return JobContext(
        env=env,
        options=options,
        table=table,
        query_folder=QueryFolder(0, checkpoint),
        run=1,
        run_owner="bench",
        layout=layout,
        decode=DecodeSpec.of(table, sim.AVRO, sim.AVRO, global_index=True, files=False),
        avro_json=sim.AVRO,
        small_files=small,
    )


def as_table(lines: list[dict[str, Any]]) -> Table:
    """A row per step: median, least and greatest of the runs."""
    one = lines[0]
    title = "{file_groups:,} file groups, {files:,} files, {partitions:,} partitions, {key_groups:,} key groups, "
    title += "{instants:,} commits"
    table = Table(
        "when",
        "step",
        "touched",
        "small",
        "s (median)",
        "least",
        "greatest",
        "cpu s",
        "bytes",
        title=title.format(**one),
    )
    rows: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for line in lines:
        rows.setdefault(tuple(line.get(k) for k in ("when", "step", "touched", "small_file_groups")), []).append(line)
    for (when, step, touched, small), found in rows.items():
        seconds = [line["seconds"] for line in found]
        figures = (statistics.median(seconds), min(seconds), max(seconds))
        size = found[0]["bytes"]
        table.add_row(
            when,
            step,
            "" if touched is None else f"{touched:,}",
            "" if small is None else f"{small:,}",
            *(f"{s:.4f}" for s in figures),
            f"{statistics.median(line['cpu_seconds'] for line in found):.4f}",
            "" if size is None else f"{size:,}",
        )
    return table


if __name__ == "__main__":
    main()
