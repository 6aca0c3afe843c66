"""Deltas: what one batch changes in one key group, as a sorted file that a store takes in whole.

A delta holds the new location records (and deletions of outlived ones) in key order, the new dictionary entries (and
deletions of those that nobody uses) and the store's meta entry. Its chain is the hash of that content and of the chain
before it, so an equal retry makes the same chain and any difference another. The file's name has the chain and a hash of
the file's own bytes (which differ between equal retries: RocksDB notes when a file was made), so two attempts never write
over one another's.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np

from tagstream.state.durable.files import fetch_checked
from tagstream.state.layout import StateLayout
from tagstream.state.pointer import FileRef
from tagstream.state.store.rocks_store import META_KEY, Deletions, RocksStore, write_sorted_file
from tagstream.state.store.scratch import crc_of, keep, remove, scratch_path, take_kept
from tagstream.state.store.store_meta import StoreMeta
from tagstream.table.each import each

_CHAIN_BYTES = 16
_HASH_BYTES = 8


@dataclass(frozen=True)
class Change:
    """A batch's change of a key group.

    `keys` ascending, `values` their records in the same order, `raw` all values as one run of bytes; `dropped` are
    keys (ascending, none of them in `keys`) to be forgotten; `entries` are new dictionary entries in any order, `unused`
    the keys of entries that go; `meta` holds the counters after the change (its chain is filled in here).
    """

    keys: list[bytes]
    values: Iterable[bytes]
    raw: bytes
    dropped: Sequence[bytes]
    entries: list[tuple[bytes, bytes]]
    meta: StoreMeta
    unused: Sequence[bytes] = ()


def chain_of(change: Change, before: str) -> str:
    """Chain after the change: 32 hex digits."""
    digest = blake2b(before.encode(), digest_size=_CHAIN_BYTES)
    digest.update(replace(change.meta, chain="").to_bytes())
    families = [change.keys, list(change.dropped), *zip(*sorted(change.entries), strict=True)]
    if change.unused:  # what drops none has the chain that it always had
        families.append(list(change.unused))
    for family in families:
        digest.update(struct.pack("<Q", len(family)))
        digest.update(np.fromiter(map(len, family), "<u4", len(family)).tobytes())
        digest.update(b"".join(family))
    digest.update(change.raw)
    return digest.hexdigest()


def write_delta(layout: StateLayout, label: int, batch_id: int, change: Change, before: str) -> FileRef:
    """Make the change durable, whatever earlier attempts have left."""
    chain = chain_of(change, before)
    meta = replace(change.meta, chain=chain)
    folder = layout.group_dir(label)
    temp = scratch_path(folder, "delta")
    try:
        _write(temp, change, meta)
        digest = blake2b(digest_size=_HASH_BYTES)
        size, crc = crc_of(temp, digest.update)
        name = f"{batch_id:012d}-{chain}-{digest.hexdigest()}.sst"
        layout.durable.put(f"{layout.deltas_dir(label)}/{name}", temp)
        keep(temp, folder, name)
    finally:
        remove(temp)
    return FileRef(batch_id, chain, name, size, crc)


def apply_deltas(store: RocksStore, layout: StateLayout, label: int, deltas: Sequence[FileRef]) -> None:
    """Bring a store further, delta by delta; StateError when a durable file is missing or damaged."""

    def fetched(delta: FileRef) -> str:
        local = f"{store.path}.{delta.file}.{os.getpid()}"
        what = f"delta of batch {delta.batch}"
        rel = f"{layout.deltas_dir(label)}/{delta.file}"
        if take_kept(layout.group_dir(label), delta.file, local) and crc_of(local) == (delta.size, delta.crc):
            return local
        fetch_checked(layout.durable, rel, local, delta.size, delta.crc, label, what)
        return local

    for local in each(fetched, deltas):
        store.ingest(local)


def ingest_change(store: RocksStore, change: Change) -> None:
    """Bring a scratch store further by a change that nobody keeps."""
    temp = f"{store.path}.change.{os.getpid()}"
    _write(temp, change, change.meta)
    store.ingest(temp)


def _write(path: str, change: Change, meta: StoreMeta) -> None:
    """The sorted file: the store's own entries, then the records."""
    own: list[tuple[bytes, bytes | None]] = [*change.entries, (META_KEY, meta.to_bytes())]
    own += [(key, None) for key in change.unused]
    own.sort(key=lambda entry: entry[0])
    if not change.dropped:
        write_sorted_file(path, change.keys, change.values, own)
        return
    # Only at a snapshot of an index with a time to live: Python's sort of two sorted runs is one merge.
    records: list[tuple[bytes, bytes | None]] = [*zip(change.keys, change.values, strict=True)]
    records += [(key, None) for key in change.dropped]
    records.sort(key=lambda entry: entry[0])
    write_sorted_file(path, [k for k, _ in records], Deletions(v for _, v in records), own)
