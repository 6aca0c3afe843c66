"""Records without a partition, and records with one key: against dictionaries of the same records."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.index.base import WRITTEN_SCHEMA
from tagstream.streaming.batch.append import one_place_each
from tagstream.streaming.batch.bulk_insert import by_partition


def test_a_record_without_a_partition_has_a_lane() -> None:
    """Bad records have neither partition nor state key, and any task may quarantine them."""
    table = pa.table({"part": pa.array([None, "a", None]), "skey": pa.array([None, b"gk", None], pa.binary())})
    assert by_partition(table, 3).tolist()[::2] == [0, 0]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.sampled_from("12")), max_size=30))
@pytest.mark.parametrize("by_path", [False, True])
def test_a_key_has_its_last_place(by_path: bool, rows: list[tuple[str, str, str]]) -> None:
    columns = [pa.array([row[i] for row in rows], pa.string()) for i in range(3)]
    written = pa.Table.from_arrays([*columns, pa.array(np.ones(len(rows), np.bool_))], schema=WRITTEN_SCHEMA)
    expected = {(row[:2] if by_path else row[0]): row for row in rows}
    found = one_place_each(written, by_partition=by_path).select(["record_key", "partition_path", "file_id"])
    assert sorted(tuple(row.values()) for row in found.to_pylist()) == sorted(expected.values())
