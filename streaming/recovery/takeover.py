"""``C/tagstream/takeover.json``: which generation of the index the checkpoint works on; and where a new query starts.

Written after the generation is complete; a checkpoint without one works on generation 0, the index that began empty.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import SparkSession

from tagstream.streaming.batch.commit_record import STREAMER_KEY, parse
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.errors import CheckpointError, SourceError
from tagstream.streaming.source.topic import EARLIEST, Ends, topic_offsets
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.timeline import Timeline

LOG = logging.getLogger("tagstream")
_FILE = "takeover.json"
_VERSION = 2


@dataclass(frozen=True)
class Takeover:
    """What the generation covers is in its own mark (``state.durable.generation.GenerationMarker.covered``)."""

    generation: int


def read_takeover(checkpoint: str) -> Takeover | None:
    """What the checkpoint works on; None when its index began empty."""
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


def write_takeover(checkpoint: str, takeover: Takeover) -> None:
    """Make it durable, in place of an earlier one."""
    doc = json.dumps({"version": _VERSION, **asdict(takeover)}, indent=1).encode()
    Storage(os.path.join(checkpoint, "tagstream")).replace(_FILE, doc)


def starting_offsets(job: JobContext, spark: SparkSession, timeline: Timeline) -> str | None:
    """Where the newest commit of this stream (ours or HoodieStreamer's) ended, as Spark's JSON; None for files.

    None, too, where no commit tells, with a warning. Spark wants every partition of the topic named: those that the commit
    does not know are read from their beginning. SourceError when the topic does not go as far as it was read.
    """
    if job.options.source_class != "kafka" or job.options.bootstrap_only:
        return None
    topic = job.options.kafka_topic
    assert topic is not None
    read = _read_up_to(job, timeline, topic)
    if read is not None:
        there = topic_offsets(spark, topic, job.options.kafka_options)
        return json.dumps({topic: {str(p): at for p, at in _resumed(job, topic, read, there).items()}})
    LOG.warning(
        "no commit of table %s tells how far stream %s was read: reading from %s",
        job.table.base_path,
        job.meta.stream_id,
        job.options.starting_offsets,
    )
    return None


def _read_up_to(job: JobContext, timeline: Timeline, topic: str) -> dict[int, int] | None:
    """Next offset of every partition after the newest commit of the stream; None where no commit tells."""
    for instant in reversed(timeline.completed_writes):
        extra = timeline.metadata(job.table.storage, instant).extra
        record = parse(extra)
        if record is not None and record.stream_id == job.meta.stream_id:
            if topic not in record.end_offsets:
                raise SourceError(
                    f"stream {record.stream_id} of table {job.table.base_path} has read topic "
                    f"{', '.join(record.end_offsets)}, the job reads {topic}: correct hoodie.streamer.source.kafka.topic, "
                    "or give the new stream a name of its own (hoodie.datasource.write.streaming.checkpoint.identifier)"
                )
            return {int(p): int(offset) for p, offset in record.end_offsets[topic].items()}
        name, *parts = extra.get(STREAMER_KEY, "").split(",")
        if record is None and parts and name == topic:
            return {int(p): int(offset) for p, _, offset in (part.partition(":") for part in parts)}
    return None


def _resumed(job: JobContext, topic: str, read: Mapping[int, int], there: Mapping[int, Ends]) -> dict[int, int]:
    """Where each partition of the topic is read on: what was not read before, and what was lost, from its beginning."""
    lost = dict.fromkeys(sorted(read.keys() - there.keys()), "is there no more")
    for p in sorted(read.keys() & there.keys()):
        if read[p] > there[p].latest:
            lost[p] = f"ends at {there[p].latest}, and was read up to {read[p]}"
        elif read[p] < there[p].earliest:
            lost[p] = f"begins at {there[p].earliest}, and was read up to {read[p]}"
    if lost:
        what = (
            f"table {job.table.base_path} has read topic {topic} further than it goes now: "
            f"{'; '.join(f'partition {p} {why}' for p, why in lost.items())}. It was made anew, or its records have expired"
        )
        if job.options.fail_on_data_loss:
            raise SourceError(
                f"{what}. Put the records back, or accept that what was not read is lost with "
                "hoodie.streamer.source.kafka.enable.failOnDataLoss=false: the partitions are then read from their beginning"
            )
        LOG.warning("%s. They are read from their beginning", what)
    new = sorted(there.keys() - read.keys())
    if new:
        LOG.info("topic %s has new partitions (%s): read from their beginning", topic, ", ".join(map(str, new)))
    return {p: EARLIEST if p in lost or p not in read else read[p] for p in sorted(there)}
