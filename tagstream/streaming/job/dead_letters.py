"""Dead letters: each batch's bad records are delivered to a topic or an error table after the batch's commit.

The quarantine has them first, and keeps them. A mark, ``<quarantine>/delivered/<batch>``, says which batches are
delivered. If a process died before a delivery, or the target refused it, the delivery is repeated after the next batch
or at the next start.

Messages in the dead-letter topic have the record's key, value and headers unchanged, and more headers that name the
source and the error.

``--replay-quarantine`` sends bad records of finished batches to their topic again, once the error is corrected. A mark,
``<quarantine>/resent/<batch>``, says which batches were sent. A process that dies between sending and its mark sends a
batch again at the next start. That changes no row, because the events have the same ordering values.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyspark.sql import SparkSession

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.quarantine import Letter, LetterTarget, letters_of, quarantined_batches
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
    """Send records (key, value, headers) to a topic through Spark's connector. The broker has them when this returns."""
    writer = spark.createDataFrame(rows, _ROWS).write.format("kafka").options(**kafka_options)
    writer.option("topic", topic).option("includeHeaders", "true").save()


@dataclass(frozen=True)
class DeadLetterTopic:
    """Writes letters to ``topic`` through Spark's connector. ``kafka_options``: those of the source. ``target``: name
    of the table.

    A letter may come twice, when a process dies or another query reads the source again. It then has the same header
    ``tagstream.id``.
    """

    spark: SparkSession
    topic: str
    kafka_options: Mapping[str, str]
    target: str

    def take(self, letters: list[Letter], _batch: str) -> None:
        """Send all letters, and wait until the broker has them."""
        rows = [(letter.key, letter.value, self._headers(letter)) for letter in letters]
        send(self.spark, rows, self.topic, self.kafka_options)

    def _headers(self, letter: Letter) -> list[tuple[str, bytes | None]]:
        facts = {
            "id": letter.ident,
            "table": self.target,
            "source": letter.source,
            "partition": letter.partition,
            "offset": letter.offset,
            "reason": letter.reason,
        }
        return [
            *letter.headers,
            *((PREFIX + name, str(value).encode()) for name, value in facts.items() if value is not None),
        ]


LOG = logging.getLogger("tagstream")
RESENT = "resent"


def resend(job: JobContext, spark: SparkSession) -> int:
    """Send the bad records of finished batches to their topic again. Returns their number.

    They keep their keys, values and headers, and go to the partition that their keys determine.
    """
    done = newest_batch(job.query_folder.files, "commits")
    if done is None or job.options.kafka.topic is None:
        return 0
    marks, sent = set(job.quarantine.names(RESENT)), 0
    for batch in quarantined_batches(job.quarantine):
        if batch > done or str(batch) in marks:
            continue
        rows = [
            (letter.key, letter.value, letter.headers)
            for letter in letters_of(job.quarantine, batch, "", job.table.base_path)
            if letter.source == job.options.kafka.topic
        ]
        if rows:
            send(spark, rows, job.options.kafka.topic, job.options.kafka.consumer)
        with suppress(FileExistsError):
            job.quarantine.write_new(f"{RESENT}/{batch}", b"")
        sent += len(rows)
    LOG.info("%s bad records were sent to topic %s again", f"{sent:,}", job.options.kafka.topic)
    return sent


DELIVERED = "delivered"
SHORT_WAIT_MS = 5_000  # where letters may be delivered later: the stream waits meanwhile


class Delivery:
    """Delivers bad records to ``takers``. ``may_fail``: a failed delivery is a warning and not an error."""

    def __init__(self, job: JobContext, takers: Sequence[LetterTarget], *, may_fail: bool) -> None:
        self._job = job
        self._takers = takers
        self._may_fail = may_fail

    @staticmethod
    def open(job: JobContext, spark: SparkSession) -> Delivery:
        """The delivery that the options ask for. Letters of earlier runs that were not delivered yet are delivered at
        once.
        """
        letter_options = job.options.dead_letters
        name = job.table.config.name
        takers: list[LetterTarget] = []
        if letter_options.base_path is not None:
            takers.append(
                ErrorTable(
                    letter_options.base_path,
                    letter_options.table_name or f"{name}_errors",
                    job.table.config.version,
                    name,
                    job.env.clock_ms,
                    job.env.stop.wait,
                    SHORT_WAIT_MS if letter_options.may_fail else WAIT_MS,
                )
            )
        if letter_options.topic is not None:
            takers.append(DeadLetterTopic(spark, letter_options.topic, job.options.kafka.consumer, name))
        delivery = Delivery(job, takers, may_fail=letter_options.may_fail)
        done = newest_batch(job.query_folder.files, "commits")
        if done is not None:
            delivery.after_batch(done)
        if job.options.run.replay_quarantine:
            resend(job, spark)
        return delivery

    def after_batch(self, batch_id: int) -> None:
        """Deliver all letters up to this batch that are not delivered yet. DeadLetterError when a target refuses them,
        unless a delivery may fail.
        """
        if not self._takers:
            return
        job = self._job
        quarantine, query = job.quarantine, query_id(job.query_folder.files) or ""
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
                text = (
                    f"{len(letters)} bad records of batch {batch} were not delivered as dead letters: {_first_line(e)}"
                )
                if not self._may_fail:
                    raise DeadLetterError(
                        f"{text}. They are in the quarantine, and the next start delivers them; with "
                        "hoodie.errortable.write.failure.strategy=LOG_ERROR the job continues meanwhile"
                    ) from e
                LOG.warning("%s; tried again after the next batch", text)
                return
            with suppress(FileExistsError):
                quarantine.write_new(f"{DELIVERED}/{batch}", b"")


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
