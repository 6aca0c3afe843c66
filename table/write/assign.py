"""Which file group a new record goes to: a pure function, so that a recomputed task chooses the same one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tagstream.table.file_group.names import new_file_id
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
    n = len(partition_codes)
    out = np.zeros(n, np.int32)
    places: list[tuple[str, str]] = []
    if n == 0:
        return out, places
    order = np.argsort(partition_codes, kind="stable")
    counts = np.bincount(partition_codes, minlength=len(partitions))
    ends = np.cumsum(counts)
    # A loop over the partitions of the batch, not over its records.
    for code in np.flatnonzero(counts).tolist():
        partition, count = partitions[code], int(counts[code])
        shares = _small_file_shares(partition, group_index, profile)
        edges = np.cumsum(np.array([room for _, room in shares], np.int64))
        rank = np.arange(count)
        slot = np.searchsorted(edges, rank, side="right")
        filled = int(edges[-1]) if len(shares) else 0
        slot = np.where(
            slot < len(shares), slot, len(shares) + (rank - filled) // _new_file_share(group_index, profile)
        )
        used, local = np.unique(slot, return_inverse=True)
        out[order[ends[code] - count : ends[code]]] = len(places) + local
        lane = group_index % profile.lanes
        for s in used.tolist():
            new = s - len(shares)
            file_id = shares[s][0] if new < 0 else new_lane_file(partition, lane, new, profile)
            places.append((partition, file_id))
    return out, places


def new_lane_file(partition: str, lane: int, n: int, profile: WriteProfile) -> str:
    """File id of the lane's n-th new file group in a partition in this run of the batch."""
    return new_file_id(profile.table_name, profile.query_id, profile.batch_id, profile.run, partition, lane, n)


def _new_file_share(group_index: int, profile: WriteProfile) -> int:
    """How many records one group puts into each new file group of its lane."""
    groups = len(range(group_index % profile.lanes, len(profile.labels), profile.lanes))
    return max(1, -(-profile.records_per_new_file // groups))


def _small_file_shares(partition: str, group_index: int, profile: WriteProfile) -> list[tuple[str, int]]:
    """(file id, room for this group) of the small files the group may fill, in the profile's order.

    File j belongs to the lanes that equal j modulo the number of files or of lanes, whichever is smaller: every lane
    has a file as long as there is one. A file's room is divided among all groups that may fill it.
    """
    files = profile.small_files.get(partition, ())
    if not files:
        return []
    turn = min(len(files), profile.lanes)
    mine = group_index % profile.lanes % turn
    sharers = [g for g in range(len(profile.labels)) if g % profile.lanes % turn == mine]
    rank, size = sharers.index(group_index), len(sharers)
    shares = []
    for file in files[mine::turn]:
        room = file.room_records // size + (rank < file.room_records % size)
        if room > 0:
            shares.append((file.file_id, room))
    return shares
