"""Lanes: which write task a file group's rows go to.

A file group is written by one task, whichever tasks its rows come from, so all of them must know the same lane. With a
handful of file groups a hash alone puts twice as many into one lane as into another, and the batch waits for it. So the
driver shares out those that had most work in the batch before, and pins that in the write profile; the others are hashed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tagstream.streaming.shares import least_loaded
from tagstream.streaming.source.packed import Codes, file_group_codes
from tagstream.table.timeline.write_status import WriteStatus

_GROUPS_A_LANE = 32  # of so many and more a hash is even enough
_MOST_GROUPS = 1024  # each task reads the profile

Places = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Lanes:
    """``count`` write tasks; ``places``: the lane of some file groups, by partition path and file id."""

    count: int
    places: Places = field(default_factory=dict)

    def of(self, parts: Any, files: Any) -> Codes:
        """Lane 0..count-1 of each row, by its file group's partition path and file id."""
        code, names = file_group_codes(parts, files)
        lane = [self._lane(part, file_id) for part, file_id in names]  # a step a file group
        return np.array(lane, np.int64)[code] if names else code

    def _lane(self, part: str, file_id: str) -> int:
        known = self.places.get(part, {}).get(file_id)
        if known is not None and known < self.count:
            return known
        return zlib.crc32(f"{part}\0{file_id}".encode()) % self.count


def work_of(statuses: Iterable[WriteStatus]) -> dict[tuple[str, str], int]:
    """Rows that a batch wrote and deleted, by partition path and file id; of a base file all that were written anew."""
    work: dict[tuple[str, str], int] = {}
    for status in statuses:
        stat = status.stat
        place = (stat.partition_path, stat.file_id)
        work[place] = work.get(place, 0) + stat.num_writes + stat.num_deletes
    return work


def shared_out(work: Mapping[tuple[str, str], int], lanes: int) -> dict[str, dict[str, int]]:
    """The lanes of the file groups with most work (``Lanes.places``), each in turn where the least was yet."""
    most = sorted(work, key=lambda place: (-work[place], place))[: min(_GROUPS_A_LANE * lanes, _MOST_GROUPS)]
    places: dict[str, dict[str, int]] = {}
    for (part, file_id), lane in zip(most, least_loaded((max(1, work[place]) for place in most), lanes), strict=True):
        places.setdefault(part, {})[file_id] = lane
    return places
