"""``tagstream.debezium.truncate=delete``: the rows from before a TRUNCATE in the log's order are gone, and only they."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from tagstream.streaming.source.decode.debezium import DebeziumRules
from tagstream.streaming.source.decode.make_format import FormatRules
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tests.streaming.pipeline import Pipeline
from tests.support import cdc

BOTH = pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
EMPTIES = FormatRules("debezium-json", DebeziumRules(truncate="delete"))
SCHEMA = json.dumps({"type": "record", "name": "n", "fields": [
    {"name": "id", "type": "long"}, {"name": "v", "type": ["null", "long"], "default": None},
]})  # fmt: skip
KEYS, EVENTS = 30, 400


@BOTH
def test_a_captured_truncate_leaves_what_select_found(tmp_path: Path, table_type: str) -> None:
    run = Pipeline.create(tmp_path, table_type, json.dumps(cdc.schema_by_id(2)), ["id"], [], EMPTIES)
    for _, messages in cdc.phases("json", "shop.carts"):
        run.batch(messages)
    wrong = cdc.differences(run.rows(), cdc.truth("shop.carts", "truncate"), ["id"])
    assert not wrong, wrong[:5]
    assert not run.bad


@pytest.mark.extended("longer random histories", first=("0", "1"))
@pytest.mark.parametrize("seed", range(6))
def test_truncates_among_events_that_arrive_in_any_order_of_partitions(tmp_path: Path, seed: int) -> None:
    """Three partitions, read unevenly: rows from before a TRUNCATE come batches after it, and must not stay."""
    r = random.Random(seed)
    run = Pipeline.create(tmp_path, r.choice([COPY_ON_WRITE, MERGE_ON_READ]), SCHEMA, ["id"], [], EMPTIES)
    partitions: list[list[cdc.Message]] = [[], [], []]
    last: dict[int, tuple[int, int | None]] = {}  # by key: position, value; None: deleted
    emptied = 0
    for lsn in range(1, EVENTS):
        key = r.randrange(KEYS)
        if r.random() < 0.01:
            emptied = lsn
            op, after, to, message_key = "t", None, r.randrange(3), None
        elif r.random() < 0.1:
            last[key] = lsn, None
            op, after, to, message_key = "d", None, key % 3, json.dumps({"id": key}).encode()
        else:
            last[key] = lsn, lsn
            op, after, to, message_key = "u", {"id": key, "v": lsn}, key % 3, json.dumps({"id": key}).encode()
        value = {"op": op, "before": None, "after": after, "source": {"lsn": lsn, "snapshot": "false"}}
        mine = partitions[to]
        mine.append(cdc.Message(to, len(mine), message_key, json.dumps(value).encode(), {}))
    assert emptied
    sent = sum(map(len, partitions))
    while any(partitions):
        taken = []
        for n, mine in enumerate(partitions):
            count = r.choice([0, 3, 25, 80])
            taken += mine[:count]
            partitions[n] = mine[count:]
        run.batch(taken)
    expected = {key: v for key, (lsn, v) in last.items() if v is not None and lsn > emptied}
    assert {row["id"]: row["v"] for row in run.rows()} == expected
    assert not run.bad
    counts = run.counts
    kinds = ("inserts", "updates", "deletes", "moves", "late", "superseded", "unknown_deletes")
    assert sum(counts[kind] for kind in kinds) == counts["records"] >= sent - counts["skipped"]


def test_a_binlog_orders_truncates_too(tmp_path: Path) -> None:
    rules = replace(EMPTIES, debezium=DebeziumRules("binlog", truncate="delete"))
    run = Pipeline.create(tmp_path, MERGE_ON_READ, SCHEMA, ["id"], [], rules)

    def message(op: str, key: int | None, pos: int, partition: int) -> cdc.Message:
        value = {
            "op": op,
            "before": None,
            "after": None if key is None else {"id": key, "v": pos},
            "source": {"file": "log.000002", "pos": pos, "row": 0, "snapshot": "false"},
        }
        name = None if key is None else json.dumps({"id": key}).encode()
        return cdc.Message(partition, pos, name, json.dumps(value).encode(), {})

    run.batch([message("c", 1, 10, 0), message("c", 2, 11, 0)])
    run.batch([message("t", None, 50, 1), message("c", 3, 60, 0)])
    run.batch([message("u", 2, 40, 0), message("c", 4, 45, 0), message("c", 1, 70, 0)])
    assert {row["id"]: row["v"] for row in run.rows()} == {1: 70, 3: 60}


def test_without_a_place_in_the_log_a_truncate_is_bad(tmp_path: Path) -> None:
    run = Pipeline.create(tmp_path, COPY_ON_WRITE, SCHEMA, ["id"], [], EMPTIES)
    value = {"op": "t", "before": None, "after": None, "source": {"snapshot": "false"}}
    run.batch([cdc.Message(0, 0, None, json.dumps(value).encode(), {})])
    assert len(run.bad) == 1 and "has no source.lsn" in str(run.bad)
