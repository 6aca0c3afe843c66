"""The change stream of a table that a job writes: each commit's changes turn the state before it into the one after it."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tagstream.errors import MissingChangesError
from tagstream.reading import open_table
from tagstream.table.meta_client.table_config import CDC_KEY, CDC_MODE_KEY, COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tests.cli.running import run_json
from tests.streaming.stream_case import StreamCase
from tests.streaming.test_partial_updates import SCHEMA as PARTIAL
from tests.streaming.test_partial_updates import Oracle as PartialOracle
from tests.support.changes import applied, of_ours
from tests.support.hudi_rs import read_table

Row = dict[str, Any]
VERSION, INDEX = "hoodie.write.table.version", "hoodie.index.type"
PARTS = ("p0", "p1")
more = pytest.mark.extended("other indexes, versions and modes")


def write_file(case: StreamCase, number: int, events: list[Row]) -> None:
    case.source.mkdir(parents=True, exist_ok=True)
    path = case.source / f"{number:03d}.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    os.utime(path, ns=((1_700_000_000 + number) * 10**9,) * 2)


def histories(
    case: StreamCase, batches: int, seed: int, first: int = 0, state: dict[str, Row] | None = None
) -> list[dict[str, Row]]:
    """Files of events with moves, deletes and late ones; the live rows after each, by key."""
    rnd, live, found = random.Random(seed), dict(state or {}), []
    newest: dict[str, int] = {key: row["ts"] for key, row in live.items()}
    for number in range(first, first + batches):
        events = []
        for key in rnd.sample([f"k{n}" for n in range(12)], 6):
            event = {"id": key, "part": rnd.choice(PARTS), "ts": 10 * number + rnd.randrange(-12, 10) + 20,
                     "name": f"n{number}", "amount": number / 2, "_hoodie_is_deleted": rnd.random() < 0.2}  # fmt: skip
            events.append(event)
            if event["ts"] < newest.get(key, -1):
                continue  # late
            newest[key] = event["ts"]
            live.pop(key, None)
            if not event["_hoodie_is_deleted"]:
                live[key] = event
        write_file(case, number, events)
        found.append(dict(live))
    return found


@pytest.mark.spark
@pytest.mark.parametrize(
    ("table_type", "conf"),
    [
        (MERGE_ON_READ, {VERSION: "9"}),
        pytest.param(COPY_ON_WRITE, {VERSION: "9", CDC_MODE_KEY: "OP_KEY_ONLY"}, marks=more),
        pytest.param(COPY_ON_WRITE, {VERSION: "6", CDC_MODE_KEY: "DATA_BEFORE", INDEX: "GLOBAL_BLOOM"}, marks=more),
        pytest.param(MERGE_ON_READ, {VERSION: "9", INDEX: "GLOBAL_RECORD_LEVEL_INDEX"}, marks=more),
        pytest.param(MERGE_ON_READ, {VERSION: "6", INDEX: "GLOBAL_SIMPLE"}, marks=more),
        pytest.param(MERGE_ON_READ, {VERSION: "8", "tagstream.inserts.to.base.files": "true"}, marks=more),
    ],
)
def test_a_stream_with_change_data_capture(
    table_type: str, conf: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    services = {"hoodie.compact.inline.max.delta.commits": "2", "hoodie.clean.automatic": "false"}
    case = StreamCase(tmp_path, spark, table_type, {CDC_KEY: "true", **services, **conf})
    states = histories(case, 5, seed=3)
    case.run()
    table = open_table(case.table)
    writes = [i for i in table.timeline() if i.is_write and i.is_completed]
    found = of_ours(table.changes().read_all())
    instants = sorted({c[1] for c in found})
    assert len(writes) > len(instants) if table_type == MERGE_ON_READ else len(writes) == len(instants)
    before: dict[str, Row] = {}
    for instant, state in zip(instants, states, strict=True):
        after = applied(before, [c for c in found if c[1] == instant])
        assert after == state
        before = after
    assert {r["id"]: r["name"] for r in read_table(case.table).to_pylist()} == {
        k: v["name"] for k, v in states[-1].items()
    }
    hoodie = table._table
    assert validate(hoodie) == []
    assert validate_metadata(hoodie) == []


@pytest.mark.spark
@pytest.mark.extended("change data capture of an existing table")
def test_it_is_turned_on_later(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    case = StreamCase(tmp_path, spark, conf={VERSION: "9", "hoodie.clean.automatic": "false"})
    (*_, state) = histories(case, 2, seed=5)
    case.run()
    done = max(i.completion_time or i.time for i in open_table(case.table).timeline() if i.is_completed)
    case.conf = {**case.conf, CDC_KEY: "true"}
    states = histories(case, 2, seed=6, first=2, state=state)
    case.run()
    table = open_table(case.table)
    assert applied(state, of_ours(table.changes(since=done).read_all())) == states[-1]
    with pytest.raises(MissingChangesError, match="no change file of it"):
        table.changes().read_all()


@pytest.mark.spark
@pytest.mark.extended("records of some fields, with change data capture")
@pytest.mark.parametrize(("table_type", "version"), [(COPY_ON_WRITE, "9"), (MERGE_ON_READ, "9"), (MERGE_ON_READ, "6")])
def test_partial_updates(table_type: str, version: str, spark: SparkSession, tmp_path: Path) -> None:
    """An image has all fields of the row, also those that the record lacked; also where the row moves."""
    conf = {CDC_KEY: "true", VERSION: version, "hoodie.write.partial.update": "true",
            "hoodie.compact.inline.max.delta.commits": "3", "hoodie.clean.automatic": "false"}  # fmt: skip
    case, oracle, rnd = StreamCase(tmp_path, spark, table_type, conf, PARTIAL), PartialOracle(), random.Random(8)
    states: list[dict[str, Row]] = []
    for number in range(5):
        rows: list[Row] = []
        for key in rnd.sample([f"k{n}" for n in range(8)], 6):
            row: Row = {"id": key, "ts": 10 * number + rnd.randrange(10, 20) - 8 * (rnd.random() < 0.2)}
            row |= {name: rnd.choice([None, number, 7]) for name in "bcd" if rnd.random() < 0.5}
            if rnd.random() < 0.4 or key not in oracle.rows:
                row["part"] = rnd.choice(PARTS)
            if rnd.random() < 0.15:
                row["_hoodie_is_deleted"] = True
            rows.append(row)
        write_file(case, number, rows)
        oracle.batch(rows)
        states.append({key: dict(row) for key, row in oracle.rows.items()})
    case.run()
    table = open_table(case.table)
    found = of_ours(table.changes().read_all())
    before: dict[str, Row] = {}
    for instant, state in zip(sorted({c[1] for c in found}), states, strict=True):
        before = applied(before, [c for c in found if c[1] == instant])
        assert before == {key: {n: v for n, v in row.items() if v is not None} for key, row in state.items()}
    assert any(op == "u" for op, *_ in found)
    assert validate(table._table) == []


@pytest.mark.spark
@pytest.mark.extended("the services' own process, with change data capture")
@pytest.mark.parametrize("mode", ["OP_KEY_ONLY", "DATA_BEFORE_AFTER"])
def test_services_in_their_own_process(mode: str, spark: SparkSession, tmp_path: Path) -> None:
    """Its compactions write change files. The changes are the same before and after it."""
    conf = {CDC_KEY: "true", CDC_MODE_KEY: mode, VERSION: "9", "hoodie.clean.automatic": "false",
            "hoodie.compact.inline.max.delta.commits": "100"}  # fmt: skip
    case = StreamCase(tmp_path, spark, MERGE_ON_READ, conf)
    states = histories(case, 3, seed=11)
    case.run()
    expected = of_ours(open_table(case.table).changes().read_all())
    services = ("--hoodie-conf", "hoodie.compact.inline.max.delta.commits=1")
    told = run_json("services", "run", "--target-base-path", case.table, "--once", *services)
    assert told["services"] >= 1
    table = open_table(case.table)
    assert list(Path(case.table).rglob("*.cdc")), "a compaction writes change files"
    assert of_ours(table.changes().read_all()) == expected
    histories(case, 2, seed=12, first=3, state=states[-1])
    case.run()
    table = open_table(case.table)
    found = of_ours(table.changes().read_all())
    assert [c for c in found if c[1] in {e[1] for e in expected}] == expected
    assert {k: v["name"] for k, v in applied({}, found).items()} == {
        r["id"]: r["name"] for r in read_table(case.table).to_pylist()
    }
    assert validate(table._table) == []
    assert validate_metadata(table._table) == []
