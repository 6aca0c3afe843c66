"""The source that a checkpoint is bound to: the topic by its id, and the one table of a change stream.

Kafka gives each topic a unique id (brokers from 2.8 on). It is stored in the query's folder and in every commit,
because offsets refer to the records of that topic alone, not to those of a topic that was created again with the same
name. The job asks Kafka for the id at a start, and before each batch is committed.

Where the options of a change stream name no table, the stream reads the first table that it sees. This table is stored
in the checkpoint, in ``C/tagstream/source_table.json``, from the first batch on. An event of another table in the same
topic is then a bad record, and its reason names the table.

Each of these small files of a checkpoint has one value and the version of its format.
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

LOG = logging.getLogger("tagstream")
T = TypeVar("T")
NEW_CHECKPOINT = "restore it, or start with a new checkpoint"
_TOPIC_FILE = "tagstream/source/topic.json"
_TOPIC_VERSION = 1
_TOPIC_CURE = "restore it, or delete it: then a topic that was deleted and created again since is not detected"
_TABLE_FILE = "tagstream/source_table.json"
_TABLE_VERSION = 1
_TABLE_CURE = "restore it, or delete it: the stream then reads the first table that it sees"


def read_kept(
    files: Storage, name: str, version: int, content: Callable[[dict[str, Any]], T], cure: str = NEW_CHECKPOINT
) -> T | None:
    """Read such a file: ``content`` of its document; None where the file is missing.

    CheckpointError where the file cannot be read, with the advice ``cure``, and where its version is not ``version``.
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


def look_at_topic(job: JobContext, spark: SparkSession) -> None:
    """Ask Kafka for the id of the topic that the job reads, if it reads one, and store it in the job."""
    options = job.options
    if options.source.kind == "kafka" and options.kafka.topic is not None and not options.run.bootstrap_only:
        job.topic_id = topic_id(spark, options.kafka.topic, options.kafka.consumer)


def recreated(job: JobContext, before: str | None) -> str | None:
    """The message for a topic that was created again; None where its id is unchanged, or one of the two ids is unknown."""
    if before is None or job.topic_id is None or before == job.topic_id:
        return None
    return (
        f"topic {job.options.kafka.topic} was deleted and created again since stream {job.env.meta.stream_id} read it (id "
        f"{before}, now {job.topic_id}): the offsets in checkpoint and commits belong to the old topic"
    )


def changed_topic(job: JobContext, query_folder: Storage) -> str | None:
    """Why the query in `query_folder` cannot continue: its topic was created again; else None.

    SourceError where that loses records and the options do not accept the loss.
    """
    why = recreated(job, read_topic(query_folder, job.options.kafka.topic))
    if why is None:
        return None
    refuse_loss(job, why)
    return f"{why}. The new topic is read from its beginning"


def refuse_loss(job: JobContext, why: str) -> None:
    """SourceError unless the options accept the loss of unread records of the old topic."""
    if job.options.kafka.fail_on_data_loss:
        raise SourceError(
            f"{why}, and its records that were not read are lost. Restore the old topic, or accept the loss with "
            "hoodie.streamer.source.kafka.enable.failOnDataLoss=false: the new topic is then read from its beginning"
        )


def read_topic(query_folder: Storage, topic: str | None) -> str | None:
    """The id of the topic that the query in `query_folder` reads; None where it is unknown."""
    found: str | None = read_kept(
        query_folder, _TOPIC_FILE, _TOPIC_VERSION, lambda doc: doc["topics"].get(topic), cure=_TOPIC_CURE
    )
    return found


def keep_topic(job: JobContext, query_folder: Storage) -> None:
    """Store the id for the query in `query_folder`."""
    topic = job.options.kafka.topic
    if job.topic_id is not None and read_topic(query_folder, topic) != job.topic_id:
        query_folder.replace(_TOPIC_FILE, to_keep(_TOPIC_VERSION, topics={topic: job.topic_id}))


class TopicWatch:
    """Checks, while the query runs, that the topic was not created again. Close it."""

    def __init__(self, job: JobContext, spark: SparkSession) -> None:
        self._job, self._spark = job, spark
        self._ids: TopicIds | None = None
        if job.topic_id is not None:
            job.hooks.check_topic = self._check

    def _check(self) -> None:
        """TopicChangedError where the topic has another id. When the broker does not answer, the next batch asks again."""
        topic, options = self._job.options.kafka.topic, self._job.options.kafka.consumer
        assert topic is not None, "a job that knows its topic's id has a topic"
        try:
            self._ids = self._ids or TopicIds(self._spark, topic, options)
            now = self._ids.ask()
        except (Py4JError, SourceError):
            return
        if now is not None and now != self._job.topic_id:
            raise TopicChangedError(
                f"topic {topic} was deleted and created again while the stream read it (id "
                f"{self._job.topic_id}, now {now}); the batch was not committed"
            )

    def close(self) -> None:
        """Stop the checks and close the client."""
        self._job.hooks.check_topic = lambda: None
        if self._ids is not None:
            self._ids.close()


def read_table(checkpoint: Storage) -> str | None:
    """The table that the stream reads; None where it has not seen one yet."""
    return read_kept(checkpoint, _TABLE_FILE, _TABLE_VERSION, lambda doc: str(doc["table"]), cure=_TABLE_CURE)


def source_table(checkpoint: Storage, options: Options) -> str | None:
    """The table that the stream reads, or else the table of the record that gave a new table its columns."""
    first = None if options.records.tables or options.source.first_schema is None else options.source.first_schema.table
    return read_table(checkpoint) or first


def keep_table(job: JobContext) -> None:
    """Store the table that the stream reads."""
    pinned = job.decode.format.tables.pinned
    if pinned is not None and not job.options.run.bootstrap_only and read_table(job.env.checkpoint) is None:
        _keep(job.env.checkpoint, pinned)


def take_table(job: JobContext, why: str) -> None:
    """Store the table that a task has seen first, if that is `why` the query ended. The next query reads this table."""
    seen = seen_table(why)
    if seen is None:
        return
    job.decode = job.decode.of_table(_keep(job.env.checkpoint, seen))


def _keep(checkpoint: Storage, table: str) -> str:
    """Store a table, and return the stored one: where two were seen at the same time, only one is stored."""
    create(checkpoint, _TABLE_FILE, to_keep(_TABLE_VERSION, table=table))
    kept = read_table(checkpoint) or table
    LOG.info(
        "the stream reads table %s; an event of another table is a bad record (set tagstream.source.tables to read others)",
        kept,
    )
    return kept
