"""The source that a checkpoint is bound to: the topic by its id, and the one table of a stream of changes.

Kafka gives each topic an id of its own (brokers from 2.8 on). It is kept in the root of the query and in every
commit: offsets mean records of that topic alone, not of one that was created again under its name. The id is asked
for at a start, and before each batch is committed.

Where the options of a stream of changes name no table, the stream reads the first table that it has seen. The
table is kept in the checkpoint, at ``C/tagstream/source_table.json``, from the first batch on. An event of another
table, which a topic may have as well, is then bad and named.

Each of these small files of a checkpoint holds one thing, and the version of its format.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.errors import CheckpointError, SourceError, TopicChangedError
from tagstream.streaming.options.options import Options
from tagstream.streaming.source.decode.row_messages import seen_table
from tagstream.streaming.source.kafka_topic import TopicIds, topic_id
from tagstream.table.storage.storage import Storage, create

T = TypeVar("T")
NEW_CHECKPOINT = "restore it, or start with a new checkpoint"


def read_kept(
    files: Storage, name: str, version: int, content: Callable[[dict[str, Any]], T], cure: str = NEW_CHECKPOINT
) -> T | None:
    """What the file holds, by ``content`` of its document; None where it is missing.

    CheckpointError where it cannot be read, with the ``cure``, and where it has another version.
    """
    path = files.where(name)
    try:
        doc: dict[str, Any] = json.loads(files.read(name))
        if doc.pop("version") == version:
            return content(doc)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise CheckpointError(f"{path} is damaged ({e!r}); {cure}") from e
    raise CheckpointError(f"{path} has another version than {version}; run the program version that wrote it")


def to_keep(version: int, **content: Any) -> bytes:
    """The bytes of such a file."""
    return json.dumps({"version": version, **content}).encode()


_TOPIC_FILE = "tagstream/source/topic.json"
_TOPIC_VERSION = 1
_TOPIC_CURE = "restore it, or delete it: then nobody notices that the topic was deleted and created again since"


def look_at_topic(job: JobContext, spark: SparkSession) -> None:
    """Ask for the id of the topic that the job reads, if it reads one."""
    options = job.options
    if options.source_class == "kafka" and options.kafka_topic is not None and not options.bootstrap_only:
        job.topic_id = topic_id(spark, options.kafka_topic, options.kafka_options)


def recreated(job: JobContext, before: str | None) -> str | None:
    """What to say where the topic of another id was read; None where it is the same, or one of the two is not known."""
    if before is None or job.topic_id is None or before == job.topic_id:
        return None
    return (
        f"topic {job.options.kafka_topic} was deleted and created again since stream {job.env.meta.stream_id} read it (id "
        f"{before}, now {job.topic_id}): the offsets in checkpoint and commits are of the old one"
    )


def changed_topic(job: JobContext, root: Storage) -> str | None:
    """Why the query in `root` cannot be continued: its topic was created again. SourceError where that loses records and
    is not accepted."""
    why = recreated(job, read_topic(root, job.options.kafka_topic))
    if why is None:
        return None
    refuse_loss(job, why)
    return f"{why}. The new one is read from its beginning"


def refuse_loss(job: JobContext, why: str) -> None:
    """SourceError unless the loss of what was not read of the old topic is accepted."""
    if job.options.fail_on_data_loss:
        raise SourceError(
            f"{why}, and what was not read of it is lost. Put the old topic back, or accept the loss with "
            "hoodie.streamer.source.kafka.enable.failOnDataLoss=false: the new topic is then read from its beginning"
        )


def read_topic(root: Storage, topic: str | None) -> str | None:
    """The id of the topic that the query in `root` reads; None where it is not known."""
    found: str | None = read_kept(
        root, _TOPIC_FILE, _TOPIC_VERSION, lambda doc: doc["topics"].get(topic), cure=_TOPIC_CURE
    )
    return found


def keep_topic(job: JobContext, root: Storage) -> None:
    """Keep the id for the query in `root`."""
    topic = job.options.kafka_topic
    if job.topic_id is not None and read_topic(root, topic) != job.topic_id:
        root.replace(_TOPIC_FILE, to_keep(_TOPIC_VERSION, topics={topic: job.topic_id}))


class TopicWatch:
    """Asks, while the query runs, whether the topic is still the same one. Close it."""

    def __init__(self, job: JobContext, spark: SparkSession) -> None:
        self._job, self._spark = job, spark
        self._ids: TopicIds | None = None
        if job.topic_id is not None:
            job.hooks.check_topic = self._check

    def _check(self) -> None:
        """TopicChangedError where it is another one. A broker that does not answer is asked again at the next batch."""
        topic, options = self._job.options.kafka_topic, self._job.options.kafka_options
        assert topic is not None, "a job that knows its topic's id has a topic"
        try:
            self._ids = self._ids or TopicIds(self._spark, topic, options)
            now = self._ids.ask()
        except (Py4JError, SourceError):
            return
        if now is not None and now != self._job.topic_id:
            raise TopicChangedError(
                f"topic {topic} was deleted and created again while the stream read it (id "
                f"{self._job.topic_id}, now {now}); nothing of the batch was committed"
            )

    def close(self) -> None:
        """Ask no more."""
        self._job.hooks.check_topic = lambda: None
        if self._ids is not None:
            self._ids.close()


LOG = logging.getLogger("tagstream")
_TABLE_FILE = "tagstream/source_table.json"
_TABLE_VERSION = 1
_TABLE_CURE = "restore it, or delete it: the stream is then of the first table that it sees"


def read_table(checkpoint: Storage) -> str | None:
    """The table that the stream reads; None where it has seen none yet."""
    return read_kept(checkpoint, _TABLE_FILE, _TABLE_VERSION, lambda doc: str(doc["table"]), cure=_TABLE_CURE)


def source_table(checkpoint: Storage, options: Options) -> str | None:
    """The same, or the table of the record that gave a new table its columns."""
    first = None if options.records.tables or options.first_schema is None else options.first_schema.table
    return read_table(checkpoint) or first


def keep_table(job: JobContext) -> None:
    """Keep the table that the stream reads."""
    pinned = job.decode.format.tables.pinned
    if pinned is not None and not job.options.bootstrap_only and read_table(job.env.checkpoint) is None:
        _keep(job.env.checkpoint, pinned)


def take_table(job: JobContext, why: str) -> None:
    """Keep the table that a task has seen, if that is `why` the query has ended; it counts from the next query on."""
    seen = seen_table(why)
    if seen is None:
        return
    job.decode = job.decode.of_table(_keep(job.env.checkpoint, seen))


def _keep(checkpoint: Storage, table: str) -> str:
    """Keep a table, and tell which one it is: of two that were seen at once the one that is kept."""
    create(checkpoint, _TABLE_FILE, to_keep(_TABLE_VERSION, table=table))
    kept = read_table(checkpoint) or table
    LOG.info(
        "the stream reads table %s; an event of another one is a bad record (tagstream.source.tables names others)",
        kept,
    )
    return kept
