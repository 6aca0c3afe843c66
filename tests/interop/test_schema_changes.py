"""Tables whose files are of different ages, read and written on by real Hudi."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.schema.schema import META_COLUMNS
from tests.interop.hudi_spark import HudiSpark
from tests.streaming.schema_history import Row, history
from tests.support.hudi_rs import read_table

pytestmark = pytest.mark.hudi_jar


def rows_of(found: pa.Table) -> dict[str, Row]:
    rows = found.drop_columns([c for c in META_COLUMNS if c in found.column_names]).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row for row in rows}


@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
def test_thirty_histories(hudi: HudiSpark, tmp_path: Path, table_type: str) -> None:
    """Half of them of each table type; read in the middle and at the end."""
    for seed in range(100, 115):
        for run, wanted in history(tmp_path / str(seed), table_type, seed):
            if run.batch_id in (4, 8):
                place = run.table.base_path
                for who, found in (
                    ("Hudi", hudi.read(place)),
                    ("hudi-rs", read_table(place)),
                    ("ours", read_snapshot(run.table)),
                ):
                    assert rows_of(found) == wanted, f"{who}, seed {seed}, step {run.batch_id}"


@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
@pytest.mark.parametrize("seed", [3, 8])
def test_files_of_different_ages(hudi: HudiSpark, tmp_path: Path, table_type: str, seed: int) -> None:
    """Every third step is read by Hudi, and the last table is written to by it.

    Not a merge-on-read one, whose new records lie in logs: Hudi's index of this test does not look there.
    """
    run, wanted = None, {}
    for run, wanted in history(tmp_path, table_type, seed):
        if run.batch_id % 3 == 0 or run.batch_id == 8:
            assert rows_of(hudi.read(run.table.base_path)) == wanted, f"Hudi {hudi.version}, step {run.batch_id}"
    assert run is not None
    table = run.table.reload()
    if table_type == MERGE_ON_READ:
        return
    mine = read_snapshot(table)
    changed = mine.drop_columns([c for c in META_COLUMNS if c in mine.column_names]).slice(0, 2)
    later = pa.array([10_000] * changed.num_rows, pa.int64())
    changed = changed.set_column(changed.schema.get_field_index("ts"), changed.schema.field("ts"), later)
    hudi.write(table, changed, hudi.index("SIMPLE"))
    wanted |= {row["id"]: row for row in changed.to_pylist()}
    for found in (hudi.read(table.base_path), read_table(table.base_path), read_snapshot(table.reload())):
        assert rows_of(found) == wanted
