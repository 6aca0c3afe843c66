"""Work is spread evenly, and nothing of it is lost or done twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tagstream.index.lookup import cut, pack

costs = st.lists(st.integers(1, 1_000), max_size=60)


@given(costs, st.integers(1, 9))
def test_every_item_is_in_one_list(items: list[int], tasks: int) -> None:
    numbered = list(enumerate(items))
    for spread in (pack(numbered, lambda i: i[1], tasks), cut(numbered, lambda i: i[1], tasks)):
        assert sorted(item for part in spread for item in part) == numbered
        assert len(spread) <= tasks and all(spread)


@given(costs.filter(bool), st.integers(1, 9))
def test_packed_lists_are_about_even(items: list[int], tasks: int) -> None:
    heaviest = max(sum(part) for part in pack(items, float, tasks))
    # The known bound of longest-first scheduling: 4/3 of the best, which is no less than the mean and the dearest item.
    assert heaviest <= 4 / 3 * max(
        sum(items) / tasks, max(items), 2 * min(items) if len(items) > tasks else 0
    ) + 1e-9 or (len(items) > tasks and heaviest <= sum(items) / tasks + max(items))


@given(costs, st.integers(1, 9))
def test_a_cut_keeps_the_order(items: list[int], tasks: int) -> None:
    assert [item for part in cut(items, float, tasks) for item in part] == items
