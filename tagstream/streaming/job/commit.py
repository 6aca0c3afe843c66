"""The driver's steps of a batch's commit, from what the tasks of the batch sent back.

The order of the steps is in ``streaming.job.sink``. On a store far away, steps that do not need one another are
done at the same time; on a local disk they come one after another.

The first batch may also decide how many folders deep the table's partitions are (``partitionDepth``). Without url
encoding a text with slashes ("2026/01/05") makes several folders. A partition inside another one's folder is not
found by readers that list folders, so all have one depth: that of the newest commit, for a new table that of most
records of the first batch. The decoder finds records with another depth; only the first batch is checked
afterwards.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from tagstream.state.batch_manifest import BatchManifest
from tagstream.streaming.batch.commit_record import CommitRecord, extra_metadata
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.spark_checkpoint import Epoch, streamer_checkpoint
from tagstream.streaming.batch.write import INDEX_STATUS, QUARANTINE_STATUS, TAG_STATUS, WRITE_STATUS
from tagstream.streaming.errors import PartitionDepthError
from tagstream.streaming.job.pull_index import replaced_groups
from tagstream.table.keys.keys import depth_of
from tagstream.table.storage.storage import at_once
from tagstream.table.timeline.commit_metadata import CommitMetadata, WriteStatus
from tagstream.table.write import commit as protocol
from tagstream.table.write.markers import forget_staged, stage


@dataclass
class Outcome:
    """Of all tasks.

    ``deltas``: the name of the delta of each key group that changed. ``groups``: the sizes of their stores. ``written``:
    packed rows for an index that is told by the driver.
    """

    statuses: list[WriteStatus] = field(default_factory=list)
    deltas: dict[int, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    groups: dict[int, dict[str, int]] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, answers: Iterable[tuple[str, Any]], *, replay: bool) -> Outcome:
        """From the rows (kind, payload) of the batch's action."""
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

    def _add_group(self, tagged: dict[str, Any], *, replay: bool) -> None:
        label, stats = int(tagged["group"]), tagged["stats"]
        if tagged["delta"] is not None:
            self.deltas[label] = tagged["delta"]
        size = {k: stats.pop(k) for k in ("live_keys", "tombstones", "bytes")}
        if stats["records"] and not replay:  # else the store was not opened
            self.groups[label] = size
        self.counts.update(stats)


def find_depth(job: JobContext) -> None:
    """Note the depth that the newest commit tells; one that an earlier batch of this run told stays."""
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
    """Note the depth of a table's first batch. Where it has several, it is rolled back and PartitionDepthError raised.

    Before its files are published: a partition that is made would hide what is below its folder.
    When the batch is done again, the depth of most records counts and the decoder takes the others out.
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
        f"find a partition inside another: {most} is the table's depth, as most records have it, the others are "
        "quarantined"
    )


def begin(job: JobContext, epoch: Epoch, instant: str) -> None:
    """Up to the step ``inflight``; what does not need the step before it is done beside it."""
    crash, batch, storage = job.env.crash, epoch.batch_id, job.table.storage

    def pin() -> None:
        job.pin_profile(epoch, instant)
        crash.reach("profile_pinned", batch)

    def request() -> None:
        protocol.request(job.table, instant, job.action)
        crash.reach("requested", batch)

    def inflight() -> None:
        protocol.inflight(job.table, instant, job.action, job.begun_by(batch), has_markers=True)

    at_once(storage, pin, job.env.lease.check)
    at_once(storage, request, lambda: protocol.begin_files(job.table, instant))
    at_once(storage, inflight, lambda: job.env.lease.beat(instant))
    crash.reach("inflight", batch)


def publish(
    job: JobContext, epoch: Epoch, instant: str, outcome: Outcome, *, follows: str, after_others: bool
) -> CommitMetadata:
    """Give the data files their names, and beside that write the manifest and stage the commit, which is returned.

    What is written of a commit that comes to nothing is never looked at: the manifest is named by the commit only.
    ``follows``: digest of the commits that the index covers. ``after_others``: runs that died may have left manifests of
    this batch.
    """
    crash, batch = job.env.crash, epoch.batch_id

    def give_names() -> None:
        protocol.publish_announced(job.table, instant, outcome.statuses, is_alone=True)
        crash.reach("files_published", batch)

    def stage_commit() -> CommitMetadata:
        manifest = BatchManifest(
            epoch.query_id, batch, job.run, outcome.deltas, instant, job.position.generation, job.position.epoch
        )
        name = manifest.write(job.manifests, after_others=after_others)
        crash.reach("manifest_durable", batch)
        record = CommitRecord(
            stream_id=job.env.meta.stream_id,
            query_id=epoch.query_id,
            batch_id=batch,
            start_offsets=epoch.start_offsets,
            end_offsets=epoch.end_offsets,
            manifest=name,
            follows=follows,
            topic_id=job.topic_id,
        )
        checkpoint = None if job.options.source_class == "frame" else streamer_checkpoint(epoch, files=job.decode.files)
        metadata = CommitMetadata.build(
            outcome.statuses,
            extra_metadata(record, checkpoint),
            job.decode.stored_json,
            job.options.op,
            replaced_groups(job, outcome.statuses),
        )
        stage(job.table, instant, job.action, metadata)
        return metadata

    try:
        _, metadata = at_once(job.table.storage, give_names, stage_commit)
    except Exception:
        forget_staged(job.table, instant, job.action)
        raise
    return cast(CommitMetadata, metadata)
