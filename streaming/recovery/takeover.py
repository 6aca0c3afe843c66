"""``tagstream/takeover.json``: which generation of the index the checkpoint works on; and where a new query starts.

Written in the root of the query after the generation is complete; a root without one works on generation 0, the index that
began empty.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from typing import Any

from tagstream.state.durable.root import TAKEOVER
from tagstream.streaming.batch.commit_record import STREAMER_KEY, parse
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.errors import CheckpointError
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.timeline import Timeline

LOG = logging.getLogger("tagstream")
_RESUME = "tagstream/resume.json"
_VERSION = 2
_RESUME_VERSION = 1


@dataclass(frozen=True)
class Takeover:
    """What the generation covers is in its own mark (``state.durable.generation.GenerationMarker.covered``)."""

    generation: int


def read_takeover(root: Storage) -> Takeover | None:
    """What the query works on; None when its index began empty."""
    path = root.where(TAKEOVER)
    try:
        doc: dict[str, Any] = json.loads(root.read(TAKEOVER))
        if doc.pop("version") == _VERSION:
            return Takeover(**doc)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise CheckpointError(f"{path} is damaged ({e!r}); restore it, or start with a new checkpoint") from e
    raise CheckpointError(f"{path} has another version than {_VERSION}; run the program version that wrote it")


def write_takeover(root: Storage, takeover: Takeover) -> None:
    """Make it durable, in place of an earlier one."""
    doc = json.dumps({"version": _VERSION, **asdict(takeover)}, indent=1).encode()
    root.replace(TAKEOVER, doc)


def write_resume(checkpoint: Storage, start_offsets: Any) -> None:
    """Keep where the next query must begin to read: our rows from there on were taken away by another writer."""
    doc = json.dumps({"version": _RESUME_VERSION, "start_offsets": start_offsets}).encode()
    checkpoint.replace(_RESUME, doc)


def forget_resume(checkpoint: Storage) -> None:
    """The query that began there has planned its first batch."""
    checkpoint.delete(_RESUME)


def read_resume(checkpoint: Storage) -> Any:
    """Offsets that the next query must begin at; None where nothing says so."""
    try:
        doc = json.loads(checkpoint.read(_RESUME))
        if doc["version"] == _RESUME_VERSION:
            return doc["start_offsets"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as e:
        raise CheckpointError(f"{checkpoint.where(_RESUME)} is damaged ({e!r}); restore it") from e
    raise CheckpointError(
        f"{checkpoint.where(_RESUME)} has another version than {_RESUME_VERSION}; run the program version that wrote it"
    )


def starting_offsets(job: JobContext, timeline: Timeline) -> str | None:
    """Where the newest commit of this stream (ours or HoodieStreamer's) ended, as Spark's JSON; None for files.

    None, too, where no commit tells, with a warning.
    """
    if job.options.source_class != "kafka" or job.options.bootstrap_only:
        return None
    resume = read_resume(job.checkpoint)
    if resume is not None:
        return json.dumps(resume or "earliest").strip('"')  # {}: the stream's first batch is read again
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
