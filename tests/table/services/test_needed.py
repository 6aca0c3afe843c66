"""What a clean leaves of random histories: every state that somebody may ask for can be read whole afterwards."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.file_group.fs_view import BaseFile, FileSlice, LogFile
from tagstream.table.file_group.names import parse_base_file_name
from tagstream.table.services.retention import (
    NEWEST,
    PAST,
    PLANNED,
    SAVED,
    Needed,
    Past,
    completed_at,
    names_of,
    savepointed_names,
    view_as_of,
    why_needed,
)
from tagstream.table.timeline.timeline import Savepoint, Timeline
from tests.table.services.histories import PARTITION, STEPS, History, at, history_of


def savepoint_of(history: History, number: int) -> Savepoint:
    """A savepoint of one of the writes, made with all files there."""
    write = history.instants[number % len(history.instants)]
    view = view_as_of(history.view(), write)
    names = frozenset(n for s in view.latest_merged_slices(PARTITION) for n in names_of(s))
    return Savepoint(write.time, "", "", 0, {PARTITION: names})


def cleaned(history: History, past: Past, held: Needed) -> frozenset[str]:
    """The names of the files that a clean leaves."""
    gone: set[str] = set()
    for file_id, slices in history.view().all_slices(PARTITION).items():
        reasons = why_needed(history.timeline, (PARTITION, file_id), slices, past, held)
        gone.update(n for s, why in zip(slices, reasons, strict=True) if why is None for n in names_of(s))
    return frozenset(history.holds) - gone


@given(STEPS, st.integers(0, 20), st.integers(1, 3))
def test_a_clean_leaves_what_readers_and_savepoints_need(
    steps: list[tuple[str, int]], number: int, versions: int
) -> None:
    history = history_of(steps)
    saved = savepoint_of(history, number)
    left = cleaned(history, Past(versions=versions), Needed(savepointed_names([saved])))
    assert history.seen(history.view(left)) == history.seen(history.view())
    assert saved.files[PARTITION] <= left


@given(STEPS, st.integers(0, 20))
def test_readers_of_the_past_find_what_is_retained(steps: list[tuple[str, int]], number: int) -> None:
    history = history_of(steps)
    done = history.timeline.completed_writes
    earliest = done[number % len(done)]
    left = cleaned(history, Past(earliest.time), Needed())
    for write in history.instants:
        if write.time >= earliest.time:
            view = view_as_of(history.view(left), write)
            # A service of before the earliest commit that was completed after the write may have taken its slices' place.
            late = [i for i in done if i.time < earliest.time and completed_at(i) > completed_at(write)]
            assert late or history.seen(view) == sorted(history.rows[completed_at(write)])


@given(STEPS)
def test_plans_find_what_they_read(steps: list[tuple[str, int]]) -> None:
    history = history_of(steps)
    left = cleaned(history, Past(), Needed())
    wanted = {time: groups for time, (_, groups) in history.waiting.items()}
    view = history.view(left)
    for groups in wanted.values():
        slices = view.latest_slices(PARTITION, list(groups))
        for group, rows in groups.items():
            files = (slices[group].base_file, *slices[group].log_files)
            assert rows <= frozenset(t for f in files if f is not None for t in history.holds[f.name])


@given(STEPS)
def test_nothing_stays_that_nobody_needs(steps: list[tuple[str, int]]) -> None:
    history = history_of(steps)
    history.waiting.clear()
    left = cleaned(history, Past(), Needed())
    newest = {n for s in history.view().latest_merged_slices(PARTITION) for n in names_of(s)}
    assert left == newest


def file_slice(time: str, *logs: str) -> FileSlice:
    base = BaseFile(f"g_0-0-0_{time}.parquet", "g", time, 1)
    found = tuple(LogFile(f".g_{log}.log.1_0-0-0", "g", log, 1, "0-0-0", 1) for log in logs)
    return FileSlice("p", "g", time, base, found)


def test_each_reason_by_its_name() -> None:
    group = "p", "g"
    slices = [file_slice(at(n)) for n in (1, 2, 3, 4, 5)]
    saved = Needed({"p": frozenset(names_of(slices[0]))})
    assert why_needed(Timeline("t", ()), group, slices, Past(at(4)), saved) == [SAVED, None, PAST, PAST, NEWEST]
    planned = Timeline("t", (), pending_clusterings={group: at(4)})
    assert why_needed(planned, group, slices, Past(), Needed()) == [None, None, PLANNED, PLANNED, NEWEST]
    busy = Needed(busy=frozenset({group}))
    assert why_needed(Timeline("t", ()), group, slices, Past(), busy)[0] == PLANNED
    replaced = Timeline("t", (), replaced={group: at(6)})
    assert why_needed(replaced, group, slices, Past(at(7)), Needed()) == [None] * 5
    assert why_needed(replaced, group, slices, Past(at(6)), Needed()) == [PAST] * 5
    assert parse_base_file_name(names_of(slices[0])[0]) is not None
