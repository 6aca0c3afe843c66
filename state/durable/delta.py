"""Deltas: what one batch changes in one key group, as a sorted file that a store takes in whole.

A delta holds the new location records (and deletions of outlived ones) in key order, the new dictionary entries and the
store's meta entry. Its chain is the hash of that content and of the chain before it, so an equal retry makes the same
chain and any difference another; the chain is in the file's name.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import chain as concat

import numpy as np

from tagstream.state.durable.files import crc_of, publish, read_checked, temp_path
from tagstream.state.errors import LocalStoreError, StateError
from tagstream.state.layout import StateLayout
from tagstream.state.pointer import FileRef
from tagstream.state.store.rocks_store import META_KEY, Deletions, RocksStore, write_sorted_file
from tagstream.state.store.store_meta import StoreMeta

_CHAIN_BYTES = 16
_MAX_COPIES = 100


@dataclass(frozen=True)
class Change:
    """A batch's change of a key group.

    `keys` ascending, `values` their records in the same order, `raw` all values as one run of bytes; `dropped` are
    keys (ascending, none of them in `keys`) to be forgotten; `entries` are new dictionary entries in any order; `meta`
    holds the counters after the change (its chain is filled in here).
    """

    keys: list[bytes]
    values: Iterable[bytes]
    raw: bytes
    dropped: Sequence[bytes]
    entries: list[tuple[bytes, bytes]]
    meta: StoreMeta


def chain_of(change: Change, before: str) -> str:
    """Chain after the change: 32 hex digits."""
    digest = blake2b(before.encode(), digest_size=_CHAIN_BYTES)
    digest.update(replace(change.meta, chain="").to_bytes())
    for family in (change.keys, list(change.dropped), *zip(*sorted(change.entries), strict=True)):
        digest.update(struct.pack("<Q", len(family)))
        digest.update(np.fromiter(map(len, family), "<u4", len(family)).tobytes())
        digest.update(b"".join(family))
    digest.update(change.raw)
    return digest.hexdigest()


def write_delta(layout: StateLayout, label: int, batch_id: int, change: Change, before: str) -> FileRef:
    """Make the change durable. An equal delta of an earlier attempt is used instead if it reads back as this one;
    a damaged one is left to whoever names it, and this one gets the next free name.
    """
    chain = chain_of(change, before)
    meta = replace(change.meta, chain=chain)
    folder = layout.deltas_dir(label)
    os.makedirs(folder, exist_ok=True)
    temp = temp_path(folder, batch_id)
    write_sorted_file(temp, *_entries(change, meta))
    size, crc = crc_of(temp)
    for copy in range(_MAX_COPIES):
        name = f"{batch_id:012d}-{chain}{f'-{copy}' if copy else ''}.sst"
        target = os.path.join(folder, name)
        if publish(temp, target, layout.durable_fsync):
            return FileRef(batch_id, chain, name, size, crc)
        if _same_content(temp, target, layout, label):
            os.unlink(temp)
            return FileRef(batch_id, chain, name, *crc_of(target))
    raise StateError(
        f"key group {label}: {folder} holds {_MAX_COPIES} damaged copies of delta {chain}; the storage loses writes"
    )


def apply_delta(store: RocksStore, layout: StateLayout, label: int, delta: FileRef) -> None:
    """Bring a store one delta further; StateError when the durable file is missing or damaged."""
    source = os.path.join(layout.deltas_dir(label), delta.file)
    data = read_checked(source, delta.size, delta.crc, label, f"delta of batch {delta.batch}")
    local = f"{store.path}.{delta.file}.{os.getpid()}"
    with open(local, "wb") as f:
        f.write(data)
    store.ingest(local)


def ingest_change(store: RocksStore, change: Change) -> None:
    """Bring a scratch store further by a change that nobody keeps."""
    temp = f"{store.path}.change.{os.getpid()}"
    write_sorted_file(temp, *_entries(change, change.meta))
    store.ingest(temp)


def _entries(change: Change, meta: StoreMeta) -> tuple[Iterable[bytes], Iterable[bytes | None]]:
    """Keys, ascending, and values: the store's own entries, then the records."""
    own = sorted([*change.entries, (META_KEY, meta.to_bytes())])
    own_keys, own_values = [k for k, _ in own], [v for _, v in own]
    if not change.dropped:
        return concat(own_keys, change.keys), concat(own_values, change.values)
    # Only at a snapshot of an index with a time to live: Python's sort of two sorted runs is one merge.
    records: list[tuple[bytes, bytes | None]] = [*zip(change.keys, change.values, strict=True)]
    records += [(key, None) for key in change.dropped]
    records.sort(key=lambda entry: entry[0])
    return [*own_keys, *(k for k, _ in records)], Deletions([*own_values, *(v for _, v in records)])


def _same_content(ours: str, theirs: str, layout: StateLayout, label: int) -> bool:
    """Whether a delta on disk reads back as the entries just written (file bytes differ by creation time)."""
    scratch = f"{layout.group_dir(label)}.check.{os.getpid()}"
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        listed = []
        for i, path in enumerate((ours, theirs)):
            os.makedirs(scratch, exist_ok=True)
            copy = os.path.join(scratch, f"{i}.sst")
            shutil.copyfile(path, copy)
            with RocksStore(os.path.join(scratch, str(i))) as store:
                store.ingest(copy)
                listed.append(list(store.items(b"\x00")))
        return listed[0] == listed[1]
    except LocalStoreError:
        return False
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
