"""The keys that a batch adds to a table which other streams share, as hashes of 8 bytes: one file for each batch.

Two streams may insert keys at the same time. If they insert the same key, the later batch must be repeated, or the key has
two rows. So a stream writes ``.hoodie/.tagstream_adds/<instant>`` before the batch of that instant is committed, and a
stream that commits later compares its own keys with it. A key counts as added if the table had no row of it, or had it in
another partition, or if the batch deletes it although the index did not know it. The file counts only if the instant is
completed.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from tagstream.table.errors import CorruptFileError
from tagstream.table.storage.storage import META_FOLDER, Storage

FOLDER = f"{META_FOLDER}/.tagstream_adds"
KEPT_MS = 86_400_000  # only batches that were being written when this one was committed compare themselves with it
Hashes = npt.NDArray[np.uint64]
_STORED = np.dtype("<u8")


@dataclass(frozen=True)
class AddedKeys:
    """``any``: whether the batch adds keys. ``hashes``: sorted hashes of all of them; None where they are not known."""

    any: bool
    hashes: Hashes | None = None

    def may_have_one_of(self, others: Hashes | None) -> bool:
        """Whether both may add the same key. ``others``: sorted; None where they are not known."""
        if self.hashes is None or others is None:
            return True
        return bool(np.isin(self.hashes, others, assume_unique=True).any())


def hashes_of(keys: pa.Array) -> Hashes:
    """Hashes of record keys, sorted and without duplicates. They are the same in all processes and versions.

    Streams may look keys up in the table or in a partition, so the partition does not count.
    """
    found: Any = pd.util.hash_array(keys.cast(pa.string()).to_numpy(zero_copy_only=False), categorize=False)
    return np.unique(found.astype(np.uint64))


def encode(hashes: Hashes) -> str:
    """Hashes as text for a task's answer."""
    return base64.b64encode(hashes.astype(_STORED).tobytes()).decode()


def merged(parts: Iterable[str]) -> Hashes:
    """The hashes of all tasks' answers, sorted."""
    data = b"".join(map(base64.b64decode, parts))
    return np.unique(np.frombuffer(data, _STORED)).astype(np.uint64)


def write(storage: Storage, instant: str, hashes: Hashes) -> int:
    """Write the file of a batch. Returns the number of keys; no file for none. ``storage``: of the table."""
    if len(hashes):
        storage.replace(_path(instant), hashes.astype(_STORED).tobytes())
    return len(hashes)


def read(storage: Storage, instant: str, count: int) -> Hashes | None:
    """The hashes of a completed batch of ``count`` keys; None if its file was removed.

    CorruptFileError for a file of another size.
    """
    if count == 0:
        return np.zeros(0, np.uint64)
    path = _path(instant)
    try:
        data = storage.read(path)
    except FileNotFoundError:
        return None
    if len(data) != count * _STORED.itemsize:
        raise CorruptFileError(
            f"{storage.where(path)} has {len(data):,} bytes instead of {count * _STORED.itemsize:,}: remove it, then the "
            "batch is repeated"
        )
    return np.frombuffer(data, _STORED).astype(np.uint64)


def forget(storage: Storage, instant: str) -> None:
    """Remove the file of a batch that is rolled back."""
    storage.delete(_path(instant))


def forget_old(storage: Storage, now_ms: int) -> None:
    """Remove files that are older than a day."""
    old = [entry.name for entry in storage.list(FOLDER) if entry.mtime_ms < now_ms - KEPT_MS]
    storage.delete_many(f"{FOLDER}/{name}" for name in old)


def _path(instant: str) -> str:
    return f"{FOLDER}/{instant}"
