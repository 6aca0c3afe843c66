"""Tables whose columns have defaults, read and written on by real Hudi."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tagstream.streaming.source.decode.make_format import PLAIN
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.schema.schema import META_COLUMNS
from tests.interop.hudi_spark import HudiSpark
from tests.streaming.pipeline import Pipeline
from tests.support import cdc
from tests.support.hudi_rs import read_table

pytestmark = pytest.mark.hudi_jar
INNER = {"type": "record", "name": "In", "fields": [
    {"name": "q", "type": ["int", "null"], "default": 3}, {"name": "r", "type": "int", "default": 4}]}  # fmt: skip
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "string"},
    {"name": "part", "type": "string"},
    {"name": "ts", "type": "long"},
    {"name": "n", "type": "int", "default": 5},
    {"name": "maybe", "type": ["int", "null"], "default": 7},
    {"name": "text", "type": ["string", "null"], "default": "none"},
    {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
    {"name": "pair", "type": ["null", INNER], "default": None},
    {"name": "_hoodie_is_deleted", "type": ["boolean", "null"], "default": False},
]
SCHEMA = json.dumps({"type": "record", "name": "r", "namespace": "n", "fields": FIELDS})


def rows_of(found: pa.Table) -> dict[str, dict[str, Any]]:
    rows = found.drop_columns([c for c in META_COLUMNS if c in found.column_names]).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row for row in rows}


@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
def test_columns_with_defaults(hudi: HudiSpark, tmp_path: Path, table_type: str) -> None:
    """Records that lack columns have the defaults; an update of ours, one of Hudi's and one of ours follow each other."""
    run = Pipeline.create(tmp_path, table_type, SCHEMA, ["id"], ["part"], PLAIN, ["ts"])
    filled = {"n": 5, "maybe": 7, "text": "none", "tags": [], "pair": None, "_hoodie_is_deleted": False}
    wanted: dict[str, dict[str, Any]] = {}
    offset = 0

    def batch(*rows: dict[str, Any], **expected: Any) -> None:
        nonlocal offset
        messages = []
        for row in rows:
            offset += 1
            messages.append(cdc.Message(0, offset, None, json.dumps({**row, "ts": offset}).encode(), {}))
            wanted[row["id"]] = filled | {**row, "ts": offset} | expected
        run.batch(messages)
        assert not run.bad

    def check() -> None:
        table = run.table.reload()
        for found in (hudi.read(table.base_path), read_table(table.base_path), read_snapshot(table)):
            assert rows_of(found) == wanted

    batch(*({"id": f"k{n}", "part": "p"} for n in range(6)))
    batch({"id": "k1", "part": "p", "pair": {}}, pair={"q": 3, "r": 4})
    batch({"id": "k2", "part": "p", "maybe": None, "n": 6, "pair": {"q": None, "r": 1}})
    check()

    mine = read_snapshot(run.table.reload())
    changed = mine.drop_columns([c for c in META_COLUMNS if c in mine.column_names]).filter(
        pa.array([True] * 2 + [False] * 4)
    )
    later = pa.array([offset + 1] * 2, pa.int64())
    changed = changed.set_column(changed.schema.get_field_index("ts"), changed.schema.field("ts"), later)
    offset += 1
    if table_type == COPY_ON_WRITE:  # its index of this test does not look for new records in logs
        hudi.write(run.table.reload(), changed, hudi.index("SIMPLE"))
        wanted |= {row["id"]: row for row in changed.to_pylist()}
        check()
