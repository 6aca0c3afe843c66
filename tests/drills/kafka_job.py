"""A job under drill that reads a topic of a real broker.

What a batch takes is cut by ``--source-limit`` over the topic's partitions, and each commit names the offsets it reached;
the oracle is that of the messages below these offsets, as the broker gives them back to a consumer of the drill's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

import pyarrow as pa

from tests.drills.lost_checkpoint import oracle_of_lost_checkpoints
from tests.drills.stream_job import CountedJob
from tests.support.events import Event, rows
from tests.support.kafka_broker import KafkaBroker
from tests.support.producer import send
from tests.support.topic_log import read_topic

PARTITIONS = 2
SMALL = {
    # Two state partitions and four key groups: a start costs as little as possible.
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "index.key.groups": "4",
    # Files of few rows: most batches begin new file groups, whose ids differ from one attempt at a batch to the next.
    "hoodie.parquet.max.file.size": "32768",
    "hoodie.parquet.small.file.limit": "16384",
}


@dataclass
class KafkaJob(CountedJob):
    """``per_batch`` messages a batch at most. ``log``: what the topic was sent, by partition and offset.

    ``expired``: offsets by partition that the topic forgot before the job had read them. ``losses``: how many batches
    were committed each time the checkpoint was lost.
    """

    broker: KafkaBroker
    topic: str
    per_batch: int
    log: list[list[Event]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    expired: dict[int, set[int]] = field(default_factory=dict)
    losses: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.conf = {**SMALL, **self.conf}
        self.folder.mkdir(parents=True, exist_ok=True)
        self.broker.create_topic(self.topic, PARTITIONS)

    def produce(self, events: Iterable[Event]) -> None:
        """Send events, and read back what the broker made of them: each once, those of a key in their order."""
        events = list(events)
        send(map(self.message_of, events), self.topic, self.broker.python_client())
        new = read_topic(self.broker, self.topic, [len(part) for part in self.log])
        taken = [[self.event_of(*message) for message in part] for part in new]
        for part, more in zip(self.log, taken, strict=True):
            part += more
        assert _by_key(events) == _by_key(chain.from_iterable(taken))

    def message_of(self, event: Event) -> tuple[bytes, bytes | None]:
        """Key and value of an event's message."""
        return event.message()

    def event_of(self, key: str, value: bytes | None) -> Event:
        """The event of a message."""
        return Event.of_message(key, value)

    def source(self) -> tuple[list[str], dict[str, str]]:
        flags = ["--source-class", "JsonKafkaSource", "--source-limit", str(self.per_batch)]
        return flags, {"hoodie.streamer.source.kafka.topic": self.topic, **self.broker.java_client()}

    def reached(self, offsets: Any) -> list[Event]:
        return self._between({}, offsets)

    def expected(self) -> pa.Table:
        if not self.losses:
            return super().expected()
        ends = [{}, *(commit["end_offsets"] for commit in self.commits())]
        batches = [self._between(begin, end) for begin, end in pairwise(ends)]
        keeps = self.table_type == "MERGE_ON_READ"
        return rows(oracle_of_lost_checkpoints(batches, self.losses, logs_keep_deletes=keeps).values())

    def _between(self, begin: Any, end: Any) -> list[Event]:
        out = []
        for part, last in end[self.topic].items():
            first, gone = begin.get(self.topic, {}).get(part, 0), self.expired.get(int(part), set())
            out += [event for n, event in enumerate(self.log[int(part)][:last]) if n >= first and n not in gone]
        return out

    @property
    def sent(self) -> int:
        """Messages in the topic."""
        return sum(map(len, self.log))

    def committed(self) -> int:
        """Messages below the offsets of the newest commit; AssertionError when a batch was skipped or taken twice."""
        done = self.commits()
        if not done:
            return 0
        queries = [c["query_id"] for c in done]
        assert len(set(queries)) == 1 + sum(a != b for a, b in pairwise(queries)) <= 1 + len(self.losses), queries
        for before, commit in pairwise(done):
            if before["query_id"] == commit["query_id"]:
                wanted = (before["batch_id"] + 1, before["end_offsets"])
                assert (commit["batch_id"], commit["start_offsets"]) == wanted, f"{before}, then {commit}"
            else:
                assert commit["batch_id"] == 0, commit
        return sum(done[-1]["end_offsets"][self.topic].values())

    def all_taken(self) -> bool:
        """Every message of the topic is committed."""
        return self.committed() == self.sent


def _by_key(events: Iterable[Event]) -> dict[str, list[Event]]:
    out: dict[str, list[Event]] = {}
    for event in events:
        out.setdefault(event.key, []).append(event)
    return out
