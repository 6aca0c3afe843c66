"""What a commit of ours says about the batch it holds, in its extra metadata, and how it is found again.

Three keys: ``_hudi_streaming_sink_checkpoint`` (Hudi's Spark sink), ``deltastreamer.checkpoint.key`` (HoodieStreamer,
so that either can go on where the other stopped) and ``commit``, which has all that exactly-once needs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tagstream.streaming.batch.spark_checkpoint import Epoch
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import Instant
from tagstream.table.timeline.timeline import Timeline

SINK_KEY = "_hudi_streaming_sink_checkpoint"
STREAMER_KEY = "deltastreamer.checkpoint.key"
COMMIT_KEY = "tagstream.commit"
COMMIT_VERSION = 1
_MARKS = (
    COMMIT_KEY.encode(),
    STREAMER_KEY.encode(),
    b"deflate",
)  # the last: Avro that is compressed may hold the others


@dataclass(frozen=True)
class CommitRecord:
    """The ``commit`` value; ``manifest`` is the batch manifest's file name in the checkpoint.

    ``follows`` is the digest of the completed writes it was committed over: all that the index covers (:func:`digest`).
    ``topic_id``: Kafka's id of the topic that the offsets are of, None where it is not known.
    """

    stream_id: str
    query_id: str
    batch_id: int
    start_offsets: Any
    end_offsets: Any
    manifest: str
    follows: str
    topic_id: str | None = None

    def same_batch(self, epoch: Epoch) -> bool:
        """Same query, number and offsets, which every replay has. This checkpoint must have made the commit, too: a copy
        of it counts the same numbers, and offsets of files are numbers as well (``recovery.coverage``)."""
        return (
            self.query_id == epoch.query_id
            and self.batch_id == epoch.batch_id
            and self.start_offsets == epoch.start_offsets
            and self.end_offsets == epoch.end_offsets
        )


def digest(instants: Iterable[str]) -> str:
    """A short fingerprint of a set of instant times: equal exactly when no commit was added or removed between."""
    return hashlib.sha256(",".join(sorted(instants)).encode()).hexdigest()[:32]


def extra_metadata(record: CommitRecord, streamer_checkpoint: str | None) -> dict[str, str]:
    """The keys that a commit of ours adds to its extra metadata; HoodieStreamer's only where it could go on there."""
    doc = {"version": COMMIT_VERSION, **record.__dict__}
    if record.topic_id is None:
        del doc["topic_id"]
    return {
        SINK_KEY: json.dumps({record.query_id: str(record.batch_id)}),
        **({} if streamer_checkpoint is None else {STREAMER_KEY: streamer_checkpoint}),
        COMMIT_KEY: json.dumps(doc, sort_keys=True),
    }


def parse(extra: Mapping[str, str]) -> CommitRecord | None:
    """The record of a commit of this project; None for other writers' commits."""
    text = extra.get(COMMIT_KEY)
    if text is None:
        return None
    doc = json.loads(text)
    doc.pop("version", None)
    return CommitRecord(**{k: doc[k] for k in CommitRecord.__dataclass_fields__ if k in doc or k != "topic_id"})


def newest_commit(table: HoodieTable, timeline: Timeline) -> tuple[Instant, CommitRecord | None] | None:
    """The newest completed write and our record of it (None: another writer's); None for a table without commits."""
    if not timeline.completed_writes:
        return None
    instant = timeline.completed_writes[-1]
    return instant, parse(timeline.metadata(table.storage, instant).extra)


def all_extra_metadata(table: HoodieTable, timeline: Timeline) -> Iterator[tuple[str, Mapping[str, str]]]:
    """(instant, extra metadata) of the table's completed writes, newest first; those of the active timeline, then archived
    ones, of which only such are given as a stream has made."""
    for instant in reversed(timeline.completed_writes):
        yield instant.time, timeline.metadata(table.storage, instant).extra
    for action in table.archived_writes():
        data = action.metadata or b""
        if any(text in data for text in _MARKS):
            yield action.time, CommitMetadata.from_bytes(data, f"archived instant {action.time}").extra
