"""The topic that a stream reads is the one that it has read before, and none that was created again under its name.

Kafka gives each topic an id of its own (brokers from 2.8 on). It is kept in the root of the query and in every commit:
offsets mean records of that topic alone. It is asked for at a start, and before each batch is committed.
"""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.errors import SourceError, TopicChangedError
from tagstream.streaming.recovery.kept import read_kept, to_keep
from tagstream.streaming.source.topic import TopicIds, topic_id
from tagstream.table.storage.storage import Storage

_FILE = "tagstream/source/topic.json"
_VERSION = 1
_CURE = "restore it, or delete it: then nobody notices that the topic was deleted and created again since"


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
        f"topic {job.options.kafka_topic} was deleted and created again since stream {job.meta.stream_id} read it (id "
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
    found: str | None = read_kept(root, _FILE, _VERSION, lambda doc: doc["topics"].get(topic), cure=_CURE)
    return found


def keep_topic(job: JobContext, root: Storage) -> None:
    """Keep the id for the query in `root`."""
    topic = job.options.kafka_topic
    if job.topic_id is not None and read_topic(root, topic) != job.topic_id:
        root.replace(_FILE, to_keep(_VERSION, topics={topic: job.topic_id}))


class TopicWatch:
    """Asks, while the query runs, whether the topic is still the same one. Close it."""

    def __init__(self, job: JobContext, spark: SparkSession) -> None:
        self._job, self._spark = job, spark
        self._ids: TopicIds | None = None
        if job.topic_id is not None:
            job.check_topic = self._check

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
        self._job.check_topic = lambda: None
        if self._ids is not None:
            self._ids.close()
