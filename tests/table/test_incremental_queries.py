"""Incremental queries of hudi-rs, which begin at the commit files: what they name is all that such a query looks at."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hudi import HudiQueryType, HudiReadOptions, HudiTableBuilder

from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tests.table.writer import Row, Writer, row


def changed(writer: Writer, after: str, until: str) -> dict[str, int]:
    """Version by key of the rows that were written after an instant, up to and with another."""
    table = HudiTableBuilder.from_base_uri(writer.table.base_path).build()
    options = HudiReadOptions().with_query_type(HudiQueryType.Incremental)
    batches = table.read(options.with_start_timestamp(after).with_end_timestamp(until))
    rows: list[Row] = pa.Table.from_batches(batches).to_pylist() if batches else []
    assert len({r["id"] for r in rows}) == len(rows)
    return {r["id"]: r["ver"] for r in rows}


@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
def test_the_rows_of_some_commits(table_type: str, tmp_path: Path) -> None:
    """One row is written by every commit, one row by each alone, all into one file group."""
    writer = Writer.create(tmp_path, table_type, groups=1)
    instants = [writer.write([row(0, "p0", version), row(version, "p0", version)]) for version in range(1, 6)]
    timeline = writer.table.timeline()
    instants = [
        timeline.completion_time(instant) for instant in instants
    ]  # what such a query goes by from version 8 on
    for first in range(4):
        for last in range(first + 1, 5):
            own = {f"k{version}": version for version in range(first + 2, last + 2)}
            assert changed(writer, instants[first], instants[last]) == {**own, "k0": last + 1}
