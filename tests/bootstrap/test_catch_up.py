"""The index after a clustering knows the order of the events, also where no column of the table has it."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tagstream.bootstrap.catch_up import GROUP_BYTES, catch_up_index, plan_catch_up
from tagstream.streaming.source.decode.debezium import DebeziumRules
from tagstream.streaming.source.decode.make_format import FormatRules
from tagstream.table.services.clustering import cluster
from tagstream.table.services.clustering_options import ClusteringOptions
from tagstream.table.services.clustering_plan import schedule_clustering
from tagstream.table.write.write_context import WriteProfile
from tests.streaming.pipeline import LABELS, Pipeline
from tests.support import cdc

SCHEMA = json.dumps({
    "type": "record",
    "name": "n",
    "fields": [{"name": "id", "type": "long"}, {"name": "v", "type": ["null", "long"], "default": None}],
})  # fmt: skip
RULES = FormatRules("debezium-json", DebeziumRules(truncate="delete"))


def change(op: str, key: int | None, lsn: int, offset: int, partition: int = 0) -> cdc.Message:
    """A Debezium event of PostgreSQL, whose value says its own place in the log."""
    value = {
        "op": op, "before": None, "after": {"id": key, "v": lsn} if op in "cu" else None,
        "source": {"lsn": lsn, "snapshot": "false"},
    }  # fmt: skip
    raw_key = None if key is None else json.dumps({"id": key}).encode()
    return cdc.Message(partition, offset, raw_key, json.dumps(value).encode(), {})


def clustered(run: Pipeline) -> int:
    """Cluster the table and catch the index up; the epoch."""

    def clock_ms() -> int:
        run.now_ms += 7
        return run.now_ms

    instant = schedule_clustering(run.table, ClusteringOptions(max_commits=1), clock_ms, force=True)
    assert instant is not None
    cluster(run.table, instant, clock_ms)
    run.table = run.table.reload()
    plan = plan_catch_up(run.table, (instant,))
    assert not replace(plan, plan=_Large(plan.plan)).too_big(len(LABELS), run.layout.ordering)
    assert replace(plan, plan=_Large(plan.plan)).too_big(len(LABELS), "none")
    kind = run.spec.ordering_type
    catch_up_index(
        run.table, plan, run.layout, LABELS, 0, 1, clock_ms=clock_ms, ordering_type=kind, first_batch=run.batch_id
    )
    return 1


class _Large:
    """A plan of more files than the memory of one call may take."""

    size = GROUP_BYTES * 100

    def __init__(self, plan: Any) -> None:
        self.table = plan.table


@pytest.mark.parametrize("with_clustering", [False, True])
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_order_by_lsn_after_a_clustering(
    tmp_path: Path, table_type: str, with_clustering: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Pipeline.create(tmp_path, table_type, SCHEMA, ["id"], [], RULES)
    run.batch([change("c", 1, 110, 1), change("c", 2, 120, 2)])
    run.batch([change("c", 3, 130, 3), change("c", 4, 240, 4)])
    if with_clustering:
        monkeypatch.setattr("tests.streaming.pipeline.WriteProfile", partial(WriteProfile, catch_up=clustered(run)))
    run.batch([change("u", 1, 50, 5), change("d", 2, 60, 6)])
    assert {row["id"]: row["v"] for row in run.rows()} == {1: 110, 2: 120, 3: 130, 4: 240}
    assert run.counts["late"] == 2
    run.batch([change("t", None, 200, 7, 1)])
    assert {row["id"]: row["v"] for row in run.rows()} == {4: 240}
