"""What a shape of a table is made of: rows of every type, and the steps by which real Hudi makes the table."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.interop.hudi_spark import HudiSpark

Row = dict[str, Any]
NOT_GIVEN = "(not given)"  # instead of a value of COMMON
INNER = pa.struct([("x", pa.float64()), ("ys", pa.list_(pa.int32()))])
SCHEMA = pa.schema([
    pa.field("id", pa.string()), pa.field("part", pa.string()), pa.field("ts", pa.int64()),
    pa.field("name", pa.string()), pa.field("amount", pa.float64()), pa.field("flag", pa.bool_()),
    pa.field("price", pa.decimal128(12, 3)), pa.field("day", pa.date32()),
    pa.field("at", pa.timestamp("us", tz="UTC")), pa.field("raw", pa.binary()),
    pa.field("s", pa.struct([("a", pa.int32()), ("b", pa.string()), ("inner", INNER)])),
    pa.field("items", pa.list_(pa.struct([("k", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))]))),
    pa.field("tags", pa.map_(pa.string(), pa.struct([("d", pa.decimal128(10, 2)), ("on", pa.date32())]))),
])  # fmt: skip
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_LONG_AGO = 1_700_000_000
COMMON = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.insert.shuffle.parallelism": "2",
    "hoodie.bulkinsert.shuffle.parallelism": "2",
    "hoodie.delete.shuffle.parallelism": "2",
    "hoodie.compact.inline": "false",
    "hoodie.index.bloom.num_entries": "1000",
}


def row(n: int, ts: int = 1, name: str = "first", part: str | None = None) -> Row:
    """Values of all types, with nulls in columns and within nested ones.

    No null is an element of a list: Hudi writes lists in Parquet's old form, which has none.
    """
    at = _EPOCH + timedelta(days=n, microseconds=n * 1001)
    inner = {"x": n / 4, "ys": [n, n + 1] if n % 2 else []}
    items = [
        {"k": f"i{n}", "v": None if n % 3 else n, "at": at},
        {"k": None, "v": 1, "at": None},
        {"k": "z", "v": None, "at": at},
    ]
    return {
        "id": f"k{n:03}",
        "part": f"p{n % 3}" if part is None else part,
        "ts": ts,
        "name": name if n % 7 else None,
        "amount": n + ts / 8,
        "flag": None if n % 5 == 0 else n % 2 == 0,
        "price": Decimal(n * 1000 + ts).scaleb(-3),
        "day": date(2026, 1, 1) + timedelta(days=n),
        "at": at,
        "raw": None if n % 4 == 1 else bytes([n, 0, 127]),
        "s": None if n % 6 == 5 else {"a": n, "b": f"b{n % 2}", "inner": None if n % 4 == 2 else inner},
        "items": None if n % 5 == 4 else items[: n % 4],
        "tags": [("t", {"d": Decimal("1.25"), "on": None}), ("u", None)][: n % 3],
    }


def rows(numbers: Sequence[int], ts: int = 1, name: str = "first", part: str | None = None) -> list[Row]:
    """Several of them."""
    return [row(n, ts, name, part) for n in numbers]


@dataclass
class Making:
    """A table that is being made."""

    hudi: HudiSpark
    path: Path
    options: dict[str, str]

    @property
    def name(self) -> str:
        return self.path.parent.name


Step = Callable[[Making], None]


def write(made: Sequence[Row], operation: str = "upsert", schema: pa.Schema = SCHEMA, **options: str) -> Step:
    """Rows by the data source; options with ``__`` for dots."""

    def step(making: Making) -> None:
        more = {key.replace("__", "."): value for key, value in options.items()}
        table = pa.Table.from_pylist(list(made), schema)
        making.hudi.save(making.path, table, {**making.options, "hoodie.datasource.write.operation": operation, **more})

    return step


def sql(*statements: str) -> Step:
    """Statements; ``{path}`` is the table's folder and ``{t}`` its name."""

    def step(making: Making) -> None:
        told = [s.format(path=making.path, t=making.name) for s in statements]
        making.hudi.sql(
            making.path, f"create table if not exists {making.name} using hudi location '{making.path}'", *told
        )

    return step


def died(action: str) -> Step:
    """The newest action of this kind loses its completed file: its writer died."""

    def step(making: Making) -> None:
        folder = making.path / ".hoodie/timeline"
        folder = folder if folder.is_dir() else making.path / ".hoodie"
        done = sorted(p for p in folder.iterdir() if p.name.endswith(f".{action}"))[-1]
        done.unlink()
        (folder / f".{done.name}.crc").unlink(missing_ok=True)
        for path in (making.path / ".hoodie").rglob("*"):  # long ago: a fresh one would be waited for
            os.utime(path, (_LONG_AGO, _LONG_AGO))

    return step


@dataclass(frozen=True)
class Shape:
    """A table of real Hudi: release, version, type, options beside COMMON, steps.

    ``stream``: keys given to the job. ``refused``: words of the error that the start ends with, None where it writes.
    """

    steps: tuple[Step, ...]
    version: int = 9
    mor: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
    stream: Mapping[str, str] = field(default_factory=dict)
    refused: str | None = None
    moves: bool = True

    @property
    def release(self) -> str:
        return "0.15.0" if self.version == 6 else "1.2.0"

    def make(self, hudi: HudiSpark, folder: Path, name: str) -> Path:
        """The table in a new folder ``NAME/t``."""
        path = folder / name / "t"
        os.makedirs(path.parent)
        options = {
            **COMMON,
            "hoodie.table.name": name,
            "hoodie.datasource.write.table.type": "MERGE_ON_READ" if self.mor else "COPY_ON_WRITE",
            **({} if self.version == 6 else {"hoodie.write.table.version": str(self.version)}),
            **({"hoodie.write.auto.upgrade": "false"} if self.version == 8 else {}),
            **self.options,
        }
        making = Making(hudi, path, {key: value for key, value in options.items() if value != NOT_GIVEN})
        for step in self.steps:
            step(making)
        return path
