"""Ordering values of several fields: their columns compared in turn, and null where a member is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.fields import greater, ordering_column, ordering_type, ranks, tuples
from tagstream.table.read.snapshot import read_snapshot
from tests.support.hudi_rs import read_table
from tests.table.writer import SCHEMA, Writer

_MEMBER = st.one_of(st.none(), st.integers(-2, 2))
_ROWS = st.lists(st.tuples(_MEMBER, st.one_of(st.none(), st.sampled_from(["", "a", "b"]))), min_size=1, max_size=12)
KIND = pa.struct([("a", pa.int64()), ("b", pa.string())])


def column(rows: list[tuple[Any, ...]]) -> pa.Array:
    members = [pa.array([row[0] for row in rows], pa.int64()), pa.array([row[1] for row in rows], pa.string())]
    return tuples(members, ("a", "b"))


@given(_ROWS, st.data())
def test_greater_and_ranks_are_those_of_tuples(rows: list[tuple[Any, ...]], data: st.DataObject) -> None:
    others = data.draw(st.permutations(rows))
    for one, other, found in zip(rows, others, greater(column(rows), column(others)).to_pylist(), strict=True):
        assert found == (None if None in one + other else one > other)
    known = sorted({row for row in rows if None not in row})
    places = ranks(column(rows)).tolist()
    assert [place > 0 for place in places] == [None not in row for row in rows]
    for one, first in zip(rows, places, strict=True):
        for other, second in zip(rows, places, strict=True):
            if one in known and other in known:
                assert (first < second, first == second) == (one < other, one == other)


def test_one_field_is_its_own_column() -> None:
    rows = pa.table({"a": [1, None, 3], "b": ["x", "y", "z"]})
    assert ordering_column(rows, ()) is None and ordering_type(rows.schema, ()) is None
    assert ordering_column(rows, ("a",)).equals(pa.array([1, None, 3]))
    assert ordering_type(rows.schema, ("a",)) == pa.int64()
    both = ordering_column(rows, ("a", "b"))
    assert both.type == ordering_type(rows.schema, ("a", "b")) == KIND
    assert both.to_pylist() == [{"a": 1, "b": "x"}, None, {"a": 3, "b": "z"}]
    assert ranks(pa.array([5, None, 5, 7])).tolist() == [1, 0, 1, 2]
    with pytest.raises(KeyError):
        ordering_type(rows.schema, ("a", "c"))


def test_slices_of_tuples() -> None:
    whole = column([(1, "b"), (None, "a"), (2, "a"), (1, "a")])
    assert ranks(whole.slice(1)).tolist()[0] == 0
    assert greater(whole.slice(2), whole.slice(0, 2).take(pa.array([0, 0]))).to_pylist() == [True, False]
    assert ranks(whole.slice(0, 0)).tolist() == []


@pytest.mark.parametrize(
    "kind", [pa.float64(), pa.float32(), pa.struct([("n", pa.int64()), ("f", pa.float64())])], ids=str
)
def test_zeros_and_nan_are_in_the_order_of_java(kind: pa.DataType) -> None:
    numbers = pa.array([-1.5, -0.0, 0.0, 1.5, float("nan"), None])
    of_kind = tuples([pa.array([7] * 6), numbers], ("n", "f")) if pa.types.is_struct(kind) else numbers.cast(kind)
    *places, of_null = ranks(of_kind).tolist()
    assert of_null == 0 and places == sorted({*places})
    assert greater(of_kind.slice(1), of_kind.slice(0, 5)).to_pylist() == [True] * 4 + [None]
    assert greater(of_kind, of_kind).to_pylist() == [False] * 5 + [None]


@pytest.mark.parametrize(("base", "log", "stays"), [(0.0, -0.0, "base"), (-0.0, 0.0, "log"), (-0.0, -0.0, "log")])
def test_another_reader_agrees_on_zeros(tmp_path: Path, base: float, log: float, stays: str) -> None:
    schema = SCHEMA.set(SCHEMA.get_field_index("ver"), pa.field("ver", pa.float64()))
    writer = Writer.create(tmp_path, "MERGE_ON_READ", schema=schema)
    writer.options = replace(writer.options, inserts_to_base_files=True)
    for value, name in ((base, "base"), (log, "log")):
        writer.write([{"id": "k", "part": "p", "ver": value, "name": name, "amount": 1.0}])
    assert read_table(writer.table.base_path)["name"].to_pylist() == [stays]
    assert read_snapshot(writer.table.reload())["name"].to_pylist() == [stays]
