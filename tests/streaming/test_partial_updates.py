"""Records that hold only some fields, through every step of a batch but Spark's own, and one stream on Spark.

The oracle is a dictionary: the records of a key in their order, each puts its fields into what is there.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.source.decode.make_format import PLAIN
from tagstream.table.errors import ConfigError
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tests.streaming.pipeline import Pipeline
from tests.streaming.stream_case import StreamCase
from tests.support import cdc
from tests.support.hudi_rs import read_table
from tests.support.table_version import using

BOTH = pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
SCHEMA: dict[str, Any] = {"type": "record", "name": "r", "fields": [
    {"name": "id", "type": "string"}, {"name": "part", "type": ["null", "string"], "default": None},
    {"name": "ts", "type": "long"}, {"name": "a", "type": ["null", "string"], "default": None},
    {"name": "b", "type": ["null", "int"], "default": None}, {"name": "c", "type": ["null", "int"], "default": None},
    {"name": "d", "type": ["int", "null"], "default": 7},
]}  # fmt: skip
NAMES = [f["name"] for f in SCHEMA["fields"]]
Row = dict[str, Any]


class Topic:
    """Messages with rising offsets."""

    def __init__(self) -> None:
        self.offset = 0

    def messages(self, *rows: Row) -> list[cdc.Message]:
        out = []
        for r in rows:
            self.offset += 1
            out.append(cdc.Message(0, self.offset, None, json.dumps(r).encode(), {}))
        return out


def pipeline(folder: Path, table_type: str, schema: Row = SCHEMA, *, drops: bool = False) -> Pipeline:
    run = Pipeline.create(folder, table_type, json.dumps(schema), ["id"], ["part"], PLAIN, ["ts"], drops=drops)
    run.spec = replace(run.spec, partial=True)
    return run


def rows_of(run: Pipeline) -> dict[str, Row]:
    mine = {r["id"]: {n: r[n] for n in NAMES} for r in run.rows()}
    if run.spec.dropped:  # hudi-rs reads no such table
        return mine
    theirs = {
        r["id"]: {n: r[n] for n in NAMES} for r in read_table(run.table.base_path, meta_columns=False).to_pylist()
    }
    assert mine == theirs
    return mine


class Oracle:
    """What the records make of the rows: in the order of their ordering value, and of their arrival where that is equal.

    A record that is older than what was in force when its batch began changes nothing.
    """

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.order: dict[str, int] = {}

    def batch(self, rows: list[Row]) -> None:
        before = dict(self.order)
        for r in sorted(rows, key=lambda r: r["ts"]):  # stable: arrival decides between equal ones
            key = r["id"]
            if r["ts"] < before.get(key, -1):
                continue
            self.order[key] = r["ts"]
            if r.get("_hoodie_is_deleted"):
                self.rows.pop(key, None)
                continue
            row = self.rows.setdefault(key, dict.fromkeys(NAMES) | {"d": 7})
            row.update({n: v for n, v in r.items() if n in NAMES})


@pytest.mark.extended("longer random histories", first=("0-",))
@BOTH
@pytest.mark.parametrize("seed", range(4))
def test_partial_records_in_any_batches(tmp_path: Path, table_type: str, seed: int) -> None:
    """Inserts, partial updates, moves, deletes and comebacks, late ones among them, cut anywhere."""
    _any_batches(pipeline(tmp_path, table_type), seed)


@pytest.mark.extended("longer random histories", first=("0-COPY_ON_WRITE",))
@BOTH
@pytest.mark.parametrize("seed", range(2))
def test_partial_records_where_no_row_has_its_partition(tmp_path: Path, table_type: str, seed: int) -> None:
    """The same where the files leave out the partition columns: a record without one stays where its row is."""
    with using(8):
        _any_batches(pipeline(tmp_path, table_type, drops=True), seed)


def _any_batches(run: Pipeline, seed: int) -> None:
    r, t, oracle = random.Random(seed), Topic(), Oracle()
    for n in range(7):
        rows: list[Row] = []
        for _ in range(r.randint(1, 25)):
            row: Row = {"id": f"k{r.randint(0, 9)}", "ts": 10 * n + r.randint(-12, 9)}
            row["ts"] = max(row["ts"], 0)
            for name in "abcd":
                if r.random() < 0.4:
                    row[name] = r.choice([None, r.randint(0, 99)])
            if "a" in row:
                row["a"] = None if row["a"] is None else f"text {row['a']}"
            if r.random() < 0.3:
                row["part"] = r.choice("xyz")
            if r.random() < 0.1:
                row["_hoodie_is_deleted"] = True
            rows.append(row)
        run.batch(t.messages(*rows))
        oracle.batch(rows)
        assert rows_of(run) == oracle.rows, n
    assert not run.bad
    assert run.counts["moves"]
    assert run.counts["late"]


@BOTH
def test_one_field_at_a_time(tmp_path: Path, table_type: str) -> None:
    run, t = pipeline(tmp_path, table_type), Topic()
    run.batch(t.messages({"id": "1", "part": "x", "ts": 1, "a": "a1", "b": 1, "c": 1}))
    run.batch(t.messages({"id": "1", "ts": 2, "b": 2}))
    full = {"id": "1", "part": "x", "ts": 2, "a": "a1", "b": 2, "c": 1, "d": 7}
    assert rows_of(run) == {"1": full}, "the rest stays, and so does the row"
    run.batch(t.messages({"id": "1", "ts": 3, "a": None}))
    assert rows_of(run) == {"1": full | {"ts": 3, "a": None}}, "an explicit null is null"
    run.batch(
        t.messages({"id": "1", "ts": 5, "c": 5}, {"id": "1", "ts": 4, "c": 4, "b": 4}, {"id": "1", "ts": 5, "d": 1})
    )
    assert rows_of(run) == {"1": full | {"ts": 5, "a": None, "b": 4, "c": 5, "d": 1}}, "merged field by field in order"
    run.batch(t.messages({"id": "1", "ts": 6, "part": "y"}, {"id": "1", "ts": 7, "a": "moved"}))
    assert rows_of(run) == {"1": full | {"ts": 7, "part": "y", "a": "moved", "b": 4, "c": 5, "d": 1}}, "a move keeps it"
    run.batch(t.messages({"id": "2", "ts": 1, "a": "new"}, {"id": "3", "part": "z", "ts": 1}))
    rows = rows_of(run)
    nothing = dict.fromkeys(NAMES) | {"d": 7}
    assert rows["2"] == nothing | {"id": "2", "ts": 1, "a": "new"}, "a new row: nulls, and the schema's default"
    assert rows["3"] == nothing | {"id": "3", "part": "z", "ts": 1}
    run.batch(t.messages({"id": "1", "ts": 8, "_hoodie_is_deleted": True}, {"id": "1", "ts": 9, "part": "x", "b": 9}))
    assert rows_of(run)["1"] == nothing | {"id": "1", "part": "x", "ts": 9, "b": 9}, (
        "deleted in between: nothing is kept"
    )


@BOTH
def test_a_new_row_needs_what_may_not_be_null(tmp_path: Path, table_type: str) -> None:
    fields = [*SCHEMA["fields"], {"name": "need", "type": "string"}]
    run, t = pipeline(tmp_path, table_type, {**SCHEMA, "fields": fields}), Topic()
    run.batch(t.messages({"id": "1", "part": "x", "ts": 1, "need": "n"}, {"id": "2", "part": "x", "ts": 1, "a": "a"}))
    run.batch(t.messages({"id": "1", "ts": 2, "a": "b"}))
    assert [(r["id"], r["a"], r["need"]) for r in run.rows()] == [("1", "b", "n")]
    assert len(run.bad) == 1
    assert "lacks a field that may not be null (of id, ts, need)" in run.bad[0]


@pytest.mark.extended("more kinds of tables", first=("MERGE_ON_READ",))
@pytest.mark.spark
@BOTH
def test_a_stream_of_partial_updates(tmp_path: Path, spark: SparkSession, table_type: str) -> None:
    """Each file a batch, each batch in a run of its own."""
    case = StreamCase(tmp_path, spark, table_type, {"hoodie.write.partial.update": "true"}, SCHEMA)
    oracle = Oracle()
    batches = [
        [{"id": f"k{i}", "part": f"p{i % 2}", "ts": 1, "a": f"a{i}", "b": i} for i in range(6)],
        [{"id": "k0", "ts": 2, "c": 1}, {"id": "k1", "ts": 2, "part": "p9"}, {"id": "k2", "ts": 2, "a": None},
         {"id": "k0", "ts": 3, "d": None}, {"id": "k9", "ts": 1, "part": "p0", "c": 3}],
        [{"id": "k1", "ts": 3, "b": 8}, {"id": "k3", "ts": 4, "_hoodie_is_deleted": True}],
    ]  # fmt: skip
    for n, rows in enumerate(batches):
        case.source.mkdir(exist_ok=True)
        (case.source / f"{n}.json").write_text("".join(json.dumps(r) + "\n" for r in rows))
        case.run()
        oracle.batch(rows)
        found = {r["id"]: {n: r[n] for n in NAMES} for r in read_table(case.table, meta_columns=False).to_pylist()}
        assert found == oracle.rows


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ({"hoodie.index.type": "BLOOM"}, "only the state index reads the row"),
        ({"tagstream.source.format": "maxwell-json"}, "records of maxwell-json mark values"),
    ],
)
def test_where_partial_updates_are_refused(tmp_path: Path, conf: dict[str, str], words: str) -> None:
    from tagstream.streaming.options.cli import load_options

    case = StreamCase(tmp_path, None, conf={"hoodie.write.partial.update": "true", **conf})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=words):
        load_options(case.arguments())
