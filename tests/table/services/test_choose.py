"""Which actions may be archived, limit by limit, on timelines made for it."""

from __future__ import annotations

import pytest

from tagstream.table.errors import ConfigError
from tagstream.table.services.archiving import Limits, instants_to_archive
from tagstream.table.services.options import ArchiveOptions, CleanOptions, CleanPolicy, check_retention
from tagstream.table.timeline.instant import Instant, State
from tagstream.table.timeline.timeline import Timeline

OPTIONS = ArchiveOptions(min_commits=3, max_commits=5, compaction_deltas=4)
DONE = State.COMPLETED
COW = Limits(layout=1, merge_on_read=False)


def at(number: int) -> str:
    return f"20260101{number:09d}"


def timeline(text: str, *more: Instant) -> Timeline:
    """Completed actions, one a letter: c commit, d deltacommit, r replacecommit, k clean, b rollback; ``.`` is none."""
    names = {"c": "commit", "d": "deltacommit", "r": "replacecommit", "k": "clean", "b": "rollback"}
    done = [Instant(at(n), names[letter], DONE, at(n)[:-1] + "5") for n, letter in enumerate(text) if letter in names]
    return Timeline("t", tuple(sorted([*done, *more], key=lambda i: (i.time, i.action))))


def numbers(found: tuple[Instant, ...]) -> list[int]:
    return [int(i.time[8:]) for i in found]


@pytest.mark.parametrize(("text", "wanted"), [("ccccc", []), ("cccccc", [0, 1, 2]), ("cccccccc", [0, 1, 2, 3, 4])])
def test_all_but_the_least_go_once_there_are_more_than_the_most(text: str, wanted: list[int]) -> None:
    assert numbers(instants_to_archive(timeline(text), OPTIONS, COW)) == wanted


def test_a_pending_write_keeps_what_it_reads() -> None:
    for action in ("commit", "compaction", "clustering", "replacecommit"):
        found = timeline("ccc.cccccc", Instant(at(3), action, State.REQUESTED))
        assert numbers(instants_to_archive(found, OPTIONS, COW)) == [0, 1]
    found = timeline(".cccccc", Instant(at(0), "commit", State.INFLIGHT))
    assert instants_to_archive(found, OPTIONS, COW) == ()


def test_savepoints() -> None:
    found = timeline("cccccccc", Instant(at(2), "savepoint", DONE, at(9)))
    assert numbers(instants_to_archive(found, OPTIONS, COW)) == [0, 1]
    beyond = ArchiveOptions(3, 5, beyond_savepoint=True)
    assert numbers(instants_to_archive(found, beyond, COW)) == [0, 1, 3, 4]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("dddddddd", [0, 1, 2, 3]),  # four of them make a compaction due: they stay
        ("ddddcddd", [0, 1, 2, 3]),  # the compaction stays until four have come after it
        ("dddcdddddd", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_delta_commits_stay_countable(text: str, wanted: list[int]) -> None:
    assert numbers(instants_to_archive(timeline(text), OPTIONS, Limits(1, merge_on_read=True))) == wanted


def test_replace_commits_stay_until_their_files_are_cleaned() -> None:
    found = timeline("crccrccc")
    assert numbers(instants_to_archive(found, OPTIONS, COW)) == [0]
    assert numbers(instants_to_archive(found, OPTIONS, Limits(1, merge_on_read=False, cleaned_to=at(2)))) == [
        0,
        1,
        2,
        3,
    ]


def test_the_metadata_table_must_have_compacted_it() -> None:
    found = timeline("cccccccc")
    assert instants_to_archive(found, OPTIONS, Limits(1, merge_on_read=False, metadata=True)) == ()
    old = Limits(1, merge_on_read=False, metadata=True, metadata_compacted=at(2) + "001")
    assert numbers(instants_to_archive(found, OPTIONS, old)) == [0, 1, 2]
    # Completed half a step later than requested: of number 2 the compaction has not seen it yet.
    new = Limits(2, merge_on_read=False, metadata=True, metadata_compacted=at(2)[:-1] + "3")
    assert (
        numbers(instants_to_archive(found, OPTIONS, new)) == [0, 1]
        or numbers(instants_to_archive(found, OPTIONS, new)) == []
    )


def test_what_the_cleaner_retains_stays() -> None:
    found = timeline("ccccccc")
    assert numbers(instants_to_archive(found, OPTIONS, COW)) == [0, 1, 2, 3]
    assert numbers(instants_to_archive(found, OPTIONS, Limits(1, merge_on_read=False, earliest=at(2)))) == []
    found = timeline("ccccccccccc")
    assert numbers(instants_to_archive(found, OPTIONS, Limits(1, merge_on_read=False, earliest=at(6)))) == [
        0,
        1,
        2,
        3,
        4,
    ]


def test_a_metadata_table_keeps_what_its_table_has() -> None:
    limits = Limits(1, merge_on_read=False, data_start=at(2))
    assert numbers(instants_to_archive(timeline("cccccccc"), OPTIONS, limits)) == [0, 1]


def test_cleans_and_rollbacks() -> None:
    # Up to version 7 each action by itself, and without any commit that goes.
    assert numbers(instants_to_archive(timeline("ckkkkkkbbb"), OPTIONS, COW)) == [1, 2, 3]
    # From version 8 on those older than the newest commit that goes; the newest clean stays.
    found = timeline("ckbkccccckc")
    assert numbers(instants_to_archive(found, OPTIONS, Limits(2, merge_on_read=False))) == [0, 1, 2, 3, 4, 5, 6]
    found = timeline("ckbccccccbc")
    assert numbers(instants_to_archive(found, OPTIONS, Limits(2, merge_on_read=False))) == [0, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(("compacted", "wanted"), [(None, []), (at(3), [1, 2]), (at(9), [1, 2, 3])])
def test_cleans_stay_until_the_metadata_table_has_compacted_them(compacted: str | None, wanted: list[int]) -> None:
    """It reads what it was told of an action as long as that is on the timeline; a pending plan holds writes of before."""
    limits = Limits(1, merge_on_read=False, metadata=True, metadata_compacted=compacted)
    assert numbers(instants_to_archive(timeline("ckkkkkk"), OPTIONS, limits)) == wanted
    assert numbers(instants_to_archive(timeline("cbbbbbb"), OPTIONS, limits)) == wanted


def test_a_replace_commit_with_files_on_disk_stays_and_all_after_it() -> None:
    limits = Limits(1, merge_on_read=False, cleaned_to=at(9), replaced_on_disk=at(2))
    assert numbers(instants_to_archive(timeline("ccrccccc"), OPTIONS, limits)) == [0, 1]


def test_what_a_restore_would_undo_stays() -> None:
    saved = Instant(at(2), "savepoint", DONE, at(99))
    writes = [Instant(at(n), "commit", DONE, at(20) if n == 1 else at(n + 10)) for n in range(8)]
    found = Timeline("t", tuple(sorted([*writes, saved], key=lambda i: (i.time, i.action))))
    assert numbers(instants_to_archive(found, OPTIONS, Limits(2, merge_on_read=False))) == [0]


def test_rollbacks_stay_where_an_index_must_know_them() -> None:
    kept = ArchiveOptions(3, 5, keep_rollbacks=True)
    assert numbers(instants_to_archive(timeline("ckkkkkkbbbbbbb"), kept, COW)) == [1, 2, 3]
    found = timeline("ckbccccccbc")
    assert numbers(instants_to_archive(found, kept, Limits(2, merge_on_read=False))) == [0, 3, 4, 5, 6]


def test_numbers_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="hoodie.keep.min.commits is 5"):
        ArchiveOptions(5, 5)
    with pytest.raises(ConfigError, match="hoodie.clean.commits.retained 20"):
        check_retention(ArchiveOptions(20, 30), CleanOptions(commits=20))
    check_retention(ArchiveOptions(20, 30), CleanOptions(CleanPolicy.KEEP_LATEST_FILE_VERSIONS))
    with pytest.raises(ConfigError, match="hoodie.clean.hours.retained is 0"):
        CleanOptions(hours=0)


@pytest.mark.parametrize(("layout", "text", "wanted"), [
    (2, "dddddddd", []), (2, "ddcddddddddd", [0, 1, 2]), (1, "dddddddd", [0, 1, 2, 3]), (2, "dddddcdd", [0, 1, 2, 3, 4]),
])  # fmt: skip
def test_log_files_of_the_newest_slices_stay_on_the_timeline(layout: int, text: str, wanted: list[int]) -> None:
    options = ArchiveOptions(3, 5, compaction_deltas=4, keep_uncompacted=True)
    limits = Limits(layout, merge_on_read=True)
    assert numbers(instants_to_archive(timeline(text), options, limits)) == wanted
