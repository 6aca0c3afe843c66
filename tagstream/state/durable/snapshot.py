"""Snapshots: a key group's whole store, made durable by copying only the sorted files not stored before.

`snapshots/<label>/<batch>-<chain>-<hash>.snapshot.json` names every file of the store; the files themselves lie beside
it under content-unique names, `<batch>-<hash of content><ext>`, shared between snapshots.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from tagstream.state.durable.files import fetch_checked, read_checked
from tagstream.state.errors import StateError
from tagstream.state.layout import StateLayout
from tagstream.state.pointer import FileRef
from tagstream.state.store import scratch
from tagstream.state.store.rocks_store import RocksStore
from tagstream.table.each import each
from tagstream.table.storage.storage import Storage

SNAPSHOT_VERSION = 1
MANIFEST_SUFFIX = ".snapshot.json"
_SORTED_SUFFIX = ".sst"
_SKIPPED = ("IDENTITY", "LOCK", "LOG")


@dataclass(frozen=True)
class StoredFile:
    """A file of the store (`name`) and where its bytes are kept (`stored`)."""

    name: str
    stored: str
    size: int
    crc: int


def take_snapshot(
    store: RocksStore, layout: StateLayout, label: int, batch_id: int, chain: str, before: FileRef | None
) -> FileRef:
    """Make the store's present state (at `chain`) durable; `before` is the snapshot that may share files with it."""
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
    """Put a snapshot's files into the empty local folder `target`; StateError when one is missing or damaged."""
    scratch.make_folder(target)

    def fetched(f: StoredFile) -> None:
        source = f"{layout.snapshots_dir(label)}/{f.stored}"
        fetch_checked(layout.durable, source, os.path.join(target, f.name), f.size, f.crc, label, "snapshot file")

    each(fetched, _read_manifest(layout, label, snapshot)[1])


def snapshot_files(layout: StateLayout, label: int, snapshot: FileRef) -> list[StoredFile]:
    """The durable files a snapshot needs."""
    return _read_manifest(layout, label, snapshot)[1]


def _known_files(layout: StateLayout, label: int, before: FileRef | None, identity: str) -> dict[str, StoredFile]:
    """Files the snapshot before stored, by name; usable only for the very same local store (a name is given once)."""
    if before is None:
        return {}
    found, files = _read_manifest(layout, label, before)
    return {f.name: f for f in files} if found == identity else {}


def files_of_manifest(layout: StateLayout, label: int, name: str) -> list[StoredFile]:
    """The durable files that a snapshot manifest names, found by its name alone: its bytes are not held against anything."""
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
    durable.put(f"{folder}/{stored}", path)  # over one of an earlier attempt, which has the same bytes or is damaged
    return StoredFile(name, stored, size, crc)
