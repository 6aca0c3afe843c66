"""Numbers in bytes, column by column, against Python's own."""

from __future__ import annotations

from decimal import Context, Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.schema.decimals import decimal_text, to_decimals

WIDE = Context(prec=90)


@given(st.lists(st.integers(-(10**37), 10**37), min_size=1, max_size=30), st.integers(0, 6), st.integers(0, 5))
def test_decimals_of_any_length(numbers: list[int], scale: int, more: int) -> None:
    raw = [n.to_bytes((n.bit_length() + 8) // 8 + more, "big", signed=True) for n in numbers]
    made, wrong = to_decimals(pa.array(raw, pa.binary()), scale)
    assert not wrong.any()
    assert made.to_pylist() == [Decimal(n).scaleb(-scale, WIDE) for n in numbers]
    assert [Decimal(decimal_text(r, scale) or "x") for r in raw] == [Decimal(n).scaleb(-scale, WIDE) for n in numbers]


def test_numbers_that_are_too_wide() -> None:
    raw = [n.to_bytes(20, "big", signed=True) for n in (10**39, -(10**40), 5)]
    assert to_decimals(pa.array([*raw, b""], pa.binary()), 2)[1].tolist() == [True, True, False, True]
    assert decimal_text((10**5000).to_bytes(2200, "big", signed=True), 2) == "1" + "0" * 4998 + ".00"
