"""Bad records sent to the topic they came from once more, when what was wrong is corrected: ``--replay-quarantine``.

Those of batches that are done, each once: a mark, ``<quarantine>/resent/<batch>``, says which batches were. A process that
dies between sending and its mark sends a batch again at the next start, which changes no row: events of the same order.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from pyspark.sql import SparkSession

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.epoch import newest_batch
from tagstream.streaming.dead_letter.letters import letters_of
from tagstream.streaming.dead_letter.topic import send
from tagstream.streaming.write.quarantine import quarantined_batches

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
