"""Generated histories of schema changes: every reader gives the rows of a dictionary that was told the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tests.streaming.schema_history import history
from tests.support.hudi_rs import read_table


@pytest.mark.extended("longer random histories", first=("1-COPY_ON_WRITE",))
@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
@pytest.mark.parametrize("seed", range(15))
def test_histories(tmp_path: Path, table_type: str, seed: int) -> None:
    for run, wanted in history(tmp_path, table_type, seed):
        theirs = read_table(run.table.base_path, meta_columns=False).to_pylist()
        for who, rows in (("ours", run.rows()), ("hudi-rs", theirs)):
            assert len(rows) == len(wanted), who
            assert {row["id"]: row for row in rows} == wanted, (who, run.batch_id)
