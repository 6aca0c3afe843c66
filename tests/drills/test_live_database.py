"""A database that changes while the job follows it: PostgreSQL, Debezium on Kafka Connect, a broker, kills of the job."""

from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafka import KafkaConsumer, TopicPartition

from tests.drills.conftest import NewDrill
from tests.drills.kafka_job import SMALL
from tests.drills.shop import ALTERED, AVRO, PUBLICATION, Shop
from tests.drills.stream_job import DEADLINE_S, Job
from tests.support import cdc
from tests.support import events as ev
from tests.support.hudi_rs import read_table
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_connect import KafkaConnect
from tests.support.postgres import Postgres
from tests.support.process import Process, wait_for

pytestmark = [pytest.mark.drill, pytest.mark.matrix]

NAME = "live"
TOPIC = f"{NAME}.shop.orders"
KILLS = 3
BEFORE = 200  # orders that the connector's snapshot finds


@dataclass
class LiveJob(Job):
    """A job that follows the orders for ever."""

    broker: KafkaBroker

    def __post_init__(self) -> None:
        schema = self.folder / "orders.avsc"
        self.folder.mkdir(parents=True)
        schema.write_text(json.dumps(AVRO))
        self.conf = {
            **SMALL,
            "tagstream.source.format": "debezium-json",
            "tagstream.schema.evolution": "records",
            "tagstream.debezium.truncate": "delete",
            "hoodie.streamer.schemaprovider.source.schema.file": str(schema),
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "day",
            "hoodie.table.ordering.fields": "",
            "hoodie.compact.inline.max.delta.commits": "5",
            # not as many file groups as the short drills have: they would outgrow the small memory in ten minutes
            "hoodie.parquet.max.file.size": "1048576",
            "hoodie.parquet.small.file.limit": "524288",
            "spark.driver.memory": "768m",
            **self.conf,
        }

    def source(self) -> tuple[list[str], dict[str, str]]:
        flags = ["--source-class", "JsonKafkaSource", "--source-limit", "2000"]
        return flags, {"hoodie.streamer.source.kafka.topic": TOPIC, **self.broker.java_client()}

    def reached(self, offsets: Any) -> list[ev.Event]:
        raise NotImplementedError("the rows are those of the database")

    def taken(self) -> int:
        """Messages below the offsets of the newest commit."""
        done = self.commits()
        return sum(done[-1]["end_offsets"][TOPIC].values()) if done else 0


def sent(broker: KafkaBroker, topic: str) -> int:
    """Messages of a topic of two partitions; 0 where it is not there yet."""
    consumer = KafkaConsumer(**broker.python_client())
    try:
        if topic not in consumer.topics():
            return 0
        return sum(consumer.end_offsets([TopicPartition(topic, p) for p in (0, 1)]).values())
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("version", "table_type", "minutes"),
    [(9, "MERGE_ON_READ", 10), (6, "COPY_ON_WRITE", 3)],
    indirect=["version"],
)
def test_the_table_is_what_select_gives(
    version: int, table_type: str, minutes: float, tmp_path: Path, new_drill: NewDrill
) -> None:
    """Some thousand transactions, six changes of the table, three kills: the rows of SELECT, column by column."""
    with (
        new_drill(
            f"SIGKILL while a database is followed for {minutes} min, version {version}", table_type, KILLS
        ) as drill,
        KafkaBroker(tmp_path / "broker") as broker,
        Postgres(tmp_path / "postgres.log") as database,
        KafkaConnect(tmp_path / "connect", broker) as connect,
    ):
        shop = Shop(database, seed=5)
        shop.open(BEFORE)
        connect.read(database, NAME, PUBLICATION, **{"skipped.operations": "none"})
        wait_for(lambda: sent(broker, TOPIC) >= BEFORE, DEADLINE_S, "the snapshot")
        job = LiveJob(tmp_path / "job", table_type, broker)
        stop = threading.Event()
        trade = Trade(shop, minutes * 60, stop)
        trade.start()
        try:
            for n in range(KILLS):
                with job.start("--continuous") as process:
                    begun = job.taken()
                    until = trade.began + minutes * 60 * (n + 1) / (KILLS + 1)
                    wait_for(lambda: moved_on(job, process, begun, until), DEADLINE_S + minutes * 60, "a commit")  # noqa: B023
                    assert process.returncode is None, process.output()[-6000:]
                    process.kill()
                drill.injected += 1
            with job.start("--continuous") as process:
                trade.join()
                connect.check(NAME)
                marks = shop.mark()
                wait_for(lambda: sent(broker, f"{NAME}.public.mark") >= marks, DEADLINE_S, "the mark")
                wait_for(lambda: ended(process) or job.taken() == sent(broker, TOPIC), DEADLINE_S, "all to be taken")
                assert process.returncode is None, process.output()[-6000:]
        finally:
            stop.set()
            trade.join()
        assert trade.error is None
        assert shop.altered == len(ALTERED)
        log = job.finish()
        assert {*re.findall(r"([\d,]*\d) quarantined", log), *re.findall(r"quarantined ([\d,]*\d)", log)} == {"0"}
        rows = read_table(job.table, meta_columns=False)
        print(
            f"{shop.changes} statements, {sent(broker, TOPIC)} messages, {len(job.commits())} batches, {rows.num_rows} rows"
        )
        drill.comparisons += 1
        drill.expected, drill.found = len(shop.rows()), rows.num_rows
        wrong = cdc.differences(rows.to_pylist(), [cdc.row_of_json(text) for text in shop.rows()], ["id"])
        drill.wrong += len(wrong)
        assert not wrong, wrong[:5]
        assert {"colour", "grade"} <= {*rows.column_names}
        assert rows.schema.field("qty").type == pa.int64()


def moved_on(job: LiveJob, process: Process, begun: int, until: float) -> bool:
    """The time has come, and this run has committed something; or it has ended."""
    return ended(process) or (time.monotonic() > until and job.taken() > begun)


def ended(process: Process) -> bool:
    return process.returncode is not None


class Trade(threading.Thread):
    """The shop's customers, and what went wrong with them."""

    def __init__(self, shop: Shop, seconds: float, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._shop, self._seconds, self._stop_it = shop, seconds, stop
        self.began = time.monotonic()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self._shop.trade(self._seconds, self._stop_it)
        except Exception as error:
            self.error = error
