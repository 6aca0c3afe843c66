"""Log rows beside base rows: in their place, in bounded memory, with every kind of column."""

from __future__ import annotations

import datetime as dt
import decimal
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.merged_rows import RowKeeper, _replaced
from tests.table.services.compaction_compacting import made, plan_and_compact
from tests.table.writer import row

ROWS = pa.table({"k": [f"k{n}" for n in range(1000)], "n": range(1000)})


def test_what_goes_over_the_limit_lies_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = pa.total_allocated_bytes()
    with RowKeeper(ROWS.nbytes * 3) as keeper:
        kept = [keeper.keep(pa.table(ROWS.to_pydict())) for _ in range(10)]
        assert all(each.equals(ROWS) for each in kept)
        assert keeper.spilled == 7 * ROWS.nbytes
        assert pa.total_allocated_bytes() - before < 5 * ROWS.nbytes
        assert os.listdir(tmp_path) == []  # nothing is left whatever happens
        whole = pa.concat_tables(kept)
        assert whole.num_rows == 10_000
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "values",
    [
        ["a", None, "ccc", "d"],
        [b"a", b"", None, b"d"],
        [1, None, 3, 4],
        [True, None, False, True],
        [decimal.Decimal("1.25"), None, decimal.Decimal("-3.50"), decimal.Decimal("4.00")],
        [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), None, dt.datetime(1960, 1, 1, tzinfo=dt.UTC), None],
        [dt.date(2026, 1, 1), None, None, dt.date(1, 1, 1)],
        [{"x": 1, "y": [1, 2]}, None, {"x": None, "y": []}, {"x": 4, "y": None}],
        [[1, None], [], None, [4]],
    ],
)
def test_rows_are_replaced_in_their_place(values: list[object]) -> None:
    old = pa.table({"v": pa.array(values)})
    new = pa.table({"v": pa.array([values[3], values[1]], old.schema.field("v").type)})
    at = np.array([0, 2], np.int64)
    kept = np.ones(4, np.bool_)
    assert _replaced(old, at, new, kept)["v"].to_pylist() == [values[3], values[1], values[1], values[3]]
    chunked = pa.concat_tables([old.slice(0, 1), old.slice(1)])
    assert _replaced(chunked, at, new, kept).equals(_replaced(old, at, new, kept))
    kept[1] = False
    assert _replaced(old, at, new, kept)["v"].to_pylist() == [values[3], values[1], values[3]]


def test_updates_stay_where_the_rows_were(tmp_path: Path) -> None:
    """A file that was sorted stays sorted."""
    writer = made(tmp_path, groups=1).with_options(inserts_to_base_files=True)
    writer.write([row(key, "p0", 1) for key in range(100, 140)])
    writer.with_options(inserts_to_base_files=False)
    writer.write([row(key, "p0", 2) for key in range(139, 100, -7)] + [row(200, "p0", 1)], ["k110"])
    plan_and_compact(writer)
    found = read_snapshot(writer.table, ["id"])["id"].to_pylist()
    assert found == [f"k{key}" for key in (*range(100, 110), *range(111, 140), 200)]
