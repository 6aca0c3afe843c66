"""Several sources read at once, taken one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from threading import Barrier, active_count

import pytest

from tagstream.bootstrap.spill import read_ahead


def counting(begin: int, count: int) -> Iterator[int]:
    yield from range(begin, begin + count)


def failing() -> Iterator[int]:
    yield 7
    raise OSError("gone")


@pytest.mark.parametrize("at_once", [1, 2, 3, 8])
def test_items_come_source_by_source_in_their_order(at_once: int) -> None:
    sources = [partial(counting, 100 * n, n) for n in range(7)]
    assert [list(items) for items in read_ahead(sources, at_once)] == [list(s()) for s in sources]


def test_so_many_sources_are_read_at_the_same_time() -> None:
    combined = Barrier(3, timeout=30)

    def meeting(number: int) -> Iterator[int]:
        combined.wait()  # goes on when three threads are here
        yield number

    assert [list(items) for items in read_ahead([partial(meeting, n) for n in range(3)], 3)] == [[0], [1], [2]]


@pytest.mark.parametrize("at_once", [1, 3])
def test_an_error_is_raised_where_its_source_is_taken_and_the_others_go_on(at_once: int) -> None:
    sources: list[Callable[[], Iterator[int]]] = [partial(counting, 0, 3), failing, partial(counting, 5, 2)]
    found: list[object] = []
    for items in read_ahead(sources, at_once):
        try:
            for item in items:
                found.append(item)
        except OSError as e:
            found.append(str(e))
    assert found == [0, 1, 2, 7, "gone", 5, 6]


@pytest.mark.parametrize("at_once", [1, 4])
def test_whoever_stops_in_the_middle_leaves_no_thread(at_once: int) -> None:
    before = active_count()
    with closing(read_ahead([partial(counting, 0, 1_000_000) for _ in range(9)], at_once)) as sources:
        assert next(next(sources)) == 0
    assert active_count() == before


def test_items_of_a_source_that_were_not_taken_are_dropped() -> None:
    sources = [partial(counting, 10 * n, 9) for n in range(4)]
    assert [next(items) for items in read_ahead(sources, 2)] == [0, 10, 20, 30]
