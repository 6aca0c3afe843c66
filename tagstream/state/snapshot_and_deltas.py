"""The durable state of one key group: a snapshot of its store, and the deltas of the batches after it.

A delta is the change of one batch in one key group, as a sorted file that a store ingests whole. It has the new
location records (and deletions of outlived ones) in key order, the new dictionary entries (and deletions of unused
ones) and the store's meta entry. Its chain is the hash of that content and of the chain before it. So an equal retry
gives the same chain, and any difference gives another. The file's name has the chain and a hash of the file's bytes.
These bytes differ even between equal retries, because RocksDB records when a file was made. So two attempts never
overwrite each other's file.

A snapshot is the whole store. To make it durable, only the sorted files that are not stored yet are copied.
`snapshots/<label>/<batch>-<chain>-<hash>.snapshot.json` names every file of the store. The files are in the same
folder under content-unique names, `<batch>-<hash of content><ext>`, and snapshots share them.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np

from tagstream.state import scratch
from tagstream.state.durable_files import FileRef, fetch_checked, read_checked
from tagstream.state.errors import StateError
from tagstream.state.layout import StateLayout
from tagstream.state.rocks_store import META_KEY, Deletions, RocksStore, write_sorted_file
from tagstream.state.scratch import crc_of, keep, remove, scratch_path, take_kept
from tagstream.state.store_entries import StoreMeta
from tagstream.table.storage.storage import Storage, each

_CHAIN_BYTES = 16
_HASH_BYTES = 8


@dataclass(frozen=True)
class Change:
    """The change of a key group in a batch.

    `keys` ascending; `values`: their records in the same order; `raw`: all values as one byte string. `dropped`: keys
    to remove (ascending, none of them in `keys`). `entries`: new dictionary entries in any order; `unused`: keys of the
    entries to remove. `meta`: the counters after the change (`write_delta` sets its chain).
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
    if change.unused:  # a change without any keeps the chain that earlier versions gave it
        families.append(list(change.unused))
    for family in families:
        digest.update(struct.pack("<Q", len(family)))
        digest.update(np.fromiter(map(len, family), "<u4", len(family)).tobytes())
        digest.update(b"".join(family))
    digest.update(change.raw)
    return digest.hexdigest()


def write_delta(layout: StateLayout, label: int, batch_id: int, change: Change, before: str) -> FileRef:
    """Make the change durable and return the new delta. Files of earlier attempts do not matter.

    `before`: the chain before the change.
    """
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
    """Ingest deltas into a store, in order. StateError when a durable file is missing or damaged."""

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
    """Ingest a change into a scratch store, without a durable file."""
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
    # Only at a snapshot of an index with a time to live. For two sorted runs Python's sort is one merge.
    records: list[tuple[bytes, bytes | None]] = [*zip(change.keys, change.values, strict=True)]
    records += [(key, None) for key in change.dropped]
    records.sort(key=lambda entry: entry[0])
    write_sorted_file(path, [k for k, _ in records], Deletions(v for _, v in records), own)


SNAPSHOT_VERSION = 1
MANIFEST_SUFFIX = ".snapshot.json"
_SORTED_SUFFIX = ".sst"
_SKIPPED = ("IDENTITY", "LOCK", "LOG")


@dataclass(frozen=True)
class StoredFile:
    """A file of the store (`name`), and the durable file with its bytes (`stored`); size in bytes and CRC-32."""

    name: str
    stored: str
    size: int
    crc: int


def take_snapshot(
    store: RocksStore, layout: StateLayout, label: int, batch_id: int, chain: str, before: FileRef | None
) -> FileRef:
    """Make the store's present state durable and return the snapshot.

    `chain`: that of the store. `before`: the snapshot before, which may share files with the new one; None for none.
    """
    folder = layout.snapshots_dir(label)
    link = f"{store.path}.snapshot.{os.getpid()}"
    scratch.remove(link)
    store.checkpoint(link)
    try:
        identity = store.identity()
        known = _known_files(layout, label, before, identity)

        def stored(name: str) -> StoredFile:
            path = os.path.join(link, name)
            old = known.get(name)
            if old is not None and name.endswith(_SORTED_SUFFIX) and old.size == scratch.size(path):
                return old
            return _store_file(layout.durable, path, name, folder, batch_id)

        files = each(stored, (name for name in scratch.names(link) if not name.startswith(_SKIPPED)))
    finally:
        scratch.remove(link)
    doc = {
        "version": SNAPSHOT_VERSION,
        "identity": identity,
        "chain": chain,
        "files": [[f.name, f.stored, f.size, f.crc] for f in files],
    }
    data = json.dumps(doc, separators=(",", ":")).encode()
    name = f"{batch_id:012d}-{chain[:16] or 'root'}-{blake2b(data, digest_size=8).hexdigest()}{MANIFEST_SUFFIX}"
    layout.durable.replace(f"{folder}/{name}", data)
    return FileRef(batch_id, chain, name, len(data), zlib.crc32(data))


def restore_snapshot(layout: StateLayout, label: int, snapshot: FileRef, target: str) -> None:
    """Copy a snapshot's files into the empty local folder `target`. StateError when one is missing or damaged."""
    scratch.make_folder(target)

    def fetched(f: StoredFile) -> None:
        source = f"{layout.snapshots_dir(label)}/{f.stored}"
        fetch_checked(layout.durable, source, os.path.join(target, f.name), f.size, f.crc, label, "snapshot file")

    each(fetched, _read_manifest(layout, label, snapshot)[1])


def snapshot_files(layout: StateLayout, label: int, snapshot: FileRef) -> list[StoredFile]:
    """The durable files of a snapshot."""
    return _read_manifest(layout, label, snapshot)[1]


def _known_files(layout: StateLayout, label: int, before: FileRef | None, identity: str) -> dict[str, StoredFile]:
    """The files of the snapshot before, by name. Usable only for the same local store: it uses a file name only once."""
    if before is None:
        return {}
    found, files = _read_manifest(layout, label, before)
    return {f.name: f for f in files} if found == identity else {}


def files_of_manifest(layout: StateLayout, label: int, name: str) -> list[StoredFile]:
    """The durable files in a snapshot manifest, found by name alone. Size and checksum of the manifest are not checked."""
    path = f"{layout.snapshots_dir(label)}/{name}"
    return _parse_manifest(layout.durable.read(path), label, layout.durable.where(path))[1]


def _read_manifest(layout: StateLayout, label: int, snapshot: FileRef) -> tuple[str, list[StoredFile]]:
    path = f"{layout.snapshots_dir(label)}/{snapshot.file}"
    data = read_checked(layout.durable, path, snapshot.size, snapshot.crc, label, "snapshot manifest")
    return _parse_manifest(data, label, layout.durable.where(path))


def _parse_manifest(data: bytes, label: int, where: str) -> tuple[str, list[StoredFile]]:
    doc: dict[str, Any] = json.loads(data)
    if doc.get("version") != SNAPSHOT_VERSION:
        raise StateError(
            f"snapshot manifest {where} of key group {label} has version {doc.get('version')!r}, this program knows "
            f"{SNAPSHOT_VERSION}; run the program version that wrote the checkpoint"
        )
    return doc["identity"], [StoredFile(*f) for f in doc["files"]]


def _store_file(durable: Storage, path: str, name: str, folder: str, batch_id: int) -> StoredFile:
    digest = blake2b(digest_size=16)
    size, crc = scratch.crc_of(path, digest.update)
    stored = f"{batch_id:012d}-{digest.hexdigest()}{os.path.splitext(name)[1]}"
    durable.put(f"{folder}/{stored}", path)  # may replace a file of an earlier attempt: it is equal or damaged
    return StoredFile(name, stored, size, crc)
