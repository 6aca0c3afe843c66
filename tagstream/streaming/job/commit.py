"""The driver's steps of a batch's commit, from the results of the batch's tasks.

``streaming.job.sink`` has the order of the steps. On a remote store, independent steps run in parallel. On a local disk
they run one after another.

The first batch may also determine how many folders deep the table's partitions are (``partitionDepth``). Without url
encoding, a value with slashes ("2026/01/05") makes several folders. Readers that list folders do not find a partition
inside the folder of another one, so all partitions must have the same depth. It is the depth of the newest commit; for
a new table, the depth of most records of the first batch. The decoder rejects records with another depth. Only the
first batch is checked after it was written.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from tagstream.bootstrap import deleted_keys
from tagstream.state.batch_manifest import BatchManifest
from tagstream.streaming.batch import added_keys
from tagstream.streaming.batch.added_keys import AddedKeys
from tagstream.streaming.batch.commit_record import CommitRecord, extra_metadata
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.located import ADDED_KEYS, DELETED_KEYS
from tagstream.streaming.batch.spark_checkpoint import SparkBatch, streamer_checkpoint
from tagstream.streaming.batch.write import INDEX_STATUS, QUARANTINE_STATUS, TAG_STATUS, WRITE_STATUS
from tagstream.streaming.errors import PartitionDepthError
from tagstream.table.keys.keys import depth_of
from tagstream.table.steps import Step
from tagstream.table.storage.storage import at_once
from tagstream.table.timeline.commit_metadata import CommitMetadata, WriteStatus
from tagstream.table.timeline.timeline import FileGroupId
from tagstream.table.write import commit as protocol
from tagstream.table.write.markers import forget_staged, stage


@dataclass
class Outcome:
    """The results of all tasks of a batch.

    ``statuses``: write statuses. ``deltas``: the delta name of each key group that changed. ``counts``: records by
    kind. ``groups``: the sizes of the changed key groups' stores. ``written``: packed rows for an index that the driver
    updates. ``replaced``: file ids, by partition, of the file groups that an overwrite replaces. ``deleted``: deleted
    keys for other streams (``bootstrap.deleted_keys``). ``added``: added keys, also for them (``batch.added_keys``).
    """

    statuses: list[WriteStatus] = field(default_factory=list)
    deltas: dict[int, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    groups: dict[int, dict[str, int]] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    replaced: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, answers: Iterable[tuple[str, Any]], *, replay: bool) -> Outcome:
        """Collect the results from the rows (kind, payload) of the batch's action."""
        outcome = cls()
        for kind, payload in answers:
            if kind == WRITE_STATUS:
                outcome.statuses.append(WriteStatus.from_json(payload))
            elif kind == TAG_STATUS:
                outcome._add_group(json.loads(payload), replay=replay)
            elif kind == QUARANTINE_STATUS:
                outcome.counts["quarantined"] += json.loads(payload)["records"]
            elif kind == INDEX_STATUS:
                outcome.written.append(payload)
        outcome.statuses.sort(key=lambda s: s.stat.path)
        return outcome

    @property
    def file_groups(self) -> frozenset[FileGroupId]:
        """All file groups that the batch writes to or replaces: what another writer does to one is a conflict."""
        replaced = ((partition, file_id) for partition, ids in self.replaced.items() for file_id in ids)
        return frozenset([*((s.stat.partition_path, s.stat.file_id) for s in self.statuses), *replaced])

    def _add_group(self, tagged: dict[str, Any], *, replay: bool) -> None:
        label, stats = int(tagged["group"]), tagged["stats"]
        if tagged["delta"] is not None:
            self.deltas[label] = tagged["delta"]
        if (deleted := stats.pop(DELETED_KEYS, None)) is not None:
            self.deleted.append(deleted)
        if (added := stats.pop(ADDED_KEYS, None)) is not None:
            self.added.append(added)
        size = {k: stats.pop(k) for k in ("live_keys", "tombstones", "bytes")}
        if stats["records"] and not replay:  # otherwise the store was not opened
            self.groups[label] = size
        self.counts.update(stats)


def find_depth(job: JobContext) -> None:
    """Set the partition depth of the newest commit. Without such a commit, a depth of an earlier batch of this run
    remains.
    """
    if not job.decode.depth_is_open:
        return
    timeline, fields = job.table.timeline(), job.decode.key_generator_rules.least_depth
    for instant in reversed(timeline.completed_writes):
        paths = timeline.metadata(job.table.storage, instant).stats
        found = [depth for path in paths if (depth := depth_of(path, fields)) is not None]
        if found:
            job.history.partition_depth = found[0]
            return


def settle_depth(job: JobContext, statuses: Sequence[WriteStatus], roll_back: Callable[[str], None]) -> None:
    """Set the partition depth of a table's first batch. With several depths, roll the batch back and raise
    PartitionDepthError.

    Called before its files are published: a new partition would hide the partitions below its folder. When the batch is
    processed again, the depth of most records counts, and the decoder rejects the others.
    """
    if job.history.partition_depth is not None or not job.decode.depth_is_open:
        return
    fields = job.decode.key_generator_rules.least_depth
    records: Counter[int] = Counter()
    examples: dict[int, str] = {}
    for status in statuses:
        path = status.stat.partition_path
        depth = depth_of(path, fields)
        if depth is not None:
            records[depth] += status.stat.num_writes
            examples.setdefault(depth, path)
    if not records:
        return
    most = max(records, key=lambda depth: (records[depth], -depth))
    job.history.partition_depth = most
    if len(records) == 1:
        return
    assert job.history.instant is not None
    roll_back(job.history.instant)
    shown = ", ".join(f"{examples[d]!r} ({d} deep, {records[d]:,} records)" for d in sorted(records))
    raise PartitionDepthError(
        f"the first batch of table {job.table.base_path} has partition paths of different depth: {shown}. Readers do not "
        f"find a partition inside another one. Most records have depth {most}, so it is the table's depth; records with "
        "another depth go to the quarantine"
    )


def begin(job: JobContext, spark_batch: SparkBatch, instant: str) -> None:
    """Run the steps up to ``inflight``. Independent steps run in parallel."""
    crash, batch, storage = job.env.crash, spark_batch.batch_id, job.table.storage

    def pin() -> None:
        job.pin_profile(spark_batch, instant)
        crash.reach(Step.PROFILE_PINNED, batch)

    def request() -> None:
        protocol.request(job.table, instant, job.action)
        crash.reach(Step.REQUESTED, batch)

    def inflight() -> None:
        protocol.inflight(job.table, instant, job.action, job.inflight_metadata(batch), has_markers=True)

    at_once(storage, pin, job.env.lease.check)
    at_once(storage, request, lambda: protocol.begin_files(job.table, instant))
    at_once(storage, inflight, lambda: job.env.lease.beat(instant))
    crash.reach(Step.INFLIGHT, batch)


def keys_added(job: JobContext, outcome: Outcome) -> AddedKeys:
    """The keys that a batch adds to the table, where other streams share it; else only whether it adds any."""
    shared = job.env.lease.is_shared
    if job.options.appends:  # a key may have several rows
        return AddedKeys(False)
    names = ("inserts", "moves", *(("unknown_deletes",) if shared else ()))
    found = job.overwrites or any(outcome.counts[name] for name in names)
    known = shared and job.env.index is None and not job.overwrites
    return AddedKeys(found, added_keys.merged(outcome.added) if known else None)


def publishes_under_lock(job: JobContext) -> bool:
    """Whether data files get their names under the table's lock, after the last check.

    Up to version 7 the name of a log file does not say whether its write is completed. Hudi's compaction and clustering
    plan with the log files that they find, and fail if a batch that loses a conflict removes one. They plan under the
    lock, so they find only those of completed batches.
    """
    return job.env.lock.is_shared and not job.table.config.names_logs_by_commit and job.table.config.is_merge_on_read


def give_names(job: JobContext, instant: str, statuses: Sequence[WriteStatus], batch: int) -> None:
    """Give the data files of a batch their names. Their markers have been written."""
    protocol.publish_announced(job.table, instant, statuses, is_alone=True)
    job.env.crash.reach(Step.FILES_PUBLISHED, batch)


def publish(
    job: JobContext,
    spark_batch: SparkBatch,
    instant: str,
    outcome: Outcome,
    adds: AddedKeys,
    *,
    follows: str,
    after_others: bool,
) -> CommitMetadata:
    """Give the data files their names, unless :func:`publishes_under_lock`. In parallel, write the manifest and stage the
    commit, whose metadata is returned.

    If the commit fails, the written files are never read: only the commit names the manifest. ``adds``: keys that the
    batch adds. ``follows``: digest of the commits that the index covers. ``after_others``: runs that died may have
    written manifests of this batch.
    """
    crash, batch = job.env.crash, spark_batch.batch_id

    def stage_commit() -> CommitMetadata:
        manifest = BatchManifest(
            spark_batch.query_id,
            batch,
            job.run,
            outcome.deltas,
            instant,
            job.position.index_load,
            job.position.catch_up,
        )
        name = manifest.write(job.manifests, after_others=after_others)
        deletes = deleted_keys.write(job.table.storage, instant, outcome.deleted)
        added = None if adds.hashes is None else added_keys.write(job.table.storage, instant, adds.hashes)
        crash.reach(Step.MANIFEST_DURABLE, batch)
        record = CommitRecord(
            stream_id=job.env.meta.stream_id,
            query_id=spark_batch.query_id,
            batch_id=batch,
            start_offsets=spark_batch.start_offsets,
            end_offsets=spark_batch.end_offsets,
            manifest=name,
            follows=follows,
            topic_id=job.topic_id,
            deletes=deletes or None,
            adds=added,
        )
        checkpoint = (
            None if job.options.source.kind == "frame" else streamer_checkpoint(spark_batch, files=job.decode.files)
        )
        metadata = CommitMetadata.build(
            outcome.statuses,
            extra_metadata(record, checkpoint),
            job.decode.stored_json,
            job.options.table.operation,
            outcome.replaced,
        )
        stage(job.table, instant, job.action, metadata)
        return metadata

    try:
        if publishes_under_lock(job):
            return stage_commit()
        _, metadata = at_once(
            job.table.storage, lambda: give_names(job, instant, outcome.statuses, batch), stage_commit
        )
    except Exception:
        forget_staged(job.table, instant, job.action)
        raise
    return cast(CommitMetadata, metadata)
