"""What was sent and what was not: every record against Python's own parser."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagstream.state.tag_batch import FLAG_DELETE, FLAG_NO_PARTITION
from tagstream.streaming.source.decode.columns import unpack_absent
from tagstream.streaming.source.decode.key_decoder import FLAG_BAD, KeyDecoder
from tagstream.streaming.source.decode.plain_json import not_sent
from tagstream.table.keys.generators import KEYGEN_PACKAGE
from tagstream.table.keys.keys import KeyGenerator

SCHEMA = pa.schema([
    pa.field("id", pa.string(), nullable=False), pa.field("part", pa.string()), pa.field("ts", pa.int64()),
    pa.field("a", pa.string()), pa.field("b", pa.int32()), pa.field("c", pa.struct([pa.field("a", pa.string())])),
    pa.field("need", pa.string(), nullable=False),
])  # fmt: skip
NAMES = SCHEMA.names


def decoder(*, global_index: bool = True, facts: Any = None, schema: pa.Schema = SCHEMA) -> KeyDecoder:
    generator = KeyGenerator.create(f"{KEYGEN_PACKAGE}SimpleKeyGenerator", ("id",), ("part",), False, False)
    return KeyDecoder(schema, generator, ("ts",), global_index, facts, partial=True)


def raw(texts: list[str]) -> pa.RecordBatch:
    n = len(texts)
    return pa.RecordBatch.from_pydict({
        "key": pa.nulls(n, pa.binary()), "value": pa.array([t.encode() for t in texts], pa.binary()),
        "src": pa.nulls(n, pa.string()), "pos_hi": pa.array(np.zeros(n, np.int64)), "pos_lo": pa.array(np.arange(n)),
    })  # fmt: skip


values = st.sampled_from([None, "x", 'a "b": null', "\\", '"a":', "ä"])
records = st.fixed_dictionaries(
    {"id": st.sampled_from(["k", "l"]), "ts": st.integers(0, 9)},
    optional={
        "part": values, "a": values, "b": st.none() | st.integers(-5, 5), "need": st.just("y"),
        "c": st.none() | st.fixed_dictionaries({}, optional={"a": values}), "other": st.fixed_dictionaries({"a": values}),
        "_hoodie_is_deleted": st.booleans(),
    },
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(records, max_size=12), st.booleans(), st.booleans())
def test_what_was_not_sent(rows: list[dict[str, Any]], escaped: bool, spaces: bool) -> None:
    separators = (" , ", " : ") if spaces else (",", ":")
    texts = [json.dumps(r, ensure_ascii=escaped, separators=separators) for r in rows]
    keyed = decoder().keys(raw(texts))
    bits = unpack_absent(keyed.column("absent"), len(SCHEMA))
    flags = keyed.column("flags").to_numpy()
    for i, r in enumerate(rows):
        if r.get("_hoodie_is_deleted"):
            assert flags[i] & (FLAG_DELETE | FLAG_BAD)
            assert not bits[i].any()
            continue
        if not flags[i] & FLAG_BAD:
            assert [n for n, absent in zip(NAMES, bits[i], strict=True) if absent] == [n for n in NAMES if n not in r]
            assert bool(flags[i] & FLAG_NO_PARTITION) == ("part" not in r)
            found = keyed.column("row")[i].as_py()
            for name in NAMES:
                if name in r and name != "c":
                    assert found[name] == r[name]


@pytest.mark.parametrize("more", [0, 1, 2])
def test_a_table_with_a_column_for_the_mark_of_deletes(more: int) -> None:
    """Wherever it is among the columns, and with however many of them: it is the columns behind it that were mistaken."""
    mark = pa.field("_hoodie_is_deleted", pa.bool_(), nullable=False)
    added = [pa.field(f"new{n}", pa.int32()) for n in range(more)]
    schema = pa.schema([*SCHEMA, mark, *added])
    keyed = decoder(schema=schema).keys(
        raw(['{"id": "k", "ts": 1, "a": "x", "need": "y", "_hoodie_is_deleted": false}'])
    )
    bits = unpack_absent(keyed.column("absent"), len(schema))
    assert [n for n, absent in zip(schema.names, bits[0], strict=True) if absent] == [
        "part",
        "b",
        "c",
        *(f.name for f in added),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"id": "k", "ts": 1, "need": null}', "field need is null or missing, which the schema forbids"),
        ('{"id": "k", "a": "x"}', "ordering field ts is null"),
        ('{"ts": 1, "a": "x"}', "id"),
    ],
)
def test_a_partial_record_that_is_bad(text: str, reason: str) -> None:
    keyed = decoder().keys(raw([text]))
    assert reason in keyed.column("reason")[0].as_py()


def test_without_a_global_index_a_record_names_its_partition() -> None:
    keyed = decoder(global_index=False).keys(raw(['{"id": "k", "ts": 1}', '{"id": "k", "ts": 1, "part": "p"}']))
    assert "names no partition" in keyed.column("reason")[0].as_py()
    assert keyed.column("reason")[1].as_py() is None


def test_a_deep_field_that_nobody_reads() -> None:
    deep = "[" * 3000 + "]" * 3000
    column = pa.array([None, None], pa.string())
    texts = pa.array([f'{{"z": {deep}, "y": {{}}, "a": null}}', '{"z": "\\u0061"}'])
    assert not_sent(texts, ("a",), column, np.ones(2, np.bool_)).tolist() == [False, True]
    assert pc.count_substring(texts, "{").to_pylist() == [2, 1]
