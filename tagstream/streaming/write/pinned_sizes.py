"""What write profiles say of the file groups that take inserts: each names what is known already, and holds what is new.

``sizes.<batch>.<run>.<n>`` beside the profiles is written when the changes have become many: first one file of all
partitions, then one of all that have changed since the first; when these are an eighth of the table's partitions, all of
them once more. So a batch costs what the batches since the last file have changed, and a change is written a few times.

A file serves the tasks of the run that wrote it. The next run lists the table and begins with a file of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from tagstream.streaming.write.small_files import SmallFiles
from tagstream.table.storage.storage import Storage
from tagstream.table.write.small_groups import SizesFile, SmallGroups, write_sizes

PREFIX = "sizes."
# So many groups and partitions stand in a profile at most: 40 kB, some 2 ms to write and to read.
_IN_PROFILE = 512
_SHARE = 8


class PinnedSizes:
    """The files of one run, and what has changed since each."""

    def __init__(self) -> None:
        self._files: list[SizesFile] = []  # of all partitions, then of those changed since
        self._since_all: set[str] = set()
        self._since: set[str] = set()
        self._number = 0
        # Names that are not used any more, and the batch that was the first to do without.
        self._left: dict[str, int] = {}

    def pin(self, storage: Storage, small: SmallFiles, batch_id: int, run: int) -> SmallGroups:
        """The value for the profile of a batch. ``storage``: the folder of the profiles."""
        changed = small.take_changes()
        if changed is None:  # all was listed again
            self._leave(self._files, batch_id)
            self._files, self._since_all, self._since = [], set(), set(small.partitions())
        else:
            self._since |= changed
        if len(self._since) + sum(len(small.groups(p)) for p in self._since) > _IN_PROFILE:
            self._write(storage, small, batch_id, run)
        newest = {p: small.groups(p) for p in sorted(self._since)}
        return SmallGroups(small.max_bytes, small.record_bytes, newest, tuple(reversed(self._files)), storage)

    def superfluous(self, names: Iterable[str], oldest: int) -> list[str]:
        """Those of the names in the folder that no batch from ``oldest`` on needs."""
        kept = {file.name for file in self._files} | {name for name, batch in self._left.items() if batch > oldest}
        self._left = {name: batch for name, batch in self._left.items() if batch > oldest}
        return [name for name in names if name.startswith(PREFIX) and name not in kept and _batch(name) < oldest]

    def _write(self, storage: Storage, small: SmallFiles, batch_id: int, run: int) -> None:
        self._since_all |= self._since
        whole = not self._files or _SHARE * len(self._since_all) >= len(small.partitions())
        chosen = small.partitions() if whole else self._since_all
        sizes = ((p, groups) for p in chosen if (groups := small.groups(p)) or not whole)
        name = f"{PREFIX}{batch_id:020d}.{run}.{self._number}"
        written = write_sizes(storage, name, sizes)
        self._number += 1
        self._leave(self._files if whole else self._files[1:], batch_id)
        self._files = [written] if whole else [self._files[0], written]
        self._since = set()
        if whole:
            self._since_all = set()

    def _leave(self, files: Iterable[SizesFile], batch_id: int) -> None:
        self._left |= {file.name: batch_id for file in files}


def _batch(name: str) -> int:
    number = name.removeprefix(PREFIX).partition(".")[0]
    return int(number) if number.isdigit() else 0
