"""Tables that leave out their partition columns: what keeps one from being written, schemas with and without them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tagstream.table.errors import UnsupportedTableError
from tagstream.table.keys.time_partition import TimePartition
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.properties import new_properties
from tagstream.table.meta_client.table_config import (
    DROP_KEY,
    MERGE_ON_READ,
    TableConfig,
    drop_problem,
    with_dropped,
    without_fields,
)

CONFIG = TableConfig(
    "t",
    record_key_fields=("id",),
    partition_fields=("day", "zone"),
    ordering_fields=("ts",),
    drops_partition_columns=True,
)
TIMES = TimePartition.from_properties(
    {"hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS", "hoodie.keygen.timebased.output.dateformat": "yyyy"}
)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, None),
        ({"table_type": MERGE_ON_READ, "version": 8}, None),
        (
            {"table_type": MERGE_ON_READ},
            r"merge-on-read table of version 6.*hoodie\.write\.table\.version=8 or 9, or COPY",
        ),
        ({"partition_fields": ()}, "it has no partition field: remove the option"),
        ({"partition_fields": ("day", "place.zone")}, r"place\.zone is inside a struct: use a whole column"),
        ({"record_key_fields": ("id", "zone")}, "record key field zone is a partition column"),
        ({"ordering_fields": ("day",)}, "ordering field day is a partition column"),
        (
            {"time_fields": ("day",), "times": TIMES, "key_generator": "org.apache.hudi.keygen.CustomKeyGenerator"},
            "the partition paths of day are made of times.*transformations",
        ),
    ],
)
def test_what_cannot_be_left_out_is_named(changes: dict[str, Any], problem: str | None, tmp_path: Path) -> None:
    config = replace(CONFIG, **changes)
    assert drop_problem(replace(config, drops_partition_columns=False)) is None
    if problem is None:
        assert drop_problem(config) is None
        return
    with pytest.raises(UnsupportedTableError, match=f"{DROP_KEY}=true.*{problem}"):
        HoodieTable.create(str(tmp_path), config, 0)


def test_the_property_of_a_table() -> None:
    for drops in (True, False):
        properties = new_properties(replace(CONFIG, drops_partition_columns=drops))
        assert properties[DROP_KEY] == str(drops).lower()
        config = TableConfig.from_properties(properties)
        assert config.drops_partition_columns is drops
        assert config.dropped_fields == (("day", "zone") if drops else ())


def test_schemas_with_and_without_the_columns() -> None:
    text = json.dumps({"type": "record", "name": "r", "fields": [{"name": n, "type": "long"} for n in ("day", "id")]})
    assert without_fields(text, ()) is text
    assert without_fields(text, ("zone",)) is text
    assert [f["name"] for f in json.loads(without_fields(text, ("day", "zone")))["fields"]] == ["id"]
    stored = pa.schema([("day", pa.int32()), ("id", pa.int64())])  # Hudi's services name the columns in their commits
    full = pa.schema([("id", pa.int64()), ("day", pa.string()), ("zone", pa.string())])
    assert with_dropped(stored, CONFIG) == full
    assert with_dropped(stored, replace(CONFIG, drops_partition_columns=False)) == stored
