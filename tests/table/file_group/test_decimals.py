"""Decimals as whole numbers."""

from __future__ import annotations

from decimal import Context, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.file_group.ordering_wrapper import unscaled


@given(st.integers(1 - 10**38, 10**38 - 1), st.integers(0, 38), st.integers(0, 3))
def test_no_digit_is_lost(number: int, scale: int, zeros: int) -> None:
    value = Context(prec=50).scaleb(Decimal(number), -scale)
    assert unscaled(value, scale) == number
    assert unscaled(value, scale + zeros) == number * 10**zeros


def test_zeros_behind_the_point_are_no_digits() -> None:
    assert unscaled(Decimal("1.500"), 1) == 15
    assert unscaled(Decimal("1E+3"), 2) == 100_000


@pytest.mark.parametrize("text", ["1.55", "NaN", "Infinity"])
def test_what_has_no_such_form(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number|more than 1 digits"):
        unscaled(Decimal(text), 1)
