"""Snapshots: a key group's whole store, made durable by copying only the sorted files not stored before.

`snapshots/<label>/<batch>-<chain>-<hash>.snapshot.json` names every file of the store; the files themselves lie beside
it under content-unique names, `<batch>-<hash of content><ext>`, shared between snapshots.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from tagstream.state.durable.files import crc_of, publish, read_checked, temp_path, write_new
from tagstream.state.errors import StateError
from tagstream.state.layout import StateLayout
from tagstream.state.pointer import FileRef
from tagstream.state.store.rocks_store import RocksStore

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
    os.makedirs(folder, exist_ok=True)
    link = f"{store.path}.snapshot.{os.getpid()}"
    shutil.rmtree(link, ignore_errors=True)
    store.checkpoint(link)
    try:
        identity = store.identity()
        known = _known_files(folder, label, before, identity)
        files = []
        for name in sorted(os.listdir(link)):
            if name.startswith(_SKIPPED):
                continue
            path = os.path.join(link, name)
            old = known.get(name)
            if old is not None and name.endswith(_SORTED_SUFFIX) and old.size == os.path.getsize(path):
                files.append(old)
            else:
                files.append(_store_file(path, name, folder, batch_id, layout.durable_fsync))
    finally:
        shutil.rmtree(link, ignore_errors=True)
    doc = {
        "version": SNAPSHOT_VERSION,
        "identity": identity,
        "chain": chain,
        "files": [[f.name, f.stored, f.size, f.crc] for f in files],
    }
    data = json.dumps(doc, separators=(",", ":")).encode()
    name = f"{batch_id:012d}-{chain[:16] or 'root'}-{blake2b(data, digest_size=8).hexdigest()}{MANIFEST_SUFFIX}"
    write_new(os.path.join(folder, name), data, batch_id, layout.durable_fsync)
    return FileRef(batch_id, chain, name, len(data), zlib.crc32(data))


def restore_snapshot(layout: StateLayout, label: int, snapshot: FileRef, target: str) -> None:
    """Put a snapshot's files into the empty local folder `target`; StateError when one is missing or damaged."""
    folder = layout.snapshots_dir(label)
    os.makedirs(target)
    for f in _read_manifest(folder, label, snapshot)[1]:
        source, copy = os.path.join(folder, f.stored), os.path.join(target, f.name)
        try:
            shutil.copyfile(source, copy)
        except FileNotFoundError:
            read_checked(source, f.size, f.crc, label, "snapshot file")
        if crc_of(copy) != (f.size, f.crc):
            read_checked(source, f.size, f.crc, label, "snapshot file")
            raise StateError(f"key group {label}: {source} cannot be copied whole to {copy}; is the local disk full?")


def snapshot_files(layout: StateLayout, label: int, snapshot: FileRef) -> list[StoredFile]:
    """The durable files a snapshot needs."""
    return _read_manifest(layout.snapshots_dir(label), label, snapshot)[1]


def _known_files(folder: str, label: int, before: FileRef | None, identity: str) -> dict[str, StoredFile]:
    """Files the snapshot before stored, by name; usable only for the very same local store (a name is given once)."""
    if before is None:
        return {}
    found, files = _read_manifest(folder, label, before)
    return {f.name: f for f in files} if found == identity else {}


def _read_manifest(folder: str, label: int, snapshot: FileRef) -> tuple[str, list[StoredFile]]:
    path = os.path.join(folder, snapshot.file)
    data = read_checked(path, snapshot.size, snapshot.crc, label, "snapshot manifest")
    doc: dict[str, Any] = json.loads(data)
    if doc.get("version") != SNAPSHOT_VERSION:
        raise StateError(
            f"snapshot manifest {path} of key group {label} has version {doc.get('version')!r}, this program knows "
            f"{SNAPSHOT_VERSION}; run the program version that wrote the checkpoint"
        )
    return doc["identity"], [StoredFile(*f) for f in doc["files"]]


def _store_file(path: str, name: str, folder: str, batch_id: int, fsync: bool) -> StoredFile:
    temp = temp_path(folder, batch_id)
    shutil.copyfile(path, temp)
    digest = blake2b(digest_size=16)
    size, crc = crc_of(temp, digest.update)
    stored = f"{batch_id:012d}-{digest.hexdigest()}{os.path.splitext(name)[1]}"
    target = os.path.join(folder, stored)
    if not publish(temp, target, fsync):
        os.unlink(temp)
        if crc_of(target) == (size, crc):
            return StoredFile(name, stored, size, crc)
        raise StateError(f"snapshot file {target} exists with other content than its name says; remove it")
    return StoredFile(name, stored, size, crc)
