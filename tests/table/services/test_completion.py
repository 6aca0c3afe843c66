"""Completion times of a timeline that has none: after an action was begun, before the next one was, whatever files say."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.services.upgrade_layouts import completion_times

T = "202601010000{:05d}"
NOW = "20270101000000000"


@pytest.mark.parametrize(
    ("begun", "file", "following", "completed"),
    [
        (T.format(1000), T.format(3000), [], T.format(3000)),  # what the file says
        (T.format(1000), T.format(900), [], T.format(1001)),  # a clock that stepped back, or a store's coarse one
        (T.format(1000), None, [], T.format(1001)),  # an old archive that does not say
        (T.format(1000), T.format(9000), [T.format(5000)], T.format(4999)),  # a copied table
        (T.format(1000), T.format(9000), [T.format(1001)], T.format(1000)),  # no time is left in between
        (T.format(1000), "20280101000000000", [], NOW),  # a file of the future
        ("20260101000000", "20260101000002500", [], "20260101000002500"),  # instants of old tables have no milliseconds
        ("20260101000000", None, ["20260101000001"], "20260101000001000"),
        ("20251231235959999", None, [], "20260101000000000"),
        ("00000000000000010", None, [], "00000000000000011"),
    ],
)
def test_one_action(begun: str, file: str | None, following: list[str], completed: str) -> None:
    assert completion_times({(begun, "commit"): file}, following, NOW) == {(begun, "commit"): completed}


def test_a_savepoint_is_as_late_as_its_file() -> None:
    """It has the time of its commit, and may be made any time later."""
    found = completion_times(
        {(T.format(1000), "commit"): T.format(8000), (T.format(1000), "savepoint"): T.format(9000)},
        [T.format(5000)],
        NOW,
    )
    assert found == {(T.format(1000), "commit"): T.format(4999), (T.format(1000), "savepoint"): T.format(9000)}


instants = st.integers(0, 10_000_000).map(
    lambda ms: f"{datetime(2026, 1, 1) + timedelta(milliseconds=ms):%Y%m%d%H%M%S}{ms % 1000:03d}"
)


@given(st.dictionaries(instants, st.none() | instants, min_size=1, max_size=12), st.lists(instants, max_size=4))
def test_any_timeline(wanted: dict[str, str | None], pending: list[str]) -> None:
    found = completion_times({(time, "commit"): file for time, file in wanted.items()}, pending, NOW)
    assert found.keys() == {(time, "commit") for time in wanted}
    begun = sorted({*wanted, *pending})
    for (time, _), completed in found.items():
        following = next((other for other in begun if other > time), None)
        assert len(completed) == 17
        assert completed >= time
        assert following is None or completed < following
    # So the order of completion is the order of the instants, and no two are the same.
    ordered = [found[time, "commit"] for time in sorted(wanted)]
    assert ordered == sorted(set(ordered))
