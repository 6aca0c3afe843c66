"""``C/tagstream/takeover.json``: which generation of the index the checkpoint works on; and where a new query starts.

Written after the generation is complete; a checkpoint without one works on generation 0, the index that began empty.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass
from typing import Any

from tagstream.streaming.batch.commit_record import STREAMER_KEY, parse
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.errors import CheckpointError
from tagstream.table.storage.opening import open_storage
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
    open_storage(os.path.join(checkpoint, "tagstream")).replace(_FILE, doc)


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
