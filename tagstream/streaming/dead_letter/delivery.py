"""Dead letters on their way: each batch's bad records, once its commit is there, to whoever takes them.

The quarantine has them first, and keeps them. A mark, ``<quarantine>/delivered/<batch>``, says which batches are delivered.
What was not because a process died, or because nobody took it, is delivered after the next batch or at the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

from pyspark.sql import SparkSession

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.epoch import newest_batch, query_id
from tagstream.streaming.dead_letter.letters import Taker, letters_of
from tagstream.streaming.dead_letter.resend import resend
from tagstream.streaming.dead_letter.table import WAIT_MS, ErrorTable
from tagstream.streaming.dead_letter.topic import DeadLetterTopic
from tagstream.streaming.errors import DeadLetterError, StopRequested
from tagstream.streaming.write.quarantine import quarantined_batches

LOG = logging.getLogger("tagstream")
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
                    job.clock_ms,
                    job.stop.wait,
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
