"""A compaction that dies at any change of the store: the next call does the rest, and readers never see a half one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.compaction import compact
from tagstream.table.services.compaction_plan import schedule_compaction
from tagstream.table.services.failed_writes import sweep
from tagstream.table.services.validate_metadata import validate_metadata
from tagstream.table.storage.storage import Storage
from tests.table.history.crashes import cut_off_at_each_change
from tests.table.services.compaction_compacting import (
    ALL,
    clock,
    fill,
    free_clock,
    made,
    plans,
    rows,
    slices_with_logs,
    sound,
)
from tests.table.writer import row


@pytest.mark.extended("every change of the store is the last one")
@pytest.mark.table_versions(6, 8, 9)
@pytest.mark.parametrize("metadata", [False, True])
def test_any_change_may_be_the_last(version: int, metadata: bool, tmp_path: Path) -> None:
    writer = fill(made(tmp_path, metadata))
    before = rows(writer.table)
    tick = free_clock()
    states = set()

    def work(cut: Storage) -> None:
        table = HoodieTable.open(cut)
        sweep(table)  # as every run does at its start
        pending = plans(table)
        instant = pending[0].time if pending else schedule_compaction(table, ALL, tick, force=True)
        if instant is not None:
            compact(table, instant, tick)

    def after(_: int) -> None:
        assert rows(writer.table) == before
        states.add(tuple(i.state for i in plans(writer.table)))

    cuts = cut_off_at_each_change(writer.table.storage, work, after)
    assert cuts > (20 if metadata else 8)
    assert len(states) == 3  # none, requested, inflight
    assert slices_with_logs(writer.table) == []
    writer.now_ms = tick()
    sound(writer)
    bases = [rel for rel in writer.table.storage.walk_files("") if rel.endswith(".parquet") and ".hoodie" not in rel]
    assert len({rel.split("_")[0] + rel.split("_")[-1] for rel in bases}) == len(bases), "two base files of one slice"
    writer.write([row(3, "p1", 10)], ["k4"])
    sound(writer)


@pytest.mark.extended("every change of the store is the last one, with a batch after each", second=("v9",))
@pytest.mark.table_versions(6, 9)
def test_cut_off_with_writes_in_between(version: int, tmp_path: Path) -> None:
    """Each time it is cut off a batch comes in before it is tried again."""
    writer = fill(made(tmp_path, True))
    instant = schedule_compaction(writer.table, ALL, clock(writer), force=True)
    assert instant is not None
    number = 10

    def work(cut: Storage) -> None:
        sweep(HoodieTable.open(cut))
        if plans(writer.table):
            compact(HoodieTable.open(cut), instant, clock(writer))

    def after(_: int) -> None:
        nonlocal number
        number += 1
        writer.write([row(number, f"p{number % 2}", number), row(0, "p0", number)])
        assert {r["id"]: r["ver"] for r in rows(writer.table)} == {key: r["ver"] for key, r in writer.live.items()}
        assert validate_metadata(writer.table) == []

    cut_off_at_each_change(writer.table.storage, work, after)
    assert plans(writer.table) == []
    sweep(writer.table)
    sound(writer)
