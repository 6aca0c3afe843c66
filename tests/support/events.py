"""Keyed change events, seeded, with everything that goes wrong in a stream; and the final rows they must lead to.

The oracle knows nothing of tables or indexes: per key, the last event by (ordering value, position) decides.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.table_version import write_properties

AVRO_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "event",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "part", "type": ["null", "string"], "default": None},
        {"name": "ts", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "amount", "type": ["null", "double"], "default": None},
        {"name": "_hoodie_is_deleted", "type": "boolean", "default": False},
    ],
}
ARROW_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.string()),
        ("ts", pa.int64()),
        ("name", pa.string()),
        ("amount", pa.float64()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)


def properties(own: Mapping[str, Any] | None = None) -> dict[str, str]:
    """The properties of a job that makes a table of these events. ``own``: those of the test, which come on top."""
    return {
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.table.ordering.fields": "ts",
        **write_properties(own),
    }


@dataclass(frozen=True, slots=True)
class Event:
    """One change. A Kafka tombstone has no ordering value, no partition and no fields."""

    key: str
    partition: str | None
    ordering: int | None
    deleted: bool = False
    name: str | None = None
    amount: float | None = None

    @property
    def is_tombstone(self) -> bool:
        """A message with a key and no value."""
        return self.ordering is None

    @staticmethod
    def of_message(key: str, value: str | bytes | None) -> Event:
        """The event a message carries."""
        if value is None:
            return Event(key, None, None, deleted=True)
        row = json.loads(value)
        return Event(row["id"], row["part"], row["ts"], row["_hoodie_is_deleted"], row["name"], row["amount"])

    def row(self) -> dict[str, Any]:
        """Fields by name, as the Avro schema has them."""
        return {
            "id": self.key,
            "part": self.partition,
            "ts": self.ordering,
            "name": self.name,
            "amount": self.amount,
            "_hoodie_is_deleted": self.deleted,
        }

    def message(self) -> tuple[bytes, bytes | None]:
        """Kafka message: key and value, the value None for a tombstone."""
        return self.key.encode(), None if self.is_tombstone else json.dumps(self.row()).encode()


@dataclass(frozen=True)
class Mix:
    """What a generated stream is made of. Shares are of events; what is left over are inserts and plain updates."""

    keys: int = 200
    partitions: int = 5
    moves: float = 0.2  # an update in another partition; several in a row make the chains p1 -> p2 -> p3
    chains: float = 0.02  # two or three moves of one key at once, so that they fall in one batch
    late: float = 0.08  # an upsert older than the key's newest event, often in another partition
    deletes: float = 0.06
    late_deletes: float = 0.03
    deletes_without_partition: float = 0.03
    tombstones: float = 0.0  # only a Kafka topic can carry them
    duplicates: float = 0.05  # an earlier event of the key once more, byte for byte
    equal_ordering: float = 0.03  # other fields, same ordering value: the later position wins


def generate(count: int, mix: Mix = Mix(), *, seed: int) -> Iterator[Event]:
    """`count` events in the order they are sent. The same arguments give the same events."""
    rng = random.Random(seed)
    kinds = ["moves", "chains", "late", "deletes", "late_deletes", "deletes_without_partition", "tombstones"]
    kinds += ["duplicates", "equal_ordering"]
    weights = [getattr(mix, kind) for kind in kinds]
    rest = max(0.0, 1.0 - sum(weights))
    return islice(_endless(rng, mix, [*kinds, "updates"], [*weights, rest]), count)


def _endless(rng: random.Random, mix: Mix, kinds: list[str], weights: list[float]) -> Iterator[Event]:
    newest: dict[str, Event] = {}  # per key, the event with the greatest ordering value so far
    clock = 1_000
    while True:
        clock += rng.randint(1, 9)
        key = f"k{rng.randrange(mix.keys):07d}"
        last = newest.get(key)
        kind = rng.choices(kinds, weights)[0]
        fresh = Event(key, _partition(rng, mix), clock, name=f"n{clock}", amount=rng.randrange(10_000) / 4)
        if last is None:  # what needs a predecessor becomes an insert; deletes of unknown keys stay deletes
            made = [replace(fresh, deleted=True)] if kind == "deletes" else [fresh]
        else:
            made = _of_kind(kind, fresh, last, rng, mix)
        for event in made:
            before = newest.get(key)
            if event.ordering is not None and (before is None or event.ordering >= (before.ordering or 0)):
                newest[key] = event
                clock = max(clock, event.ordering)
            yield event


def _of_kind(kind: str, fresh: Event, last: Event, rng: random.Random, mix: Mix) -> list[Event]:
    """Events of a kind for a key whose newest event is `last`; `fresh` is newer than all and in some partition."""
    assert fresh.ordering is not None and last.ordering is not None
    older = max(0, last.ordering - rng.randint(1, 500))
    made: list[Event]
    match kind:
        case "moves":
            made = [fresh]
        case "chains":
            hops = [replace(fresh, partition=_partition(rng, mix), ordering=fresh.ordering + n) for n in range(3)]
            made = [replace(hop, name=f"n{hop.ordering}") for hop in hops]
        case "late":
            made = [replace(fresh, ordering=older, name=f"late{older}")]
        case "deletes":
            made = [replace(fresh, partition=last.partition, deleted=True)]
        case "late_deletes":
            made = [replace(fresh, ordering=older, deleted=True)]
        case "deletes_without_partition":
            made = [replace(fresh, partition=None, deleted=True)]
        case "tombstones":
            made = [Event(fresh.key, None, None, deleted=True)]
        case "duplicates":
            made = [last]
        case "equal_ordering":
            made = [replace(fresh, ordering=last.ordering)]
        case _:
            # After a delete that named no partition the key is somewhere again.
            made = [replace(fresh, partition=last.partition or fresh.partition)]
    return made


def _partition(rng: random.Random, mix: Mix) -> str:
    return f"p{rng.randrange(mix.partitions)}"


def oracle(events: Iterable[Event], *, global_index: bool = True) -> dict[Any, Event]:
    """Live rows by key, or by (partition, key) with a non-global index.

    An event counts when its ordering value is not below the greatest one of its key so far: the same as taking the last
    event by (ordering value, position). A tombstone has none and takes the greatest so far.
    """
    last: dict[Any, tuple[int, Event]] = {}
    for event in events:
        identity = event.key if global_index else (event.partition, event.key)
        greatest = last[identity][0] if identity in last else -(2**63)
        ordering = greatest if event.ordering is None else event.ordering
        if ordering >= greatest:
            last[identity] = (ordering, event)
    return {identity: event for identity, (_, event) in last.items() if not event.deleted}


def rows(live: Iterable[Event]) -> pa.Table:
    """Rows as a table, sorted by key and partition."""
    table = pa.Table.from_pylist([event.row() for event in live], schema=ARROW_SCHEMA)
    return table.sort_by([("id", "ascending"), ("part", "ascending")])


def write_files(events: Iterable[Event], folder: Path, per_file: int, *, first: int = 0) -> list[Path]:
    """JSON files of `per_file` events, in order: names and modification times (a second apart) both rise.

    `first` numbers the first file, to add files later. A tombstone can't be in a file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    stream = iter(events)
    while chunk := list(islice(stream, per_file)):
        if any(event.is_tombstone for event in chunk):
            raise ValueError("a file can't carry a Kafka tombstone")
        number = first + len(paths)
        text = "".join(json.dumps(event.row()) + "\n" for event in chunk)
        paths.append(write_event_file(folder, number, text, modified=1_600_000_000 + number))
    return paths


def write_event_file(folder: Path, number: int, text: str, *, modified: int) -> Path:
    """One file of events, visible only when whole and with its modification time (epoch seconds) set."""
    path = folder / f"events-{number:05d}.json"
    hidden = folder / f".{path.name}.tmp"
    hidden.write_text(text, "utf-8")
    os.utime(hidden, (modified, modified))
    hidden.rename(path)
    return path
