"""Assignment of file groups: pure, fills small files by share, and lets a lane's groups share new files."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagstream.table.errors import TableError
from tagstream.table.write.small_groups import SmallFile
from tagstream.table.write.write_context import WriteProfile, _small_file_shares, assign, new_slot_file


def profile(groups: int = 4, slots: int = 2, per_file: int = 10, **small: int) -> WriteProfile:
    files = tuple(SmallFile(name, room) for name, room in small.items())
    return WriteProfile(
        "t",
        "q",
        7,
        1,
        "20260101000000000",
        0,
        tuple(range(10, 10 + groups)),
        slots=slots,
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
    codes: list[int], slots: int, rooms: list[int], per_file: int
) -> None:
    small = {f"s{i}": room for i, room in enumerate(rooms)}
    p = profile(groups=5, slots=slots, per_file=per_file, **small)
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


def by_lists(partition: str, group_index: int, of: WriteProfile) -> list[tuple[str, int]]:
    """The rule of sharing small files, written down as it is said: who may fill a file, and the how many-th this is."""
    files = of.small_files.get(partition, ())
    if not files:
        return []
    turn = min(len(files), of.slots)
    mine = group_index % of.slots % turn
    sharers = [g for g in range(len(of.labels)) if g % of.slots % turn == mine]
    rank = sharers.index(group_index)
    rooms = [(f.file_id, f.free_records // len(sharers), f.free_records % len(sharers)) for f in files[mine::turn]]
    return [(name, room + (rank < rest)) for name, room, rest in rooms if room + (rank < rest) > 0]


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 40), st.integers(1, 50), st.lists(st.integers(0, 200), max_size=12))
def test_shares_are_reckoned_as_by_lists(groups: int, slots: int, rooms: list[int]) -> None:
    p = profile(groups=groups, slots=slots, **{f"s{i}": room for i, room in enumerate(rooms)})
    for index in range(groups):
        assert list(_small_file_shares(p.small_files.get("p", ()), index, p)) == by_lists("p", index, p)


def by_rank(codes: np.ndarray, partitions: list[str], index: int, of: WriteProfile) -> tuple[list[int], list[object]]:
    """The assignment by each record's rank among its partition's: which of the files in turn has that room."""
    out, places = np.zeros(len(codes), np.int32), []
    of_group = index % of.slots
    mates = len(range(of_group, len(of.labels), of.slots))
    for code in np.unique(codes).tolist():
        shares = by_lists(partitions[code], index, of)
        edges = np.cumsum(np.array([room for _, room in shares], np.int64))
        rank = np.arange(int((codes == code).sum()))
        beyond = (rank - (int(edges[-1]) if shares else 0)) // max(1, -(-of.records_per_new_file // mates))
        slot = np.searchsorted(edges, rank, side="right")
        slot = np.where(slot < len(shares), slot, len(shares) + beyond)
        used, local = np.unique(slot, return_inverse=True)
        out[np.flatnonzero(codes == code)] = len(places) + local
        files = [shares[s][0] if s < len(shares) else new_slot_file(partitions[code], of_group, s - len(shares), of)
                 for s in used.tolist()]  # fmt: skip
        places += [(partitions[code], file_id) for file_id in files]
    return out.tolist(), places


@settings(max_examples=300, deadline=None)
@given(
    codes=st.lists(st.integers(0, 3), max_size=80),
    groups=st.integers(1, 9),
    slots=st.integers(1, 6),
    per_file=st.integers(1, 40),
    rooms=st.lists(st.lists(st.integers(0, 30), max_size=7), min_size=4, max_size=4),
)
def test_every_record_goes_where_its_rank_says(
    codes: list[int], groups: int, slots: int, per_file: int, rooms: list[list[int]]
) -> None:
    names = ["p", "q", "r", "s"]
    small = {
        name: tuple(SmallFile(f"{name}{i}", room) for i, room in enumerate(files))
        for name, files in zip(names, rooms, strict=True)
    }
    p = replace(profile(groups=groups, slots=slots, per_file=per_file), small_files=small)
    column = np.array(codes, np.int32)
    for index in range(groups):
        out, places = assign(column, names, index, p)
        assert out.dtype == np.int32
        assert (out.tolist(), places) == by_rank(column, names, index, p)


def test_a_batch_of_many_partitions_is_assigned_as_ever() -> None:
    """A replay and a task that runs again must choose what was chosen before, also by an earlier version."""
    small = {f"p{i}": tuple(SmallFile(f"s{i}-{k}", 37 * i % 50 + k) for k in range(i % 7)) for i in range(60)}
    p = WriteProfile("t", "q", 7, 1, "20260101000000000", 0, tuple(range(48)), slots=5, records_per_new_file=90,
                     small_files=small)  # fmt: skip
    codes = np.arange(3000, dtype=np.int32) * 7919 % 60
    found = hashlib.sha256()
    for index in range(48):
        out, places = assign(codes, [f"p{i}" for i in range(60)], index, p)
        found.update(out.tobytes() + repr(places).encode())
    assert found.hexdigest() == "ec17cfc8398edd80273ada662e3cacdb4202aaae25b620117f858f6574cc05c4"
