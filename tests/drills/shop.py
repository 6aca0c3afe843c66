"""A shop whose orders change for some minutes: transactions of every kind, and the table itself altered in between.

Seeded: what is changed depends on the seed alone, how far it comes on the time that it has.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import psycopg

from tests.support.postgres import Postgres

PUBLICATION = "shop"
TABLES = ("shop.orders", "public.mark")
# What the table has before anything is altered.
AVRO = {
    "type": "record",
    "name": "orders",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        *(
            {"name": name, "type": ["null", kind], "default": None}
            for name, kind in {
                "customer": "string",
                "qty": "int",
                "amount": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
                "weight": "double",
                "paid": "boolean",
                "placed": {"type": "long", "logicalType": "timestamp-micros"},
                "tags": {"type": "array", "items": ["null", "string"]},
                "doc": "string",
                "note": "string",
            }.items()
        ),
    ],
}
DDL = """
create schema shop;
create table shop.orders (
  id bigint primary key, day date not null, customer text, qty int, amount numeric(12,2), weight double precision,
  paid boolean, placed timestamp, tags text[], doc jsonb, note text);
alter table shop.orders alter column note set storage external;
create table mark (id serial primary key);
"""
# Each in a transaction of its own. What a default fills is touched, for its rows have no event else.
ALTERED: Sequence[tuple[str, ...]] = (
    ("alter table shop.orders add column colour text",),
    (
        "alter table shop.orders alter column qty type bigint",
        "update shop.orders set qty = 5000000000 where id % 7 = 0",
    ),
    (
        "alter table shop.orders add column grade int not null default 5",
        "update shop.orders set grade = 6 where id % 2 = 0",
        "update shop.orders set grade = 5 where id % 2 <> 0",
    ),
    ("truncate shop.orders",),
    (
        "alter table shop.orders alter column amount type numeric(16,2)",
        "update shop.orders set amount = 12345678901234.56 where id % 11 = 0",
    ),
    ("alter table shop.orders drop column weight",),
)
LONG = "abcdefgh" * 400  # stored apart from its row, so that an update of the row does not send it


@dataclass
class Shop:
    """The database and its customers. ``altered``: how many of ``ALTERED`` are done; ``changes``: statements so far."""

    database: Postgres
    seed: int
    altered: int = 0
    changes: int = 0
    _ids: list[int] = field(default_factory=list)
    _newest: int = 0

    def open(self, orders: int) -> None:
        """Make the tables, with so many orders that were there before."""
        rng = random.Random(self.seed)
        with self.database.connect() as db:
            db.execute(DDL)
            db.execute(f"create publication {PUBLICATION} for table {', '.join(TABLES)}")
            for _ in range(orders):
                self._ids.append(self._insert(db, rng))

    def trade(self, seconds: float, stop: threading.Event) -> None:
        """Transactions until the time is over; the table is altered at even distances. Some are rolled back."""
        rng, began = random.Random(self.seed + 1), time.monotonic()
        with self.database.connect() as db:
            while (passed := time.monotonic() - began) < seconds and not stop.is_set():
                if self.altered < len(ALTERED) and passed > seconds * (self.altered + 1) / (len(ALTERED) + 1):
                    self._alter(db)
                undone, ids = rng.random() < 0.05, list(self._ids)
                with db.transaction(force_rollback=undone):
                    for _ in range(rng.randint(1, 6)):
                        self._change(db, rng, ids)
                if not undone:
                    self._ids = ids
                stop.wait(0.02)

    def rows(self) -> list[str]:
        """What SELECT gives, a JSON text each."""
        with self.database.connect() as db:
            found = db.execute("select row_to_json(whole)::text from shop.orders whole order by id").fetchall()
        return [text for (text,) in found]

    def mark(self) -> int:
        """Leave a mark behind everything; how many there are."""
        with self.database.connect() as db:
            db.execute("insert into mark default values")
            row = db.execute("select count(*) from mark").fetchone()
        assert row is not None
        return int(row[0])

    def _alter(self, db: psycopg.Connection) -> None:
        with db.transaction():
            for statement in ALTERED[self.altered]:
                db.execute(statement)
        if "truncate" in ALTERED[self.altered][0]:
            self._ids.clear()
        self.altered += 1

    def _change(self, db: psycopg.Connection, rng: random.Random, ids: list[int]) -> None:
        """One statement; ``ids`` are the orders that there are, and are kept so."""
        self.changes += 1
        if not ids or rng.random() < 0.35:
            ids.append(self._insert(db, rng))
            return
        place = rng.randrange(len(ids))
        order = ids[place]
        what = rng.random()
        if what < 0.45:
            update = "update shop.orders set qty = %s, amount = %s where id = %s"
            db.execute(update, (rng.randint(0, 9), f"{rng.randint(-(10**9), 10**9)}.{rng.randint(0, 99):02}", order))
        elif what < 0.55:
            db.execute("update shop.orders set note = %s where id = %s", (rng.choice([None, f"{order} {LONG}"]), order))
        elif what < 0.75:  # another partition
            db.execute("update shop.orders set day = day + %s where id = %s", (rng.randint(1, 3), order))
        elif what < 0.85:
            self._newest += 1
            db.execute("update shop.orders set id = %s where id = %s", (self._newest, order))
            ids[place] = self._newest
        else:
            db.execute("delete from shop.orders where id = %s", (order,))
            if what < 0.92:  # and comes back in the same transaction
                self._insert(db, rng, order)
            else:
                ids[place] = ids[-1]
                ids.pop()

    def _insert(self, db: psycopg.Connection, rng: random.Random, order: int | None = None) -> int:
        if order is None:
            self._newest += 1
            order = self._newest
        day = f"2026-01-{rng.randint(1, 5):02}"
        row = {
            "id": order,
            "day": day,
            "customer": rng.choice(["Zo\u00eb", "O'Hara", "a,b:c", 'q"uo\\te', None]),
            "qty": rng.randint(-5, 99),
            "amount": rng.choice([None, f"{rng.randint(-(10**9), 10**9)}.{rng.randint(0, 99):02}"]),
            "paid": rng.choice([True, False, None]),
            "placed": f"{day} {rng.randint(0, 23):02}:{rng.randint(0, 59):02}:00.{rng.randint(0, 999999):06}",
            "tags": rng.choice([["x", None, "y,z"], [], None]),
            "doc": rng.choice(['{"a": [1, null], "b": "x"}', None]),
            "note": rng.choice(["short", f"{order} {LONG}", None]),
        }
        db.execute(
            f"insert into shop.orders ({', '.join(row)}) values ({', '.join(['%s'] * len(row))})", [*row.values()]
        )
        return order
