"""Which index a run works on: the one in its checkpoint, or, at the first start over a table with rows, one loaded from it.

``C/tagstream/takeover.json`` says which generation was loaded and the digest of the table's commits it covers. Until the
first batch of the new query is committed, that digest is what proves that the index covers the table.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass, replace
from typing import Any

from pyspark.sql import SparkSession

from bootstrap.coverage import CheckpointState, TableCommit, check_coverage
from bootstrap.errors import IndexCoverageError
from state.generation import next_generation
from streaming.bootstrap_load import is_as_asked, load_index
from streaming.commit_record import STREAMER_KEY, digest, newest_commit, parse
from streaming.context import JobContext
from streaming.epoch import newest_batch, query_id
from streaming.errors import CheckpointError
from streaming.timeline_guard import settle
from table.storage import Storage
from table.timeline import Timeline

LOG = logging.getLogger("tagstream")
_FILE = "takeover.json"
_VERSION = 1


@dataclass(frozen=True)
class Takeover:
    """``follows``: digest of the completed writes that generation ``generation`` covers. ``offsets``: Spark's
    ``startingOffsets`` (JSON text) for the new query; None: where the options say.
    """

    generation: int
    follows: str
    offsets: str | None


def cover_table(job: JobContext, spark: SparkSession) -> None:
    """Make sure that the index covers the table, loading it where the checkpoint is new; IndexCoverageError otherwise."""
    state = CheckpointState(
        query_id(job.checkpoint), newest_batch(job.checkpoint, "offsets"), newest_batch(job.checkpoint, "commits")
    )
    timeline = job.table.timeline()
    newest = _newest(job, timeline)
    taken = read_takeover(job.checkpoint)
    ours = newest is not None and newest.query_id is not None and newest.query_id == state.query_id
    if state.finished is None and newest is not None and not ours:
        new = state.planned is None
        if (
            taken is None
            or taken.follows != _digest(timeline)
            or (new and not is_as_asked(job.layout, job.options, taken.generation))
        ):
            taken = _load(job, spark, state)
        if new:  # the index may have been loaded by a run that had no source
            taken = replace(taken, offsets=starting_offsets(job, timeline))
        job.taken_over = taken.follows
    else:
        check_coverage(job.table.base_path, job.checkpoint, newest, state)
    if taken is not None:
        job.generation, job.starting_offsets = taken.generation, taken.offsets


def read_takeover(checkpoint: str) -> Takeover | None:
    """What the checkpoint took over; None when it began with an empty table."""
    path = os.path.join(checkpoint, "tagstream", _FILE)
    try:
        with open(path, encoding="utf-8") as f:
            doc: dict[str, Any] = json.load(f)
        if doc.pop("version") == _VERSION:
            return Takeover(**doc)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise CheckpointError(f"{path} is damaged ({e!r}); restore it, or start with a new checkpoint") from e
    raise CheckpointError(f"{path} has another version than {_VERSION}; run the program version that wrote it")


def _load(job: JobContext, spark: SparkSession, state: CheckpointState) -> Takeover:
    """Load the index from the table as the next generation; nothing has been streamed on this checkpoint yet."""
    path = job.table.base_path
    if not job.options.index_bootstrap_enabled:
        raise IndexCoverageError(
            f"table {path} has rows that the index in {job.checkpoint} does not know, and index.bootstrap.enabled=false: "
            "every one of them would be written a second time. Set it to true, or start with the checkpoint that wrote "
            "the table"
        )
    if state.query_id is None and os.path.isdir(job.manifests_dir) and os.listdir(job.manifests_dir):
        raise CheckpointError(
            f"checkpoint {job.checkpoint} lacks Spark's part but has batches of an earlier query under tagstream/; "
            "remove the whole folder: the index is then loaded from the table"
        )
    if state.planned is not None:
        raise IndexCoverageError(
            f"table {path} has changed between the loading of the index and the first batch of checkpoint {job.checkpoint}; "
            "start with a new checkpoint"
        )
    if not job.options.bootstrap_only:  # which leaves the table as it is, also one that cannot be written
        settle(job)
    timeline = job.table.timeline()
    # Not counted from the takeover file: a death before it was written leaves a generation that the table may have left.
    generation = next_generation(job.layout)
    LOG.info("table %s has rows that the index does not know", path)
    load_index(job, spark, generation)
    taken = Takeover(generation, _digest(timeline), None)
    doc = json.dumps({"version": _VERSION, **asdict(taken)}, indent=1).encode()
    Storage(os.path.join(job.checkpoint, "tagstream")).replace(_FILE, doc)
    return taken


def starting_offsets(job: JobContext, timeline: Timeline) -> str | None:
    """Where the newest commit of this stream (ours or HoodieStreamer's) ended, as Spark's JSON; None for files.

    None, too, where no commit tells, with a warning.
    """
    if job.options.source_class != "kafka" or job.options.bootstrap_only:
        return None
    for instant in reversed(timeline.completed_writes):
        extra = timeline.metadata(job.table.storage, instant).extra
        record = parse(extra)
        if record is not None and record.stream_id == job.meta.stream_id:
            return json.dumps(record.end_offsets)
        topic, *parts = extra.get(STREAMER_KEY, "").split(",")
        if record is None and parts and topic == job.options.kafka_topic:
            return json.dumps({topic: {p: int(o) for p, _, o in (part.partition(":") for part in parts)}})
    LOG.warning(
        "no commit of table %s tells how far stream %s was read: reading from %s",
        job.table.base_path,
        job.meta.stream_id,
        job.options.starting_offsets,
    )
    return None


def _newest(job: JobContext, timeline: Timeline) -> TableCommit | None:
    found = newest_commit(job.table, timeline)
    if found is None:
        return None
    instant, record = found
    if record is None:
        return TableCommit(instant.time, None, None)
    earlier = digest(i.time for i in timeline.completed_writes if i.time != instant.time)
    return TableCommit(instant.time, record.query_id, record.batch_id, alone=record.follows == earlier)


def _digest(timeline: Timeline) -> str:
    return digest(i.time for i in timeline.completed_writes)
