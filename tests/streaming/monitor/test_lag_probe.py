"""How many records wait, in which partition, and since when."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tagstream.streaming.monitor.probes import waiting
from tagstream.streaming.source.kafka_topic import Ends, search_ages


def total(ends: Mapping[int, Ends], begin: Mapping[int, int]) -> int:
    return sum(records for _, records in waiting(ends, begin).values())


def test_from_what_was_committed_to_the_end_of_the_topic() -> None:
    ends = {0: Ends(0, 100), 1: Ends(40, 90)}
    assert total(ends, {0: 60, 1: 90}) == 40
    assert total(ends, {}) == 150  # from the beginning, without what has expired
    assert total(ends, {0: 100, 1: 10}) == 50
    assert total(ends, {0: 130, 1: 90}) == 0  # a topic that was made anew
    assert total(ends | {2: Ends(0, 7)}, {0: 100, 1: 90}) == 7  # a new partition
    assert total({}, {0: 5}) == 0


def test_each_partition_waits_from_its_first_record_that_is_left() -> None:
    assert waiting({0: Ends(0, 100), 1: Ends(40, 90)}, {0: 60, 1: 10}) == {0: (60, 40), 1: (40, 50)}


@pytest.mark.parametrize("age", [0, 999, 1_000, 1_001, 65_432, 86_400_000, 10**12])
def test_the_age_is_found_to_a_twentieth_or_a_second(age: int) -> None:
    asked = []

    def is_enough(ages: Mapping[int, int]) -> dict[int, bool]:
        asked.append(ages)
        return {number: tried >= (age if number else 0) for number, tried in ages.items()}

    found = search_ages([0, 1], is_enough)
    assert age <= found[1] <= max(age + 1_000, age * 20 / 19)
    assert found[0] <= 1_000
    assert len(asked) < 40
