"""What a reader saw as of the completion of each write, of random histories of overlapping writes and services."""

from __future__ import annotations

from hypothesis import given

from tagstream.table.services.retention import as_of_completion, completed_at, newest_write, view_as_of
from tagstream.table.timeline.instant import COMMIT, COMPACTION, Instant, State
from tagstream.table.timeline.timeline import Timeline
from tests.table.services.histories import STEPS, at, history_of


@given(STEPS)
def test_a_reader_saw_the_rows_of_what_was_completed(steps: list[tuple[str, int]]) -> None:
    history = history_of(steps)
    for instant in history.instants:
        seen = history.seen(view_as_of(history.view(), instant))
        assert seen == sorted(history.rows[completed_at(instant)])


@given(STEPS)
def test_the_newest_write_is_what_a_reader_sees_now(steps: list[tuple[str, int]]) -> None:
    history = history_of(steps)
    newest = newest_write(history.timeline)
    assert newest is not None
    assert history.seen(view_as_of(history.view(), newest)) == history.seen(history.view())


def test_without_completion_times_the_own_time_counts() -> None:
    done = [Instant(at(n), COMMIT, State.COMPLETED) for n in (1, 3, 5)]
    plans = {("p", "a"): at(2), ("p", "b"): at(4)}
    pending = [Instant(time, COMPACTION, State.REQUESTED) for time in plans.values()]
    timeline = Timeline("t", tuple(sorted([*done, *pending], key=lambda i: i.time)), pending_compactions=plans)
    seen = as_of_completion(timeline, done[1])
    assert [i.time for i in seen.completed_writes] == [at(1), at(3)]
    assert seen.pending_compactions == {("p", "a"): at(2)}


def test_a_service_that_was_completed_later_is_never_taken_for_archived() -> None:
    service, write = (
        Instant(at(1), COMMIT, State.COMPLETED, at(9)),
        Instant(at(2), COMMIT, State.COMPLETED, at(3)),
    )
    seen = as_of_completion(Timeline("t", (service, write)), write)
    assert not seen.is_valid(service.time)
    assert seen.is_valid(at(0))  # archived
