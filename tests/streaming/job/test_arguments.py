"""What a caller of ``tagstream.upsert`` writes, and what it means or how it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tagstream.streaming.job.upsert import classic_session, default_name, entries_of, trigger_of
from tagstream.table.errors import ConfigError

NONE: dict[str, Any] = {"key": None, "partition_by": None, "order_by": None}


def told(columns: dict[str, Any] | None = None, options: Any = None) -> dict[str, str]:
    """Key and value of what the arguments say, the two places left out."""
    entries = entries_of("t", Path("c"), {**NONE, **(columns or {})}, options)
    assert [(e.key, e.value) for e in entries[-2:]] == [("hoodie.base.path", "t"), ("--checkpoint-dir", "c")]
    return {entry.key: entry.value for entry in entries[:-2]}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, {"processingTime": "0 seconds"}),
        ("10 seconds", {"processingTime": "10 seconds"}),
        ("1 minute 30 SECONDS", {"processingTime": "1 minute 30 SECONDS"}),
        ({"processingTime": "500 milliseconds"}, {"processingTime": "500 milliseconds"}),
        ("availableNow", {"availableNow": True}),
        ({"availableNow": True}, {"availableNow": True}),
    ],
)
def test_triggers(given: Any, expected: dict[str, Any]) -> None:
    assert trigger_of(given) == expected


@pytest.mark.parametrize(
    "given", ["", "10", "often", "ten seconds", "-1 seconds", 10, {}, {"once": True}, {"continuous": "1 second"},
              {"availableNow": False}, {"processingTime": 5}, ["10 seconds"], {"availableNow": True, "once": True}],
)  # fmt: skip
def test_other_triggers_are_refused_in_one_line(given: Any) -> None:
    with pytest.raises(ConfigError, match="^trigger ") as refused:
        trigger_of(given)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"key": "id"}, {"hoodie.datasource.write.recordkey.field": "id"}),
        ({"key": ["id", "sub"]}, {"hoodie.datasource.write.recordkey.field": "id,sub"}),
        ({"key": "id,sub"}, {"hoodie.datasource.write.recordkey.field": "id,sub"}),
        ({"partition_by": ("day",)}, {"hoodie.datasource.write.partitionpath.field": "day"}),
        ({"partition_by": []}, {"hoodie.datasource.write.partitionpath.field": ""}),
        ({"order_by": ["epoch", "step"]}, {"hoodie.table.ordering.fields": "epoch,step"}),
    ],
)
def test_columns_as_text_or_list(columns: dict[str, Any], expected: dict[str, str]) -> None:
    assert told(columns) == expected


def test_options_are_the_jobs_keys() -> None:
    given = {"hoodie.clean.automatic": False, "--table-type": "MERGE_ON_READ", "index.local.dir": Path("/x"),
             "hoodie.datasource.write.partitionpath.field": ["a", "b"], "spark.sql.shuffle.partitions": 2}  # fmt: skip
    assert told(options=given) == {
        "hoodie.clean.automatic": "false",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "index.local.dir": "/x",
        "hoodie.datasource.write.partitionpath.field": "a,b",
        "spark.sql.shuffle.partitions": "2",
    }


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        ({"key": 1}, {}, r"key is 1; pass a column's name as text, or a list of names: key=\["),
        ({"key": ["id", 2]}, {}, r"key is \['id', 2\]"),
        ({"key": ""}, {}, "key is empty; name the columns"),
        ({"key": []}, {}, "key is empty"),
        ({"key": "id"}, {"hoodie.datasource.write.recordkey.field": "id"}, "the columns key are set twice"),
        ({"order_by": "ts"}, {"hoodie.table.precombine.field": "ts"}, "the columns order_by are set twice"),
        ({}, {"table-type": "MERGE_ON_READ"}, r"table-type is not a key; did you mean --table-type \(hoodie"),
        ({}, {"table_type": "MERGE_ON_READ"}, "did you mean --table-type"),
        ({}, {"recordkey": "id"}, "did you mean the argument key of upsert"),
        ({}, {"precombine": "ts"}, "did you mean the argument order_by of upsert"),
        ({}, {"xyz": 1}, r"xyz is not a key; docs/\S*configuration.md lists them"),
        ({}, {"hoodie.clean.automatic": None}, "hoodie.clean.automatic is None; leave the key out"),
        ({}, {"hoodie.base.path": "x"}, "hoodie.base.path is the argument path of upsert"),
        ({}, {"--checkpoint-dir": "x"}, "--checkpoint-dir is the argument checkpoint of upsert"),
        ({}, {"--continuous": True}, "--continuous is the argument trigger of upsert"),
        ({}, {3: 4}, "3 is a int; keys are text"),
        ({}, "hoodie.x=1", "options is a str; pass a dict"),
    ],
)
def test_what_is_wrong_is_named(columns: dict[str, Any], options: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        told(columns, options)


@pytest.mark.parametrize(("path", "checkpoint"), [(None, "c"), ("", "c"), ("t", 3), ("t", "")])
def test_places_are_text_or_paths(path: Any, checkpoint: Any) -> None:
    with pytest.raises(ConfigError, match="pass a folder as text or a Path"):
        entries_of(path, checkpoint, NONE, None)


def test_a_new_table_is_called_as_its_folder() -> None:
    places = ("out/orders", "s3a://bucket/lake/orders/", Path("orders"))
    assert [default_name(place) for place in places] == ["orders"] * 3


def test_what_is_not_a_frame_of_spark_is_named_with_its_package() -> None:
    with pytest.raises(ConfigError, match=r"df is a pandas\.DataFrame; pass a streaming DataFrame of PySpark"):
        classic_session(pd.DataFrame({"a": [1]}))
    with pytest.raises(ConfigError, match="df is a str; pass"):
        classic_session("orders")
