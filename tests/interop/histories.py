"""Tables with a past: seeded commits of inserts, updates, moves, deletes and returns, with an ordering column of any
type, written through the table layer. The writer's own ``live`` is the oracle."""

from __future__ import annotations

import datetime as dt
import decimal
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tests.table.writer import SCHEMA, Row, Writer

EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

# Type of the ordering column, and its value number n.
ORDERINGS: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "long": (pa.int64(), lambda n: 3_000_000_000 + n),
    "int": (pa.int32(), lambda n: n),
    "string": (pa.string(), lambda n: f"v{n:06d}"),
    "timestamp": (pa.timestamp("us", tz="UTC"), lambda n: EPOCH + dt.timedelta(seconds=n, microseconds=n)),
    "double": (pa.float64(), lambda n: n + 0.25),
    "float": (pa.float32(), lambda n: n + 0.25),
    "date": (pa.date32(), lambda n: EPOCH.date() + dt.timedelta(days=n)),
    "decimal": (pa.decimal128(12, 3), lambda n: decimal.Decimal(n) + decimal.Decimal("0.125")),
}
# Kind of table: its type, and whether inserts go to base files.
KINDS = {
    "cow": (COPY_ON_WRITE, False),
    "mor": (MERGE_ON_READ, False),
    "mor_base_inserts": (MERGE_ON_READ, True),
}
COMMITS = 5
KEYS = 120


def create(folder: Path, kind: str, ordering: str) -> Writer:
    """An empty table of a kind, with an ordering column of a type."""
    table_type, base_inserts = KINDS[kind]
    at = SCHEMA.get_field_index("ver")
    schema = SCHEMA.set(at, pa.field("ver", ORDERINGS[ordering][0]))
    return Writer.create(folder, table_type, schema=schema).with_options(inserts_to_base_files=base_inserts)


def write_history(writer: Writer, ordering: str, seed: int = 1) -> None:
    """Commits in which every key is inserted, changed, moved, deleted or brought back by chance."""
    rng = random.Random(seed)
    for number in range(COMMITS):
        upserts, deletes = [], {}
        for key in range(KEYS):
            name, ver = f"k{key}", ORDERINGS[ordering][1](1 + number * 10)
            chance = rng.random()
            if chance < 0.15 and name in writer.live:
                deletes[name] = ver
            elif chance < 0.6:
                upserts.append(event(key, rng.randrange(3), ver, f"c{number}"))
        writer.write(upserts, deletes, orderings=deletes)


def event(key: int, partition: int, ver: Any, name: str) -> Row:
    """A row of key number ``key``."""
    return {"id": f"k{key}", "part": f"p{partition}", "ver": ver, "name": name, "amount": key / 4}


def live_rows(writer: Writer) -> pa.Table:
    """What ought to be in the table."""
    return pa.Table.from_pylist(list(writer.live.values()), schema=writer.schema).sort_by("id")
