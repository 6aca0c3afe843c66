"""A table and a checkpoint that are very large for the driver, but have no data.

The parts that the driver reads are real: partition folders with their metafiles, file names, the timeline with its commit
files, Spark's offset and commit logs, batch manifests, the index's folders. Files that it never opens have no content: base
files have only their length (holes in the file system); deltas and sorted files of the index are empty. Log files have one
real block, because a rollback reads the blocks of the log files that it finds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa

from tagstream.state.batch_manifest import BatchManifest, DeltaRef
from tagstream.state.checkpoint import MANIFESTS
from tagstream.state.durable_files import FileRef, Pointer
from tagstream.state.layout import StateLayout
from tagstream.state.snapshot_and_deltas import MANIFEST_SUFFIX, SNAPSHOT_VERSION
from tagstream.streaming.batch.commit_record import CommitRecord, digest, extra_metadata
from tagstream.table.file_group.log_file import data_block
from tagstream.table.file_group.names import (
    base_file_name,
    ensure_partition,
    instant_from_ms,
    log_file_name,
    new_file_id,
)
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import MERGE_ON_READ, TableConfig
from tagstream.table.schema.schema import arrow_to_avro, with_meta, with_meta_avro
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.timeline.commit_metadata import CommitMetadata, FileKind, WriteStat, WriteStatus
from tagstream.table.timeline.instant import Instant, State
from tagstream.table.write.markers import staged_path

START_MS = 1_767_225_600_000
SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("amount", pa.float64())])
AVRO = json.dumps(arrow_to_avro(SCHEMA, "event"))
QUERY_ID = "6c1d0b1e-8f1f-4a3e-9d57-0d3f5a0e7c11"
TOPIC, TOPIC_PARTITIONS = "events", 16
MIB = 1 << 20
FULL_BYTES, SMALL_BYTES = 119 * MIB, 60 * MIB
SNAPSHOT_EVERY = 20
_TOKEN = "0-1-1"


@dataclass(frozen=True)
class Group:
    """One simulated file group: a base file and ``logs`` log files."""

    partition: str
    file_id: str
    base_instant: str
    logs: int


@dataclass(frozen=True)
class Simulated:
    """The table, its groups, and the instants of its completed commits, oldest first."""

    table: HoodieTable
    groups: list[Group]
    instants: list[str]


def make_table(
    folder: Path, groups: int, partitions: int, logs: int, instants: int, small_share: float, batches: int
) -> Simulated:
    """A merge-on-read table of ``groups`` file groups. ``small_share`` of the base files have half the full length.

    The newest commit is that of batch ``batches - 1``.
    """
    config = TableConfig(
        name="simulated",
        table_type=MERGE_ON_READ,
        record_key_fields=("id",),
        partition_fields=("part",),
        ordering_fields=("ts",),
        create_schema=AVRO,
    )
    table = HoodieTable.create(str(folder), config, START_MS)
    utc = table.config.timezone_utc
    times = [instant_from_ms(START_MS + 60_000 * (n + 1), utc) for n in range(instants)]
    for p in range(partitions):
        ensure_partition(table.storage, _partition(p), times[0])
    made = []
    every = max(1, round(1 / small_share)) if small_share else groups + 1
    block = log_block(times[-1])
    for n in range(groups):
        group = Group(_partition(n % partitions), new_file_id("simulated", n), times[0], logs)
        base = table.storage.where(f"{group.partition}/{base_file_name(group.file_id, _TOKEN, times[0])}")
        with open(base, "wb") as f:
            f.truncate(SMALL_BYTES if n % every == 0 else FULL_BYTES)
        for version in range(1, logs + 1):
            name = log_file_name(group.file_id, times[0], version, _TOKEN)
            Path(table.storage.where(f"{group.partition}/{name}")).write_bytes(block)
        made.append(group)
    for n, time in enumerate(times):
        follows = digest(times[:n]) if n + 1 == instants else ""  # only the newest one is read
        _commit_files(table, time, batches - instants + n, follows, made[n % groups : n % groups + 10])
    return Simulated(table, made, times)


def log_block(instant: str) -> bytes:
    """A log file's content: one data block of one row."""
    columns = with_meta(SCHEMA)
    row = pa.table([pa.array(["x"] if pa.types.is_string(f.type) else [1], f.type) for f in columns], schema=columns)
    return data_block(row, json.dumps(with_meta_avro(AVRO)), instant, "zstd")


def touched(simulated: Simulated, count: int) -> list[WriteStatus]:
    """The write statuses of a batch that appended to ``count`` file groups."""
    statuses = []
    for group in simulated.groups[:count]:
        name = log_file_name(group.file_id, group.base_instant, group.logs + 1, "0-2-2")
        stat = WriteStat(
            file_id=group.file_id,
            path=f"{group.partition}/{name}",
            partition_path=group.partition,
            prev_commit=group.base_instant,
            num_writes=1,
            num_updates=1,
            file_size=len(name),
            total_write_bytes=len(name),
            log_version=group.logs + 1,
            base_file=base_file_name(group.file_id, _TOKEN, group.base_instant),
            log_files=(name,),
        )
        statuses.append(WriteStatus(stat, FileKind.APPEND, new_group=False))
    return statuses


def write_files(table: HoodieTable, instant: str, statuses: list[WriteStatus]) -> None:
    """Write the files of a batch's tasks: a staged log file for each status."""
    block = log_block(instant)
    for status in statuses:
        path = Path(table.storage.where(staged_path(instant, status.stat.path)))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(block)


def remove_files(table: HoodieTable, statuses: list[WriteStatus]) -> None:
    """Remove the log files of :func:`write_files`."""
    for status in statuses:
        table.storage.delete(status.stat.path)


def make_checkpoint(
    folder: Path, layout: StateLayout, labels: tuple[int, ...], batches: int, instants: list[str]
) -> None:
    """Spark's logs and the index of a stream that has committed ``batches`` batches, all of them still retained.

    Every group has a delta per batch and a snapshot every ``SNAPSHOT_EVERY``. ``instants``: those of the newest batches.
    """
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "tagstream" / "profiles").mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": QUERY_ID}))
    for batch in range(batches + 1):
        add_offsets(folder, batch)
        if batch < batches:
            (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    for label in labels:
        Path(layout.durable.where(layout.deltas_dir(label))).mkdir(parents=True)
        Path(layout.durable.where(layout.snapshots_dir(label))).mkdir(parents=True)
    for batch in range(batches):
        instant = instants[batch - batches] if batch >= batches - len(instants) else ""
        refs = delta_refs(layout, labels, batch)
        BatchManifest(QUERY_ID, batch, 1, refs, instant).write(PosixStorage(str(folder)).below(MANIFESTS))


def add_offsets(folder: Path, batch: int) -> None:
    """Spark's plan of a batch."""
    text = json.dumps(_offsets(batch + 1))
    (folder / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{text}')


def delta_refs(layout: StateLayout, labels: tuple[int, ...], batch: int) -> dict[int, str]:
    """The references of each group's delta of a batch. Missing files are created, empty."""
    return {label: _delta_ref(layout, label, batch).to_json() for label in labels}


def _delta_ref(layout: StateLayout, label: int, batch: int) -> DeltaRef:
    first = batch - batch % SNAPSHOT_EVERY
    snapshot = _snapshot(layout, label, first) if first else None  # of the state before that batch
    deltas = tuple(_file(label, b) for b in range(first, batch + 1))
    Path(layout.durable.where(layout.deltas_dir(label)), deltas[-1].file).touch()
    before = _chain(label, batch - 1) if batch else ""
    return DeltaRef(before, Pointer(0, 0, snapshot, deltas))


def _file(label: int, batch: int) -> FileRef:
    chain = _chain(label, batch)
    return FileRef(batch, chain, f"{batch:012d}-{chain}.sst", 65_536, 0)


def _snapshot(layout: StateLayout, label: int, batch: int) -> FileRef:
    """A snapshot manifest that names eight sorted files, written once."""
    chain = _chain(label, batch)
    name = f"{batch:012d}-{chain[:16]}-{chain[-16:]}{MANIFEST_SUFFIX}"
    folder = Path(layout.durable.where(layout.snapshots_dir(label)))
    files = [[f"{n:06d}.sst", f"{batch:012d}-{_chain(label, n)}.sst", MIB, 0] for n in range(8)]
    doc = {"version": SNAPSHOT_VERSION, "identity": "simulated", "chain": chain, "files": files}
    data = json.dumps(doc, separators=(",", ":")).encode()
    if not (folder / name).exists():
        (folder / name).write_bytes(data)
        for _, stored, _, _ in files:
            (folder / str(stored)).touch()
    return FileRef(batch, chain, name, len(data), 0)


def _chain(label: int, batch: int) -> str:
    return blake2b(f"{label}/{batch}".encode(), digest_size=16).hexdigest()


def _offsets(batches: int) -> dict[str, dict[str, int]]:
    return {TOPIC: {str(p): batches * 1_000 for p in range(TOPIC_PARTITIONS)}}


def _commit_files(table: HoodieTable, time: str, batch: int, follows: str, groups: list[Group]) -> None:
    stats = [
        WriteStatus(WriteStat(g.file_id, f"{g.partition}/{g.file_id}", g.partition), FileKind.MERGE, new_group=False)
        for g in groups
    ]
    manifest = BatchManifest(QUERY_ID, max(batch, 0), 1, {}).name
    record = CommitRecord("simulated", QUERY_ID, batch, _offsets(batch), _offsets(batch + 1), manifest, follows)
    content = CommitMetadata.build(stats, extra_metadata(record, ""), AVRO).to_bytes(table.config.version)
    folder = Path(table.storage.where(table.config.timeline_folder))
    for state in State:
        data = content if state is State.COMPLETED else b""
        (folder / Instant(time, "deltacommit", state).file_name()).write_bytes(data)


def _partition(number: int) -> str:
    return f"p{number:05d}"
