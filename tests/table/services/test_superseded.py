"""Which slices of an earlier state are gone, told by the writes that came after it."""

from __future__ import annotations

from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.file_group.fs_view import FileSystemView
from tagstream.table.file_group.names import base_file_name, log_file_name
from tagstream.table.services.retention import Later, missing, newest_files, superseded
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.commit_metadata import NO_PREVIOUS, CommitMetadata, WriteStat
from tagstream.table.timeline.instant import COMMIT, Instant, State
from tagstream.table.timeline.timeline import Timeline
from tests.table.services.histories import Files, at


def commits(written: list[set[int]]) -> tuple[list[Later], dict[str, str]]:
    """Copy-on-write commits that write these file groups, and the newest base file of each by its name."""
    found, newest = [], dict[int, str]()
    files: dict[str, str] = {}
    for number, groups in enumerate(written):
        stats = tuple(
            WriteStat(f"g{g}", f"p/{base_file_name(f'g{g}', '0-0-0', at(number))}", "p", newest.get(g, NO_PREVIOUS))
            for g in sorted(groups)
        )
        newest |= dict.fromkeys(groups, at(number))
        files |= {stat.file_name: stat.file_id for stat in stats}
        found.append(Later(at(number), CommitMetadata({"p": stats})))
    return found, files


@given(
    st.lists(st.sets(st.integers(0, 3), min_size=1), min_size=1, max_size=6),
    st.integers(0, 5),
    st.sets(st.integers(0, 30), max_size=6),
)
def test_a_state_is_whole_or_something_of_it_is_missing(
    written: list[set[int]], number: int, deleted: set[int]
) -> None:
    number %= len(written)
    done, files = commits(written)
    # Cleans delete what a later write has taken the place of.
    old = sorted(n for n, g in files.items() if any(o > n for o, other in files.items() if other == g))
    gone = {old[which % len(old)] for which in deleted} if old else set()
    left = set(files) - gone
    timeline = Timeline("t", tuple(Instant(at(n), COMMIT, State.COMPLETED) for n in range(number + 1)))
    view = FileSystemView(cast(Storage, None), timeline, at(number), 6, None, Files(left))
    wanted = {
        g: max(n for n in files if files[n] == g and n.rsplit("_", 1)[1] <= f"{at(number)}.parquet")
        for g in set(files.values())
        if any(files[n] == g and n.rsplit("_", 1)[1] <= f"{at(number)}.parquet" for n in files)
    }
    is_whole = set(wanted.values()) <= left
    later, earlier = superseded(done[number + 1 :]), [each.metadata for each in reversed(done[: number + 1])]
    assert (missing(view, later, newest_files(later, earlier)) is None) == is_whole


def test_a_compaction_of_log_files_alone_names_no_slice_before() -> None:
    """Hudi's write stats say ``null`` there; its plan names the log files."""
    made = WriteStat("g", f"p/{base_file_name('g', '0-0-0', at(5))}", "p")
    metadata = CommitMetadata({"p": (made,)})
    old, new = (log_file_name("g", at(n), 1, "0-0-0") for n in (1, 4))
    between = Later(at(4), CommitMetadata())
    assert superseded([between, Later(at(5), metadata, {("p", "g"): frozenset([old, new])})]) == {("p", "g"): None}
    assert superseded([between, Later(at(5), metadata, {("p", "g"): frozenset([new])})]) == {}


def test_a_replaced_group_must_have_some_slice() -> None:
    replaced = Later(at(3), CommitMetadata(replaced={"p": ("a", "b", "c")}))
    stats = tuple(WriteStat(g, f"p/{base_file_name(g, '0-0-0', at(2))}", "p", before) for g, before in
                  (("b", NO_PREVIOUS), ("c", at(1))))  # fmt: skip
    wanted = superseded([Later(at(2), CommitMetadata({"p": stats})), replaced])
    assert wanted == {("p", "a"): None, ("p", "c"): at(1)}  # b is newer than the state
    timeline = Timeline("t", (Instant(at(1), COMMIT, State.COMPLETED),))
    names = [base_file_name("c", "0-0-0", at(1))]
    view = FileSystemView(cast(Storage, None), timeline, at(1), 6, None, Files(names))
    assert str(missing(view, wanted, {})) == "every slice of file group a in partition 'p'"
    whole = FileSystemView(view.storage, timeline, at(1), 6, None, Files([*names, base_file_name("a", "0-0-0", at(0))]))
    assert missing(whole, wanted, {}) is None
    # A savepoint may have kept an older slice when the newest one was deleted.
    first, last = (
        CommitMetadata({"p": (WriteStat("a", f"p/{base_file_name('a', '0-0-0', at(n))}", "p", NO_PREVIOUS),)})
        for n in (0, 1)
    )
    assert missing(whole, wanted, newest_files(wanted, [first])) is None
    gone = f"the slice with {base_file_name('a', '0-0-0', at(1))} of file group a in partition 'p'"
    assert str(missing(whole, wanted, newest_files(wanted, [last, first]))) == gone
