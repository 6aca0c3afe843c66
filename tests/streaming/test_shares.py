"""Work shared evenly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.streaming.shares import least_loaded


@pytest.mark.parametrize(
    ("weights", "shares", "found"),
    [([], 2, []), ([5, 3, 3, 1], 2, [0, 1, 1, 0]), ([1, 1, 1], 3, [0, 1, 2]), ([7, 1, 1], 1, [0, 0, 0])],
)
def test_each_goes_where_least_is(weights: list[int], shares: int, found: list[int]) -> None:
    assert least_loaded(iter(weights), shares) == found


@given(st.lists(st.integers(0, 1000)), st.integers(1, 5))
def test_no_share_has_more_than_the_fairest_and_one_weight(weights: list[int], shares: int) -> None:
    load = [0] * shares
    for weight, share in zip(weights, least_loaded(weights, shares), strict=True):
        load[share] += weight
    assert max(load) <= sum(weights) / shares + max(weights, default=0)
