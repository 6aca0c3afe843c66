"""What a commit by this writer says about its batch in its extra metadata, and how to find it.

It has three keys: ``_hudi_streaming_sink_checkpoint`` (Hudi's Spark sink), ``deltastreamer.checkpoint.key``
(HoodieStreamer, so that either can continue where the other stopped) and ``tagstream.commit``, which has all that
exactly-once needs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tagstream.streaming.batch.spark_checkpoint import SparkBatch
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import Instant
from tagstream.table.timeline.timeline import Timeline

SINK_KEY = "_hudi_streaming_sink_checkpoint"
STREAMER_KEY = "deltastreamer.checkpoint.key"
COMMIT_KEY = "tagstream.commit"
COMMIT_VERSION = 1
_OPTIONAL = ("topic_id", "deletes", "adds")
_MARKS = (
    COMMIT_KEY.encode(),
    STREAMER_KEY.encode(),
    b"deflate",
)  # the last one: compressed Avro may contain the others


@dataclass(frozen=True)
class CommitRecord:
    """The value of ``tagstream.commit``. ``manifest``: file name of the batch manifest in the checkpoint.

    ``follows``: digest of the completed writes before this commit, which are those that the index has (:func:`digest`).
    ``topic_id``: Kafka's id of the topic that the offsets belong to; None where it is unknown. ``deletes``: number of keys
    in the batch's file of deleted keys (``bootstrap.deleted_keys``), which streams that share the table write. ``adds``:
    the same of added keys (``batch.added_keys``); None where they are not recorded.
    """

    stream_id: str
    query_id: str
    batch_id: int
    start_offsets: Any
    end_offsets: Any
    manifest: str
    follows: str
    topic_id: str | None = None
    deletes: int | None = None
    adds: int | None = None

    def same_batch(self, spark_batch: SparkBatch) -> bool:
        """Whether the batch has the same query, number and offsets, as every replay has.

        The caller must also check that this checkpoint made the commit: a copy of the checkpoint counts the same
        numbers, and offsets of files are numbers as well (``recovery.coverage``).
        """
        return (
            self.query_id == spark_batch.query_id
            and self.batch_id == spark_batch.batch_id
            and self.start_offsets == spark_batch.start_offsets
            and self.end_offsets == spark_batch.end_offsets
        )


def digest(instants: Iterable[str]) -> str:
    """A short hash of a set of instant times. It is equal for equal sets only."""
    return hashlib.sha256(",".join(sorted(instants)).encode()).hexdigest()[:32]


def extra_metadata(record: CommitRecord, streamer_checkpoint: str | None) -> dict[str, str]:
    """The keys that a commit by this writer adds to its extra metadata. HoodieStreamer's key only where it could
    continue from there.

    ``streamer_checkpoint``: value of HoodieStreamer's key, None to leave it out.
    """
    doc = {"version": COMMIT_VERSION, **record.__dict__}
    for name in _OPTIONAL:
        if doc[name] is None:
            del doc[name]
    return {
        SINK_KEY: json.dumps({record.query_id: str(record.batch_id)}),
        **({} if streamer_checkpoint is None else {STREAMER_KEY: streamer_checkpoint}),
        COMMIT_KEY: json.dumps(doc, sort_keys=True),
    }


def parse(extra: Mapping[str, str]) -> CommitRecord | None:
    """The record of a commit by this project; None for a commit of another writer."""
    text = extra.get(COMMIT_KEY)
    if text is None:
        return None
    doc = json.loads(text)
    doc.pop("version", None)
    return CommitRecord(**{k: doc[k] for k in CommitRecord.__dataclass_fields__ if k in doc or k not in _OPTIONAL})


def newest_commit(table: HoodieTable, timeline: Timeline) -> tuple[Instant, CommitRecord | None] | None:
    """The newest completed write and its record (None: of another writer); None for a table without commits."""
    if not timeline.completed_writes:
        return None
    instant = timeline.completed_writes[-1]
    return instant, parse(timeline.metadata(table.storage, instant).extra)


def all_extra_metadata(table: HoodieTable, timeline: Timeline) -> Iterator[tuple[str, Mapping[str, str]]]:
    """(instant, extra metadata) of the table's completed writes, newest first.

    Those of the active timeline come first, then archived ones. Of the archived ones only those are returned that a
    stream may have made.
    """
    for instant in reversed(timeline.completed_writes):
        yield instant.time, timeline.metadata(table.storage, instant).extra
    for action in table.archived_writes():
        data = action.metadata or b""
        if any(text in data for text in _MARKS):
            yield action.time, CommitMetadata.from_bytes(data, f"archived instant {action.time}").extra
