"""Histories of schema changes: batches into a table without Spark, the schema by the function that the job asks.

The rows that must be there are those of a dictionary that was told the same.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tagstream.streaming.source.decode.make_format import PLAIN
from tagstream.table.errors import SchemaRefusedError
from tagstream.table.schema.evolve import EvolutionRules, evolve
from tagstream.table.schema.record_schema import keep_defaults
from tagstream.table.schema.schema import arrow_to_avro, avro_json, avro_to_arrow
from tagstream.table.services.compaction import compact
from tagstream.table.services.compaction_plan import schedule_compaction
from tagstream.table.services.options import CompactionOptions, Strategy
from tests.streaming.pipeline import Pipeline
from tests.support import cdc

Row = dict[str, Any]
FAMILIES = [["int", "long"], ["float", "double"], ["d8", "d14"], ["string"], ["boolean"]]
AVRO: dict[str, Any] = {
    "d8": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2},
    "d14": {"type": "bytes", "logicalType": "decimal", "precision": 14, "scale": 2},
}
RULES = EvolutionRules({"id": "record key", "part": "partition path", "ts": "ordering"}, given=True)


def schema_of(columns: dict[str, str]) -> Row:
    plain = [{"name": "id", "type": "string"}, {"name": "part", "type": "string"}, {"name": "ts", "type": "long"}]
    more = [{"name": n, "type": ["null", AVRO.get(k, k)], "default": None} for n, k in columns.items()]
    return {"type": "record", "name": "r", "fields": [*plain, *more]}


def value(r: random.Random, kind: str) -> Any:
    """A value in JSON; the great ones only the wider types hold. Of floats those that both widths write alike."""
    return r.choice([None, {
        "int": r.randint(-9, 9), "long": r.choice([2**40, -3]), "float": r.choice([0.3, -1.5]),
        "double": r.choice([1e300, 0.1]),
        "d8": "1.25", "d14": r.choice(["123456789012.25", "-3.50"]), "string": "x", "boolean": True,
    }[kind]])  # fmt: skip


def changed(r: random.Random, columns: dict[str, str], number: int) -> dict[str, str]:
    """The next schema file: a column more, fewer, wider, or one that may not be."""
    out = dict(columns)
    what = r.choice(["add", "add", "widen", "widen", "drop", "narrow", "other"])
    if what == "add" or not out:
        return out | {f"c{number}": r.choice([f[0] for f in FAMILIES])}
    name = r.choice(sorted(out))
    family = next(f for f in FAMILIES if out[name] in f)
    if what == "drop":
        del out[name]
    elif what == "other":
        out[name] = r.choice([f[0] for f in FAMILIES if f is not family])
    else:
        out[name] = family[-1] if what == "widen" else family[0]
    return out


def take_up(run: Pipeline, columns: dict[str, str]) -> None:
    """What the job does with another schema file."""
    text = json.dumps(schema_of(columns))
    change(run, evolve(avro_to_arrow(run.spec.avro_json), avro_to_arrow(text), RULES, "the file").schema, text)


def change(run: Pipeline, made: pa.Schema, text: str) -> None:
    """Go on with a schema; logs are compacted before a type is widened. ``text``: Avro JSON that has the defaults."""
    own = avro_to_arrow(run.spec.avro_json)
    if any(made.field(f.name).type != f.type for f in own) and run.table.config.is_merge_on_read:
        options = CompactionOptions(strategy=Strategy.UNBOUNDED)

        def clock() -> int:
            run.now_ms += 1000
            return run.now_ms

        instant = schedule_compaction(run.table, options, clock, force=True, look_at_all=True)
        if instant is not None:
            compact(run.table, instant, clock)
    written = avro_json(keep_defaults(arrow_to_avro(made, "t"), run.spec.avro_json, text))
    run.spec = replace(run.spec, avro_json=written, defaults_json=written)


def history(folder: Path, table_type: str, seed: int, steps: int = 8) -> Iterator[tuple[Pipeline, dict[str, Row]]]:
    """(the table, its rows by key) after each step; some steps begin with a new start. Changes that must be refused are, by
    the column's name."""
    r = random.Random(seed)
    starts = random.Random(f"starts {seed}")
    file, known = {"a": "int", "b": "float", "c": "d8"}, {"a": "int", "b": "float", "c": "d8"}
    run = Pipeline.create(folder, table_type, json.dumps(schema_of(file)), ["id"], ["part"], PLAIN, ["ts"])
    oracle: dict[str, Row] = {}
    offset = 0
    for step in range(steps):
        if step and starts.random() < 0.4:
            run.restart()
            take_up(run, file)
        if step:
            wanted = changed(r, file, step)
            narrower = [n for n, k in wanted.items() if n in known and not _holds(k, known[n])]
            if narrower:
                with pytest.raises(SchemaRefusedError, match=f"column '({'|'.join(narrower)})'"):
                    take_up(run, wanted)
            else:
                take_up(run, wanted)
                file, known = wanted, known | wanted
        messages = []
        for _ in range(r.randint(1, 12)):
            offset += 1
            row = {"id": f"k{r.randint(0, 15)}", "part": r.choice("xyz"), "ts": offset}
            row |= {n: value(r, k) for n, k in file.items()}
            messages.append(cdc.Message(0, offset, None, json.dumps(row).encode(), {}))
            oracle[row["id"]] = row
        run.batch(messages)
        assert not run.bad
        names = ["id", "part", "ts", *known]
        yield run, {k: {n: exact(known.get(n), row.get(n)) for n in names} for k, row in oracle.items()}


def _holds(kind: str, before: str) -> bool:
    """Whether a file's type may follow the one that the table has."""
    family = next(f for f in FAMILIES if before in f)
    return kind in family and family.index(kind) >= family.index(before)


def exact(kind: str | None, found: Any) -> Any:
    """A value as a column of a kind gives it back."""
    if found is None:
        return None
    if kind in ("d8", "d14"):
        return Decimal(found)
    if kind == "float":
        return struct.unpack("f", struct.pack("f", found))[0]
    return found
