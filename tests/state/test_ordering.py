"""Ordering values keep their order and come back as they were."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.state.errors import StateError
from tagstream.state.ordering import decode_ordering, encode_ordering, ordering_kind
from tagstream.table.fields import tuples

CASES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int32(), [-(2**31), -1, 0, 5]),
    (pa.int64(), [-(2**63), -1, 0, 2**63 - 1]),
    (pa.float64(), [float("-inf"), -1e300, -1.5, -5e-324, 0.0, 5e-324, 2.0, float("inf")]),
    (pa.float32(), [-2.5, 0.0, 1.25]),
    (pa.decimal128(18, 2), [Decimal("-9999999999999999.99"), Decimal("-0.01"), Decimal("0.00"), Decimal("1.10")]),
    (pa.decimal128(5, 0), [Decimal(-7), Decimal(3)]),
    (pa.string(), ["", "a", "a\x00", "b", "ä"]),
]


@pytest.mark.parametrize("data_type,values", CASES, ids=[str(t) for t, _ in CASES])
def test_order_and_value_survive(data_type: pa.DataType, values: list[Any]) -> None:
    column = pa.array([None, *values], data_type)
    codes = encode_ordering(column)
    assert sorted(codes[1:].tolist()) == codes[1:].tolist()
    assert len(set(codes[1:].tolist())) == len(values)
    known = np.array([False] + [True] * len(values))
    assert decode_ordering(codes, known, data_type).equals(column)
    assert encode_ordering(column.slice(2)).tolist() == codes[2:].tolist()


@pytest.mark.parametrize("data_type", [pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("ms")], ids=str)
def test_dates_and_timestamps(data_type: pa.DataType) -> None:
    storage = pa.int32() if data_type == pa.date32() else pa.int64()
    column = pa.array([-5, 0, 20_000, None], storage).view(data_type)
    codes = encode_ordering(column)
    assert codes[:3].tolist() == [-5, 0, 20_000]
    assert decode_ordering(codes, np.array([True, True, True, False]), data_type).equals(column)


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
def test_zeros_and_nan_are_in_the_order_of_java(kind: pa.DataType) -> None:
    """As Double.compare has them, by which Hudi merges: an event of -0.0 is late for a row of 0.0."""
    column = pa.array([-1e-30, -0.0, 0.0, float("inf"), float("nan")], kind)
    codes = encode_ordering(column)
    assert (np.diff(codes) > 0).all()
    assert encode_ordering(pa.array([np.float64(np.nan), np.copysign(np.nan, -1)], kind)).tolist() == [codes[4]] * 2
    back = decode_ordering(codes, np.ones(5, np.bool_), kind)
    assert [str(value) for value in back.to_pylist()[1:]] == ["-0.0", "0.0", "inf", "nan"]


@given(st.lists(st.floats(allow_nan=False), min_size=2))
def test_doubles_order(values: list[float]) -> None:
    codes = encode_ordering(pa.array(values, pa.float64())).tolist()
    for a, b in pairwise(values):
        first, second = codes[values.index(a)], codes[values.index(b)]
        assert (a < b) == (first < second)


@pytest.mark.parametrize("data_type", [pa.bool_(), pa.decimal128(19, 0), pa.binary(), pa.list_(pa.int8())], ids=str)
def test_other_types_are_refused_by_name(data_type: pa.DataType) -> None:
    with pytest.raises(StateError, match="ordering field of type"):
        ordering_kind(data_type)


TUPLES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.int32(), st.integers(-2, 2)),
    (pa.timestamp("us", "UTC"), st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))),
    (pa.date32(), st.dates(date(1900, 1, 1), date(2100, 1, 1))),
    (pa.float64(), st.floats(allow_nan=False).map(lambda x: x + 0.0)),
    (pa.string(), st.text(st.sampled_from("\x00\x01\x02aé"), max_size=4)),
    (pa.decimal128(9, 2), st.decimals(-1000, 1000, places=2)),
]


@given(st.data())
def test_several_fields_order_as_their_tuples(data: st.DataObject) -> None:
    """Bytes compare as the members in turn, and the members come back; a row that lacks a member has no value."""
    members = data.draw(st.lists(st.sampled_from(TUPLES), min_size=2, max_size=4))
    kind = pa.struct([(f"f{i}", arrow) for i, (arrow, _) in enumerate(members)])
    rows = data.draw(st.lists(st.tuples(*(values for _, values in members)), min_size=1, max_size=6))
    columns = [pa.array([None, *(row[i] for row in rows)], arrow) for i, (arrow, _) in enumerate(members)]
    column = tuples(columns, kind.names)
    codes = encode_ordering(column)
    assert codes[0] == b"" and ordering_kind(kind) == "tuple"
    for a, first in zip(rows, codes[1:], strict=True):
        for b, second in zip(rows, codes[1:], strict=True):
            assert (a < b, a == b) == (first < second, first == second)
    known = np.array([False] + [True] * len(rows))
    assert decode_ordering(codes, known, kind).equals(column)
    assert encode_ordering(column.slice(1)).tolist() == codes[1:].tolist()


def test_the_bytes_of_several_fields_stay_as_they_are() -> None:
    """An index that was written keeps being understood."""
    column = tuples([pa.array([-1], pa.int64()), pa.array(["a\x00"]), pa.array([1.0])], ("a", "b", "c"))
    assert encode_ordering(column)[0].hex() == "7fffffffffffffff" + "6100ff0001" + "bff0000000000000"


def test_a_member_that_has_no_order_is_refused_by_name() -> None:
    with pytest.raises(StateError, match="ordering field of type bool"):
        ordering_kind(pa.struct([("a", pa.int64()), ("b", pa.bool_())]))
