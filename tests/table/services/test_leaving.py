"""What holds writes on the active timeline: savepoints, and replaced file groups on disk."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.services.retention import completed_at, needed_by_replaced_files, needed_by_savepoints
from tagstream.table.timeline.instant import COMMIT, REPLACE_COMMIT, SAVEPOINT, Instant, State
from tagstream.table.timeline.timeline import Timeline
from tests.table.services.histories import STEPS, at, history_of


@given(STEPS, st.integers(0, 20))
def test_all_that_a_restore_undoes_is_held(steps: list[tuple[str, int]], number: int) -> None:
    history = history_of(steps)
    write = history.instants[number % len(history.instants)]
    saved = Instant(write.time, SAVEPOINT, State.COMPLETED, history.tick())
    timeline = Timeline("t", (*history.timeline.instants, saved))
    later = {i.time for i in history.instants if completed_at(i) > completed_at(write)}
    assert set(needed_by_savepoints(timeline)) == later | {write.time}


def test_a_savepoint_whose_write_is_archived_holds_its_own_time() -> None:
    timeline = Timeline(
        "t", (Instant(at(1), SAVEPOINT, State.COMPLETED, at(9)), Instant(at(2), COMMIT, State.COMPLETED))
    )
    assert list(needed_by_savepoints(timeline)) == [at(1)]


@given(st.lists(st.sets(st.integers(0, 9), max_size=3), max_size=6), st.sets(st.integers(0, 9)))
def test_a_replace_commit_stays_while_a_group_of_it_is_on_disk(replaced: list[set[int]], there: set[int]) -> None:
    done = tuple(Instant(at(n), REPLACE_COMMIT, State.COMPLETED) for n in range(len(replaced)))
    by_group = {(f"p{g % 3}", f"g{g}"): at(n) for n, groups in enumerate(replaced) for g in groups}
    asked: list[str] = []

    def on_disk(partition: str, ids: Collection[str]) -> bool:
        asked.append(partition)
        return any(f"g{g}" in ids and partition == f"p{g % 3}" for g in there)

    held = needed_by_replaced_files(Timeline("t", done, replaced=by_group), done, {}, on_disk)
    first = min((time for (_, file_id), time in by_group.items() if int(file_id[1:]) in there), default=None)
    assert held == first
    kept = {partition: {file_id for p, file_id in by_group if p == partition} for partition in ("p0", "p1", "p2")}
    asked.clear()
    held = needed_by_replaced_files(Timeline("t", done, replaced=by_group), done, kept, on_disk)
    assert held == min(by_group.values(), default=None)
    assert asked == []  # nothing is listed for what is known to be there
