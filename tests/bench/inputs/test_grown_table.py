"""Tables of many file groups and instants: their rows, their timeline, and batches that are the same for all sizes."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from bench.inputs.grown_table import FEW_ROWS, ROWS, TOUCHED, Grown, make_grown
from tagstream.bootstrap.plan import plan_bootstrap
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tests.support.compare import compare
from tests.support.hudi_rs import read_table


@pytest.mark.parametrize(("table_type", "version"), [(MERGE_ON_READ, 6), (COPY_ON_WRITE, 9)])
def test_a_table_is_what_it_says(table_type: str, version: int, tmp_path: Path) -> None:
    grown = Grown(20, 33, (), table_type, version)
    folder = make_grown(grown, tmp_path)
    expected = pq.read_table(folder / "expected.parquet")
    assert expected.num_rows == grown.keys == TOUCHED * ROWS + 10 * FEW_ROWS
    assert not compare(expected, read_table(folder / "table", meta_columns=False), ["id"])
    table = HoodieTable.open(str(folder / "table"))
    assert len(table.timeline().completed_writes) == len(table.timeline().instants) == 33
    plan = plan_bootstrap(table)
    assert (len(plan.slices), plan.expected_rows, plan.missing) == (20, grown.keys, ())


def test_batches_are_the_same_in_tables_of_all_sizes(tmp_path: Path) -> None:
    small, large = (make_grown(Grown(n, 1, (10, 50), MERGE_ON_READ, 6), tmp_path) for n in (10, 100))
    expected = pq.read_table(small / "expected.parquet")
    for name, size in (("batch-00000.json", 10), ("batch-00001.json", 50)):
        lines = [(folder / "batches" / name).read_text().splitlines() for folder in (small, large)]
        assert lines[0] == lines[1]
        assert len(lines[0]) == size
    newest = pc.sum(pc.greater_equal(expected["ts"], 1_700_000_000_000 + 2 * 10_000_000))  # of the second batch
    assert newest.as_py() == 50
    assert pq.read_table(large / "expected.parquet").slice(0, expected.num_rows).equals(expected)


def test_what_cannot_be_made_is_refused() -> None:
    with pytest.raises(ValueError, match="come in tens"):
        Grown(15, 1, (), MERGE_ON_READ, 6)
    with pytest.raises(ValueError, match="tens of records"):
        Grown(10, 1, (10_000,), MERGE_ON_READ, 6)
