"""How many records wait."""

from __future__ import annotations

from tagstream.streaming.source.topic import Ends
from tagstream.streaming.watch.lag_look import waiting


def test_from_what_was_committed_to_the_end_of_the_topic() -> None:
    ends = {0: Ends(0, 100), 1: Ends(40, 90)}
    assert waiting(ends, {0: 60, 1: 90}) == 40
    assert waiting(ends, {}) == 150  # from the beginning, without what has expired
    assert waiting(ends, {0: 100, 1: 10}) == 50
    assert waiting(ends, {0: 130, 1: 90}) == 0  # a topic that was made anew
    assert waiting(ends | {2: Ends(0, 7)}, {0: 100, 1: 90}) == 7  # a new partition
    assert waiting({}, {0: 5}) == 0
