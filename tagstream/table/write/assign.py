"""Which file group a new record goes to: a pure function, so that a recomputed task chooses the same one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np
import numpy.typing as npt

from tagstream.table.file_group.names import new_file_id
from tagstream.table.write.small_groups import SmallFile
from tagstream.table.write.write_profile import WriteProfile

INT32 = npt.NDArray[np.int32]


def assign(
    partition_codes: INT32, partitions: Sequence[str], group_index: int, profile: WriteProfile
) -> tuple[INT32, list[tuple[str, str]]]:
    """File group of every inserted record of one key group.

    `partition_codes` (into `partitions`) are the inserts in record-key order. Returns a code per record and the list
    of (partition path, file id) the codes stand for. In each partition the small files of the group's lane are filled
    first, each by the group's share of its room, then new file groups, which the lane's groups share.
    """
    out = np.zeros(len(partition_codes), np.int32)
    places: list[tuple[str, str]] = []
    taken: list[int] = []
    counts = np.bincount(partition_codes, minlength=len(partitions))
    # A loop over the partitions of the batch and the files they fill, not over records; in plain numbers, which for the few
    # records that a key group has of a partition are quicker than arrays.
    codes = np.flatnonzero(counts).tolist()
    small = profile.small_files_of([partitions[code] for code in codes])
    for code in codes:
        partition, left = partitions[code], int(counts[code])
        for file_id, room in _rooms(partition, small.get(partition, ()), group_index, profile):
            places.append((partition, file_id))
            taken.append(min(room, left))
            left -= taken[-1]
            if not left:
                break
    by_partition = np.argsort(partition_codes, kind="stable")
    out[by_partition] = np.repeat(np.arange(len(places), dtype=np.int32), taken)
    return out, places


def new_lane_file(partition: str, lane: int, n: int, profile: WriteProfile) -> str:
    """File id of the lane's n-th new file group in a partition in this run of the batch."""
    return new_file_id(profile.table_name, profile.query_id, profile.batch_id, profile.run, partition, lane, n)


def _new_file_share(group_index: int, profile: WriteProfile) -> int:
    """How many records one group puts into each new file group of its lane."""
    groups = len(range(group_index % profile.lanes, len(profile.labels), profile.lanes))
    return max(1, -(-profile.records_per_new_file // groups))


def _rooms(
    partition: str, small: Sequence[SmallFile], group_index: int, profile: WriteProfile
) -> Iterator[tuple[str, int]]:
    """(file id, room for this group) of the files the group fills, one after the other: small ones, then new ones."""
    yield from _small_file_shares(small, group_index, profile)
    lane, share = group_index % profile.lanes, _new_file_share(group_index, profile)
    for n in count():
        yield new_lane_file(partition, lane, n, profile), share


def _small_file_shares(
    files: Sequence[SmallFile], group_index: int, profile: WriteProfile
) -> Iterator[tuple[str, int]]:
    """(file id, room for this group) of the small files the group may fill, in the profile's order.

    File j belongs to the lanes that equal j modulo the number of files or of lanes, whichever is smaller: every lane
    has a file as long as there is one. A file's room is divided among all groups that may fill it.
    """
    if not files:
        return
    turn = min(len(files), profile.lanes)
    block, lane = divmod(group_index, profile.lanes)
    mine = lane % turn
    blocks, rest = divmod(len(profile.labels), profile.lanes)
    a_block = len(range(mine, profile.lanes, turn))  # lanes of one block of groups that may fill the same files
    size = blocks * a_block + len(range(mine, rest, turn))
    rank = block * a_block + lane // turn
    for i in range(mine, len(files), turn):
        room = files[i].room_records // size + (rank < files[i].room_records % size)
        if room > 0:
            yield files[i].file_id, room
