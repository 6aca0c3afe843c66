"""The same work for many things, several at a time."""

from __future__ import annotations

import threading

import pytest

from tagstream.table.storage.storage import each


def test_results_come_in_the_order_of_the_items() -> None:
    both = threading.Barrier(2, timeout=30)

    def task(item: int) -> int:
        both.wait()  # breaks unless two run at the same time
        return item * 10

    assert each(task, iter([3, 1]), threads=2) == [30, 10]


def test_nothing_to_do_is_nothing_done() -> None:
    assert each(str, []) == []


def test_one_alone_needs_no_thread() -> None:
    assert each(lambda _: threading.get_ident(), ["x"]) == [threading.get_ident()]


def test_no_more_run_at_once_than_asked() -> None:
    names = each(lambda _: threading.current_thread().name, range(50), threads=1)
    assert len(set(names)) == 1


def test_what_the_first_of_those_that_fail_raised_is_raised() -> None:
    def task(item: int) -> int:
        if item:
            raise ValueError(f"item {item}")
        return item

    with pytest.raises(ValueError, match="item 1"):
        each(task, [0, 1, 2])
