"""Captured change streams through every step of a batch but Spark's own, to the rows that the source's SELECT gave."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tagstream.streaming.source.decode.formats.make import FormatRules
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tests.streaming.pipeline import Pipeline
from tests.support import cdc

ORDERS = json.dumps(cdc.schema_by_id(6))
BOTH = pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
JSON = FormatRules("debezium-json")


@BOTH
@pytest.mark.parametrize("folder", ["json", "jsonschema"])
def test_orders_at_each_phase(tmp_path: Path, table_type: str, folder: str) -> None:
    run = Pipeline.create(tmp_path, table_type, ORDERS, ["id"], ["day"], JSON)
    for phase, messages in cdc.phases(folder, "shop.orders"):
        run.batch(messages)
        if run.batch_id:
            wrong = cdc.differences(run.rows(), cdc.truth("shop.orders", phase), ["id"], ["span"])
            assert not wrong, (phase, wrong[:5])
    assert not run.bad
    assert run.counts["skipped"] > 0


@BOTH
@pytest.mark.parametrize("seed", range(2))
def test_orders_in_batches_cut_anywhere(tmp_path: Path, table_type: str, seed: int) -> None:
    """Partitions are read unevenly: a changed key's new row may come before the delete of the old one."""
    r = random.Random(seed)
    run = Pipeline.create(tmp_path, table_type, ORDERS, ["id"], ["day"], JSON)
    left = [[m for m in cdc.messages("json", "shop.orders") if m.partition == p] for p in (0, 1)]
    while any(left):
        taken = []
        for n, mine in enumerate(left):
            count = r.randint(0, 25)
            taken += mine[:count]
            left[n] = mine[count:]
        run.batch(taken)
    wrong = cdc.differences(run.rows(), cdc.truth("shop.orders", "resnapshot"), ["id"], ["span"])
    assert not wrong, wrong[:5]
