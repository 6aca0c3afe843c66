"""Assignment of file groups: pure, fills small files by share, and lets a lane's groups share new files."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.errors import TableError
from tagstream.table.write.assign import assign
from tagstream.table.write.write_profile import SmallFile, WriteProfile


def profile(groups: int = 4, lanes: int = 2, per_file: int = 10, **small: int) -> WriteProfile:
    files = tuple(SmallFile(name, room) for name, room in small.items())
    return WriteProfile(
        "t",
        "q",
        7,
        1,
        "20260101000000000",
        0,
        tuple(range(10, 10 + groups)),
        lanes=lanes,
        records_per_new_file=per_file,
        small_files={"p": files} if files else {},
    )


def counts(n: int, index: int, of: WriteProfile) -> dict[str, int]:
    """File id -> records, of n inserts into partition p."""
    codes, places = assign(np.zeros(n, np.int32), ["p"], index, of)
    return {places[c][1]: int(k) for c, k in zip(*np.unique(codes, return_counts=True), strict=True)}


def test_new_files_take_their_share_and_lane_mates_share_them() -> None:
    p = profile()
    first, mate, other = (counts(12, i, p) for i in (0, 2, 1))
    assert list(first.values()) == [5, 5, 2]  # ten records a file, two groups in the lane
    assert first == mate
    assert not first.keys() & other.keys()


def test_small_files_are_filled_first_by_share() -> None:
    p = profile(small_a=7, small_b=4)
    taken = [counts(20, i, p) for i in range(4)]
    assert [t.get("small_a", 0) for t in taken] == [4, 0, 3, 0]
    assert [t.get("small_b", 0) for t in taken] == [0, 2, 0, 2]


def test_one_small_file_serves_all_lanes() -> None:
    p = profile(small_a=6)
    assert [counts(20, i, p).get("small_a", 0) for i in range(4)] == [2, 2, 1, 1]


def test_other_batch_run_or_partition_gives_other_files() -> None:
    codes, places = assign(np.array([0, 1, 0], np.int32), ["p", "q"], 0, profile())
    assert [places[c][0] for c in codes] == ["p", "q", "p"]
    assert len({f for _, f in places}) == len(places)
    rerun = WriteProfile(**{**profile().__dict__, "run": 2})
    assert not counts(5, 0, profile()).keys() & counts(5, 0, rerun).keys()


@given(
    st.lists(st.integers(0, 3), max_size=60),
    st.integers(1, 5),
    st.lists(st.integers(0, 20), max_size=5),
    st.integers(1, 9),
)
def test_no_small_file_is_overfilled_and_all_records_are_placed(
    codes: list[int], lanes: int, rooms: list[int], per_file: int
) -> None:
    small = {f"s{i}": room for i, room in enumerate(rooms)}
    p = profile(groups=5, lanes=lanes, per_file=per_file, **small)
    partitions = ["p", "q", "r", "s"]
    used: dict[str, int] = {}
    for index in range(5):
        out, places = assign(np.array(codes, np.int32), partitions, index, p)
        again, _ = assign(np.array(codes, np.int32), partitions, index, p)
        assert (out == again).all()
        assert [places[c][0] for c in out] == [partitions[c] for c in codes]
        for c in out:
            used[places[c][1]] = used.get(places[c][1], 0) + 1
    for name, room in small.items():
        assert used.get(name, 0) <= room
    new = [n for name, n in used.items() if name not in small]
    assert all(n <= per_file + 5 for n in new)  # a share is rounded up in each of the lane's groups


def test_profile_survives_json() -> None:
    p = WriteProfile(**{**profile(small_a=3).__dict__, "manifest": {10: "{}"}, "mode": "replay"})
    assert WriteProfile.from_json(p.to_json()) == p


@pytest.mark.parametrize("text", ['{"version":99}', "junk", "[]", '{"version":1}', '{"version":1,"labels":3}'])
def test_unknown_profile_is_refused_by_file_name(text: str) -> None:
    with pytest.raises(TableError, match=r"profile\.json"):
        WriteProfile.from_json(text, "profile.json")
