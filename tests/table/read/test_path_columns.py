"""Partition columns that files leave out, by the path of their partition."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tagstream.table.errors import UnsupportedTableError
from tagstream.table.meta_client.table_config import TableConfig
from tagstream.table.read.slice_reader import path_columns, with_path_columns

CONFIG = TableConfig("t", partition_fields=("day", "zone"), drops_partition_columns=True)


def test_only_what_is_asked_for_and_left_out() -> None:
    assert path_columns(CONFIG, "day=1/zone=a%2Fb", ("zone", "id")) == {"zone": "a/b"}
    assert path_columns(CONFIG, "1/__HIVE_DEFAULT_PARTITION__", ("zone", "day")) == {"day": "1", "zone": None}
    assert path_columns(CONFIG, "1/2/3", ("id",)) == {}
    assert path_columns(TableConfig("t", partition_fields=("day",)), "1", ("day",)) == {}


def test_a_path_that_does_not_tell() -> None:
    with pytest.raises(UnsupportedTableError, match="'1/2/3' does not have one folder for each"):
        path_columns(CONFIG, "1/2/3", ("day",))


def test_every_row_has_the_value_whatever_the_file_has() -> None:
    rows = pa.table({"day": pa.array([None, None], pa.int32()), "id": ["a", "b"]})
    found = with_path_columns(rows, {"day": "1", "zone": None})
    assert found.to_pydict() == {"day": ["1", "1"], "id": ["a", "b"], "zone": [None, None]}
    assert found.schema.field("zone").type == pa.string()
