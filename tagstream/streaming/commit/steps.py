"""The driver's steps of a commit whose parts do not all need one another: on a store far away those are done side by side.

Their order is in ``streaming.commit.sink``. On a local disk they come one after another.
"""

from __future__ import annotations

from typing import cast

from tagstream.state.durable.manifest import BatchManifest
from tagstream.streaming.batch.commit_record import CommitRecord, extra_metadata
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.epoch import Epoch, streamer_checkpoint
from tagstream.streaming.commit.outcome import Outcome
from tagstream.streaming.commit.pull import replaced_groups
from tagstream.table.storage.at_once import at_once
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.write import commit as protocol
from tagstream.table.write.staged import forget_staged, stage


def begin(job: JobContext, epoch: Epoch, instant: str) -> None:
    """Up to the step ``inflight``; what does not need the step before it is done beside it."""
    crash, batch, storage = job.crash, epoch.batch_id, job.table.storage

    def pin() -> None:
        job.pin_profile(epoch, instant)
        crash.reach("profile_pinned", batch)

    def request() -> None:
        protocol.request(job.table, instant, job.action)
        crash.reach("requested", batch)

    def inflight() -> None:
        protocol.inflight(job.table, instant, job.action, job.begun_by(batch), has_markers=True)

    at_once(storage, pin, job.lease.check)
    at_once(storage, request, lambda: protocol.begin_files(job.table, instant))
    at_once(storage, inflight, lambda: job.lease.beat(instant))
    crash.reach("inflight", batch)


def publish(
    job: JobContext, epoch: Epoch, instant: str, outcome: Outcome, *, follows: str, after_others: bool
) -> CommitMetadata:
    """Give the data files their names, and beside that write the manifest and stage the commit, which is returned.

    What is written of a commit that comes to nothing is never looked at: the manifest is named by the commit only.
    ``follows``: digest of the commits that the index covers. ``after_others``: runs that died may have left manifests of
    this batch.
    """
    crash, batch = job.crash, epoch.batch_id

    def give_names() -> None:
        protocol.publish_announced(job.table, instant, outcome.statuses, is_alone=True)
        crash.reach("files_published", batch)

    def stage_commit() -> CommitMetadata:
        manifest = BatchManifest(
            epoch.query_id, batch, job.run, outcome.deltas, instant, job.generation, job.index_epoch
        )
        name = manifest.write(job.manifests, after_others=after_others)
        crash.reach("manifest_durable", batch)
        record = CommitRecord(
            stream_id=job.meta.stream_id,
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
