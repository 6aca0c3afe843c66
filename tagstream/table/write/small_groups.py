"""The small file groups, which take inserts, by partition, stored so that a task reads only those of its partitions.

A :class:`SizesFile` has the sizes of one time: partitions in order, in blocks of some hundred file groups, followed by
an index of the blocks. It never changes. Later changes are in newer files, and the latest changes in the write profile.
The newest of them that names a partition applies.

::

    block 0 ... block n      JSON: {partition: {file id: bytes}}
    index                    JSON: [[first partition, offset, length, CRC-32], ...]

Files have sizes, not the number of records that still fit, which changes with the estimate for a record.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tagstream.table.errors import CorruptFileError
from tagstream.table.storage.storage import Storage, at_once

Sizes = Mapping[str, Mapping[str, float]]
BLOCK_GROUPS = 256  # about 20 kB
# Blocks with a smaller gap are read by one call: a request to a store costs as much as this number of bytes.
_GAP_BYTES = 64 << 10


@dataclass(frozen=True)
class SmallFile:
    """A file group that still takes inserts. `free_records`: how many more records fit before the size limit."""

    file_id: str
    free_records: int


@dataclass(frozen=True)
class SizesFile:
    """A file of sizes: its name in the profiles' folder, offset and length of its index in bytes, the index's SHA-256."""

    name: str
    index_at: int
    index_length: int
    digest: str


@dataclass(frozen=True)
class SmallGroups:
    """Sizes in bytes, by partition path and file id, of the groups under the limit.

    ``max_bytes``: the limit. ``record_bytes``: the estimated size of a record. ``newest``: the sizes in partitions that have
    changed since the newest of ``files`` was written; an empty mapping means that the partition has no small group.
    ``storage``: the folder of the files, which does not belong to the value.
    """

    max_bytes: int
    record_bytes: int
    newest: Sizes = field(default_factory=dict)
    files: tuple[SizesFile, ...] = ()
    storage: Storage | None = field(default=None, compare=False, repr=False)

    def of(self, partitions: Collection[str]) -> dict[str, tuple[SmallFile, ...]]:
        """How many records fit into these partitions' small groups, in file id order. A process reads each block once.

        FileNotFoundError or CorruptFileError names a file that is missing or damaged.
        """
        found = {partition: self.newest[partition] for partition in partitions if partition in self.newest}
        left = [partition for partition in partitions if partition not in found]
        if self.files and left:
            assert self.storage is not None
            for opened in _opened(self.storage, self.files):
                found |= opened.look_up(self.storage, left)
                left = [partition for partition in left if partition not in found]
        return {partition: self._rooms(groups) for partition, groups in found.items()}

    def _rooms(self, groups: Mapping[str, float]) -> tuple[SmallFile, ...]:
        return tuple(
            SmallFile(file_id, room)
            for file_id, size in sorted(groups.items())
            if (room := int((self.max_bytes - size) / self.record_bytes)) > 0
        )

    def to_doc(self) -> dict[str, Any]:
        """The value for JSON; :meth:`from_doc` makes an equal value of it."""
        files = [[f.name, f.index_at, f.index_length, f.digest] for f in self.files]
        sizes = {"max_bytes": self.max_bytes, "record_bytes": self.record_bytes}
        return {**sizes, "newest": {p: dict(groups) for p, groups in self.newest.items()}, "files": files}

    @classmethod
    def from_doc(cls, doc: Mapping[str, Any], storage: Storage | None = None) -> SmallGroups:
        """The value of :meth:`to_doc`. KeyError, TypeError or ValueError for another document."""
        newest = {str(p): {str(f): float(size) for f, size in groups.items()} for p, groups in doc["newest"].items()}
        files = tuple(SizesFile(str(n), int(at), int(length), str(d)) for n, at, length, d in doc["files"])
        return cls(int(doc["max_bytes"]), int(doc["record_bytes"]), newest, files, storage)


def write_sizes(storage: Storage, name: str, sizes: Iterable[tuple[str, Mapping[str, float]]]) -> SizesFile:
    """Write the sizes of partitions to a file. Files of the same name must have the same sizes."""
    data, index = bytearray(), []
    for block in _blocks(sorted(sizes)):
        text = json.dumps(dict(block), separators=(",", ":"), ensure_ascii=False).encode()
        index.append([block[0][0], len(data), len(text), zlib.crc32(text)])
        data += text
    tail = json.dumps(index, separators=(",", ":"), ensure_ascii=False).encode()
    storage.replace(name, bytes(data) + tail)
    return SizesFile(name, len(data), len(tail), hashlib.sha256(tail).hexdigest())


def _blocks(sizes: Iterable[tuple[str, Mapping[str, float]]]) -> Iterator[list[tuple[str, Mapping[str, float]]]]:
    block, count = list[tuple[str, Mapping[str, float]]](), 0
    for partition, groups in sizes:
        block.append((partition, groups))
        count += max(1, len(groups))
        if count >= BLOCK_GROUPS:
            yield block
            block, count = [], 0
    if block:
        yield block


class _Opened:
    """A file whose index was read, with the blocks that were read."""

    def __init__(self, storage: Storage, file: SizesFile) -> None:
        self._where = storage.where(file.name)
        self._name = file.name
        tail = storage.read_range(file.name, file.index_at, file.index_length)
        if hashlib.sha256(tail).hexdigest() != file.digest:
            raise self._damaged("index")
        self._index: list[tuple[str, int, int, int]] = [(p, at, size, crc) for p, at, size, crc in json.loads(tail)]
        self._firsts = [first for first, *_ in self._index]
        self._blocks: dict[int, Sizes] = {}

    def look_up(self, storage: Storage, partitions: Iterable[str]) -> dict[str, Mapping[str, float]]:
        """The groups of the partitions that the file names."""
        places = {partition: bisect_right(self._firsts, partition) - 1 for partition in partitions}
        self._read(storage, sorted({at for at in places.values() if at >= 0} - self._blocks.keys()))
        return {p: self._blocks[at][p] for p, at in places.items() if at >= 0 and p in self._blocks[at]}

    def _read(self, storage: Storage, wanted: Sequence[int]) -> None:
        runs: list[list[int]] = []
        for at in wanted:
            if runs and self._index[at][1] - sum(self._index[runs[-1][-1]][1:3]) <= _GAP_BYTES:
                runs[-1].append(at)
            else:
                runs.append([at])
        spans = [(self._index[run[0]][1], sum(self._index[run[-1]][1:3])) for run in runs]
        parts = at_once(storage, *(partial(storage.read_range, self._name, a, b - a) for a, b in spans))
        for run, (begin, _), data in zip(runs, spans, parts, strict=True):
            for at in run:
                _, offset, length, crc = self._index[at]
                text = data[offset - begin : offset - begin + length]
                if zlib.crc32(text) != crc:
                    raise self._damaged(f"block {at}")
                self._blocks[at] = json.loads(text)

    def _damaged(self, what: str) -> CorruptFileError:
        return CorruptFileError(
            f"{self._where} is damaged: its {what} does not match its checksum; start the job again"
        )


# By folder: the files of its newest profile. A process may serve several tables.
_known: dict[str, dict[SizesFile, _Opened]] = {}


def _opened(storage: Storage, files: Sequence[SizesFile]) -> list[_Opened]:
    known = _known.get(storage.root, {})
    if known.keys() != set(files):
        known = {file: known[file] if file in known else _Opened(storage, file) for file in files}
        _known[storage.root] = known
    return [known[file] for file in files]
