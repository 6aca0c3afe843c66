"""A clustering that dies at any change of the store: the next call does the rest, and readers never see a half one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.services.clustering import cluster
from tagstream.table.services.clustering_plan import schedule_clustering
from tagstream.table.services.failed_writes import sweep
from tagstream.table.storage.storage import Storage
from tests.table.history.crashes import cut_off_at_each_change
from tests.table.services.clusters import ALL, check, fill, learn, made, pending
from tests.table.services.compaction_compacting import free_clock, rows
from tests.table.writer import row


@pytest.mark.extended("every change of the store is the last one")
@pytest.mark.table_versions(6, 9)
@pytest.mark.parametrize(
    ("table_type", "metadata"), [(COPY_ON_WRITE, True), (MERGE_ON_READ, True), (MERGE_ON_READ, False)]
)
def test_any_change_may_be_the_last(version: int, table_type: str, metadata: bool, tmp_path: Path) -> None:
    writer = fill(made(tmp_path, table_type, metadata))
    before = rows(writer.table)
    tick = free_clock()
    states, done = set(), False

    def work(cut: Storage) -> None:
        nonlocal done
        table = HoodieTable.open(cut)
        sweep(table)  # as every run does at its start
        plans = pending(table)
        instant = plans[0].time if plans else None if done else schedule_clustering(table, ALL, tick, force=True)
        if instant is not None:
            cluster(table, instant, tick)

    def after(_: int) -> None:
        nonlocal done
        assert rows(writer.table) == before
        states.add(tuple(i.state for i in pending(writer.table)))
        done = bool(writer.table.timeline().replaced)

    cuts = cut_off_at_each_change(writer.table.storage, work, after)
    assert cuts > (15 if metadata else 5)
    assert len(states) == 3  # none, requested, inflight
    writer.now_ms = tick()
    check(writer)
    learn(writer)
    writer.write([row(3, "p1", 10)], ["k4"])
    check(writer)
