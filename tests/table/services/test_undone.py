"""What a restore undoes: after a clean and a restore the table has the rows of the savepoint, whatever overlapped then."""

from __future__ import annotations

from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.file_group.fs_view import FileSystemView
from tagstream.table.file_group.names import base_file_name, log_file_name
from tagstream.table.services.restore import differences, to_undo, without
from tagstream.table.services.retention import Needed, Past, completed_at, names_of, savepointed_names
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.instant import COMMIT, REPLACE_COMMIT, Instant, State
from tagstream.table.timeline.timeline import Savepoint, Timeline
from tests.table.services.histories import PARTITION, STEPS, Files, History, at, history_of
from tests.table.services.test_needed import cleaned, savepoint_of


@given(STEPS, st.integers(0, 20))
def test_a_restore_brings_the_rows_of_the_savepoint(steps: list[tuple[str, int]], number: int) -> None:
    history = history_of(steps)
    saved = savepoint_of(history, number)
    write = next(i for i in history.instants if i.time == saved.time)
    left = cleaned(history, Past(), Needed(savepointed_names([saved])))
    undone = to_undo(history.timeline, write, saved, 9)
    view = without(history.view(left), undone)
    assert list(differences(view, saved)) == []
    assert history.seen(view) == sorted(history.rows[completed_at(write)])


@given(STEPS, st.integers(0, 20), st.integers(0, 20))
def test_a_lost_or_foreign_file_is_found(steps: list[tuple[str, int]], number: int, which: int) -> None:
    history = history_of(steps)
    saved = savepoint_of(history, number)
    write = next(i for i in history.instants if i.time == saved.time)
    undone = to_undo(history.timeline, write, saved, 9)
    names = sorted(saved.files[PARTITION])
    lost = names[which % len(names)]
    assert list(differences(without(history.view(set(history.holds) - {lost}), undone), saved)) != []
    foreign = base_file_name("foreign", "0-0-0", at(0))  # of a write that is archived
    assert list(differences(without(history.view({*history.holds, foreign}), undone), saved)) == [f"p/{foreign}"]


def test_a_savepoint_by_instant_times_keeps_the_service_whose_files_it_names() -> None:
    history = History()
    history.write(0)
    history.plan("compaction")
    history.write(0)
    write = history.instants[-1]
    history.end(0)
    service = history.instants[-1]
    assert service.time < write.time
    names = frozenset(n for s in history.view().latest_merged_slices(PARTITION) for n in names_of(s))
    undone = to_undo(history.timeline, write, Savepoint(write.time, "", "", 0, {PARTITION: names}), 9)
    assert undone == ()


def test_up_to_version_7_what_has_replaced_its_files_is_undone() -> None:
    old, new = base_file_name("a", "0-0-0", at(1)), base_file_name("b", "0-0-0", at(2))
    done = Instant(at(1), COMMIT, State.COMPLETED), Instant(at(2), REPLACE_COMMIT, State.COMPLETED)
    write = Instant(at(3), COMMIT, State.COMPLETED)
    timeline = Timeline("t", (*done, write), replaced={("p", "a"): at(2)})
    assert to_undo(timeline, write, Savepoint(at(3), "", "", 0, {"p": frozenset([old])}), 6) == (done[1],)
    assert to_undo(timeline, write, Savepoint(at(3), "", "", 0, {"p": frozenset([new])}), 6) == ()


def test_up_to_version_7_a_log_file_names_its_slice() -> None:
    log = log_file_name("a", at(5), 1, "0-0-0")  # of the slice that a compaction was planned to begin
    done = Instant(at(3), COMMIT, State.COMPLETED), Instant(at(5), COMMIT, State.COMPLETED)
    saved = Savepoint(at(3), "", "", 0, {"p": frozenset([base_file_name("a", "0-0-0", at(3)), log])})
    assert to_undo(Timeline("t", done), done[0], saved, 6) == (done[1],)


def test_a_log_file_more_over_a_slice_that_is_named_is_found() -> None:
    history = History()
    history.write(0)
    saved = savepoint_of(history, 0)
    history.write(2)
    (name,) = (n for n in history.holds if n.startswith("."))
    assert list(differences(without(history.view(), ()), saved)) == [f"p/{name}"]


def test_slices_by_name_up_to_version_7() -> None:
    base, log = base_file_name("a", "0-0-0", at(1)), log_file_name("a", at(1), 1, "0-0-0")
    more, compacted = log_file_name("a", at(1), 2, "0-0-0"), base_file_name("a", "0-0-0", at(2))
    done = tuple(Instant(at(n), COMMIT, State.COMPLETED) for n in (1, 2, 3))
    saved = Savepoint(at(3), "", "", 0, {"p": frozenset([base, log])})

    def unlike(*names: str) -> list[str]:
        view = FileSystemView(cast(Storage, None), Timeline("t", done), at(3), 6, None, Files(names))
        return list(differences(without(view, ()), saved))

    assert unlike(base, log) == []
    assert unlike(base, log, more) == []  # of a later write, under a rollback block
    assert unlike(base, log, compacted) == []  # it has the rows of both
    assert unlike(base) == [f"p/{log}"]
    # The log file of another layout begins a slice of its own, and the base file is read no more.
    foreign = log_file_name("a", at(3), 1, "0-0-0")
    other = Savepoint(at(3), "", "", 0, {"p": frozenset([base, foreign])})
    view = FileSystemView(cast(Storage, None), Timeline("t", done), at(3), 6, None, Files([base, foreign]))
    assert list(differences(without(view, ()), other)) == [f"p/{base}"]
