"""Dead letters: each batch's bad records are delivered to a topic or an error table once its commit is there.

The quarantine has them first, and keeps them. A mark, ``<quarantine>/delivered/<batch>``, says which batches are
delivered. What was not delivered because a process died, or because the target refused it, is delivered after the
next batch or at the next start.

The dead-letter topic gets key, value and headers unchanged, and headers that name the source and the error.

``--replay-quarantine`` sends bad records of batches that are done once more to their topic, when the error is
corrected. A mark, ``<quarantine>/resent/<batch>``, says which batches were sent. A process that dies between
sending and its mark sends a batch again at the next start, which changes no row: the events have the same order.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyspark.sql import SparkSession

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.quarantine import Letter, Taker, letters_of, quarantined_batches
from tagstream.streaming.batch.spark_checkpoint import newest_batch, query_id
from tagstream.streaming.errors import DeadLetterError, StopRequested
from tagstream.streaming.job.error_table import WAIT_MS, ErrorTable

PREFIX = "tagstream."
_ROWS = "key binary, value binary, headers array<struct<key: string, value: binary>>"
Headers = Sequence[tuple[str, bytes | None]]


def send(
    spark: SparkSession,
    rows: Sequence[tuple[bytes | None, bytes | None, Headers]],
    topic: str,
    kafka_options: Mapping[str, str],
) -> None:
    """Send records (key, value, headers) to a topic through Spark's connector; the broker has them when it returns."""
    writer = spark.createDataFrame(rows, _ROWS).write.format("kafka").options(**kafka_options)
    writer.option("topic", topic).option("includeHeaders", "true").save()


@dataclass(frozen=True)
class DeadLetterTopic:
    """``topic`` is written through Spark's connector with ``kafka_options``, the source's own. A letter may come twice when
    a process dies or another query reads the source again: its header ``tagstream.id`` is the same then."""

    spark: SparkSession
    topic: str
    kafka_options: Mapping[str, str]
    target: str

    def take(self, letters: list[Letter], _batch: str) -> None:
        """Send all of them, and wait until the broker has them."""
        rows = [(letter.key, letter.value, self._headers(letter)) for letter in letters]
        send(self.spark, rows, self.topic, self.kafka_options)

    def _headers(self, letter: Letter) -> list[tuple[str, bytes | None]]:
        told = {
            "id": letter.ident,
            "table": self.target,
            "source": letter.source,
            "partition": letter.partition,
            "offset": letter.offset,
            "reason": letter.reason,
        }
        return [
            *letter.headers,
            *((PREFIX + name, str(value).encode()) for name, value in told.items() if value is not None),
        ]


LOG = logging.getLogger("tagstream")
RESENT = "resent"


def resend(job: JobContext, spark: SparkSession) -> int:
    """How many records were sent: with their keys, values and headers, to the partition that their keys give."""
    done = newest_batch(job.root.files, "commits")
    if done is None or job.options.kafka_topic is None:
        return 0
    marks, sent = set(job.quarantine.names(RESENT)), 0
    for batch in quarantined_batches(job.quarantine):
        if batch > done or str(batch) in marks:
            continue
        rows = [
            (letter.key, letter.value, letter.headers)
            for letter in letters_of(job.quarantine, batch, "", job.table.base_path)
            if letter.source == job.options.kafka_topic
        ]
        if rows:
            send(spark, rows, job.options.kafka_topic, job.options.kafka_options)
        with suppress(FileExistsError):
            job.quarantine.write_new(f"{RESENT}/{batch}", b"")
        sent += len(rows)
    LOG.info("%s bad records were sent to topic %s again", f"{sent:,}", job.options.kafka_topic)
    return sent


DELIVERED = "delivered"
SHORT_WAIT_MS = 5_000  # where letters may be left for later: the stream waits meanwhile


class Delivery:
    """What a run does with bad records beside keeping them; nothing where ``takers`` are none."""

    def __init__(self, job: JobContext, takers: Sequence[Taker], *, may_fail: bool) -> None:
        self._job = job
        self._takers = takers
        self._may_fail = may_fail

    @staticmethod
    def open(job: JobContext, spark: SparkSession) -> Delivery:
        """As the options say; what an earlier run has left is delivered at once."""
        told = job.options.dead_letters
        name = job.table.config.name
        takers: list[Taker] = []
        if told.base_path is not None:
            takers.append(
                ErrorTable(
                    told.base_path,
                    told.table_name or f"{name}_errors",
                    job.table.config.version,
                    name,
                    job.env.clock_ms,
                    job.env.stop.wait,
                    SHORT_WAIT_MS if told.may_fail else WAIT_MS,
                )
            )
        if told.topic is not None:
            takers.append(DeadLetterTopic(spark, told.topic, job.options.kafka_options, name))
        delivery = Delivery(job, takers, may_fail=told.may_fail)
        done = newest_batch(job.root.files, "commits")
        if done is not None:
            delivery.after_batch(done)
        if job.options.replay_quarantine:
            resend(job, spark)
        return delivery

    def after_batch(self, batch_id: int) -> None:
        """Deliver what no earlier call has, up to this batch. DeadLetterError when it is not taken, unless that may be."""
        if not self._takers:
            return
        job = self._job
        quarantine, query = job.quarantine, query_id(job.root.files) or ""
        marks = set(quarantine.names(DELIVERED))
        for batch in quarantined_batches(quarantine):
            if batch > batch_id or str(batch) in marks:
                continue
            letters = list(letters_of(quarantine, batch, query, job.table.base_path))
            try:
                for taker in self._takers:
                    if letters:
                        taker.take(letters, f"{query}.{batch}")
            except StopRequested:
                raise
            except Exception as e:
                text = f"{len(letters)} bad records of batch {batch} were not taken as dead letters: {_first_line(e)}"
                if not self._may_fail:
                    raise DeadLetterError(
                        f"{text}. They are in the quarantine, and the next start delivers them; with "
                        "hoodie.errortable.write.failure.strategy=LOG_ERROR the job goes on meanwhile"
                    ) from e
                LOG.warning("%s; tried again after the next batch", text)
                return
            with suppress(FileExistsError):
                quarantine.write_new(f"{DELIVERED}/{batch}", b"")


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
