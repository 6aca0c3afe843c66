"""Which records are written: one a key, the newest, unless it is a delete."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.services.insert_overwrite import NewRows, RowsByKey
from tagstream.table.services.merged_rows import RowKeeper
from tests.table.services.overwriting import records
from tests.table.writer import SCHEMA, Row, row


def written(found: NewRows) -> list[Row]:
    parts = [t for p in found.partitions for t in found.part(p, 0, 1)]
    for part in parts:
        assert part.column(RECORD_KEY).to_pylist() == part.column("id").to_pylist()
    return sorted((r for t in parts for r in t.drop_columns([RECORD_KEY]).to_pylist()), key=str)


@pytest.mark.parametrize("global_keys", [True, False])
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("memory", [0, 1 << 20])
def test_the_newest_record_of_a_key_counts(global_keys: bool, ordered: bool, memory: int) -> None:
    chance = random.Random(f"{global_keys}{ordered}")
    live: dict[Any, tuple[int, Row, bool]] = {}
    with RowKeeper(memory) as keeper:
        found = RowsByKey(SCHEMA, keeper, global_keys=global_keys)
        count = 0
        for _ in range(7):
            block = [row(chance.randrange(30), f"p{chance.randrange(3)}", chance.randrange(9)) for _ in range(40)]
            deleted = [chance.random() < 0.2 for _ in block]
            for each, gone in zip(block, deleted, strict=True):
                if gone and chance.random() < 0.2:
                    each["ver"] = None  # whatever comes before and after
                each["name"] = f"n{count}"
                count += 1
                key = each["id"] if global_keys else (each["id"], each["part"])
                order = 99 if each["ver"] is None else each["ver"] if ordered else 0
                if key not in live or order >= live[key][0]:
                    live[key] = (order, each, gone)
            found.add(records(block, deleted, ordered=ordered))
        result = found.chosen()
        assert result.records == count
        assert written(result) == sorted((r for _, r, gone in live.values() if not gone), key=str)
        assert result.deletes == sum(gone for _, _, gone in live.values())
        assert result.count == len(live) - result.deletes
        assert sorted(result.keys.to_pylist()) == sorted(r["id"] for _, r, gone in live.values() if not gone)
        for partition in result.partitions:
            parts = [t.column("id").to_pylist() for n in range(3) for t in result.part(partition, n, 3)]
            ids = [key for part in parts for key in part]
            assert ids == sorted(ids)


def test_no_record_is_no_row() -> None:
    with RowKeeper(0) as keeper:
        found = RowsByKey(SCHEMA, keeper, global_keys=True)
        assert found.chosen().count == 0
        found.add(records([row(1, "p1", 1)], [True]))
        assert (found.chosen().count, found.chosen().deletes, len(found.chosen().keys)) == (0, 1, 0)
