"""Durable files of the index: visible only when whole, never changed, named by a pointer, checked when read.

The pointer is the value in Spark's group state for a key group. It names the group's durable files:

    {"v":1,"g":generation,"e":epoch,"s":snapshot | null,"d":[delta, ...]}
    generation, epoch: the number of the index load, and of the catch-up after it
    snapshot = [batch, chain, file, bytes, crc32]      chain: that of the newest delta in the snapshot
    delta    = [batch, chain, file, bytes, crc32]      chain: hash of its content and of the chain before it

A local store can be used for a pointer exactly when the pointer names the store's chain.

Sealed files are small JSON files with a version and their own CRC-32: the markers that complete an index load or a
catch-up.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tagstream.state.errors import IndexDamagedError, StateError
from tagstream.state.scratch import crc_of
from tagstream.table.storage.storage import Storage

POINTER_VERSION = 1
ROOT_CHAIN = ""


@dataclass(frozen=True)
class FileRef:
    """A durable file: the batch that wrote it, the chain of a store with this file applied, size in bytes and CRC-32."""

    batch: int
    chain: str
    file: str
    size: int
    crc: int


@dataclass(frozen=True)
class Pointer:
    """The committed state of a key group: numbers of its index load and catch-up, its snapshot, the deltas after that."""

    index_load: int = 0
    catch_up: int = 0
    snapshot: FileRef | None = None
    deltas: tuple[FileRef, ...] = ()

    @property
    def base_chain(self) -> str:
        """Chain of the state before the first delta."""
        return self.snapshot.chain if self.snapshot else ROOT_CHAIN

    @property
    def chain(self) -> str:
        """Chain of the whole committed state."""
        return self.deltas[-1].chain if self.deltas else self.base_chain

    def after(self, chain: str) -> tuple[FileRef, ...] | None:
        """The deltas that a store at `chain` still lacks; None when the store is ahead or of another history."""
        if chain == self.base_chain:
            return self.deltas
        for i, delta in enumerate(self.deltas):
            if delta.chain == chain:
                return self.deltas[i + 1 :]
        return None

    def to_doc(self) -> dict[str, Any]:
        """The pointer as JSON's types."""
        return {
            "v": POINTER_VERSION,
            "g": self.index_load,
            "e": self.catch_up,
            "s": ref_list(self.snapshot),
            "d": [ref_list(d) for d in self.deltas],
        }

    @classmethod
    def from_doc(cls, doc: dict[str, Any]) -> Pointer:
        """The pointer in the form of `to_doc`; ValueError, KeyError or TypeError for something else."""
        if doc["v"] != POINTER_VERSION:
            raise ValueError(f"pointer version {doc['v']!r}, this program knows {POINTER_VERSION}")
        deltas = tuple(FileRef(*d) for d in doc["d"])
        return cls(int(doc["g"]), int(doc["e"]), ref_from(doc["s"]), deltas)

    def to_bytes(self) -> bytes:
        """Compact JSON."""
        return json.dumps(self.to_doc(), separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes, label: int) -> Pointer:
        """Parse Spark's value for key group `label`; StateError when it is not a pointer of this version."""
        try:
            doc = json.loads(data)
            version = doc.get("v")
            if version == POINTER_VERSION:
                return cls.from_doc(doc)
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise StateError(
                f"state of key group {label} is not a pointer ({e!r}); the checkpoint is damaged, restore it from a copy"
            ) from e
        raise StateError(
            f"state of key group {label} has pointer version {version!r}, this program knows {POINTER_VERSION}; "
            "run the program version that wrote the checkpoint"
        )


def ref_list(ref: FileRef | None) -> list[Any] | None:
    """JSON form of a reference."""
    return None if ref is None else [ref.batch, ref.chain, ref.file, ref.size, ref.crc]


def ref_from(doc: list[Any] | None) -> FileRef | None:
    """Reference from its JSON form."""
    return None if doc is None else FileRef(*doc)


def sealed(doc: Mapping[str, Any], version: int) -> bytes:
    """JSON with a version and, first, the CRC-32 of the rest."""
    body = json.dumps({"version": version, **doc}, separators=(",", ":"))
    return f"{zlib.crc32(body.encode()):08x} {body}".encode()


def unsealed(data: bytes, version: int, where: str) -> tuple[dict[str, Any], int]:
    """(content, CRC-32 of the whole) of the data that `sealed` made; `where`: the path, for the errors' texts."""
    crc, _, body = data.partition(b" ")
    if crc != b"%08x" % zlib.crc32(body):
        raise damaged(where, "its checksum does not match")
    doc: dict[str, Any] = json.loads(body)
    found = doc.pop("version", None)
    if found != version:
        raise StateError(
            f"{where} has version {found!r}, this program knows {version}; run the program version that wrote the checkpoint"
        )
    return doc, zlib.crc32(data)


def damaged(where: str, why: str) -> IndexDamagedError:
    """The error for a file that exists and cannot be used."""
    return IndexDamagedError(
        f"{where} cannot be used ({why}); restore the file from a copy of the checkpoint, or start the job, which loads the "
        "index from the table again"
    )


_OLD_TEMP_PREFIX = ".tmp-"  # of scratch files that killed processes of earlier program versions left


def batch_of(name: str) -> int | None:
    """The batch id in the name of a durable file or an old scratch file; None for another name."""
    head = name.removeprefix(_OLD_TEMP_PREFIX).split("-", 1)[0]
    return int(head) if head.isdigit() else None


def read_sealed(storage: Storage, rel: str, version: int) -> tuple[dict[str, Any], int] | None:
    """(content, CRC-32 of the file) of a file that `sealed` made; None when the file is missing."""
    try:
        data = storage.read(rel)
    except FileNotFoundError:
        return None
    return unsealed(data, version, storage.where(rel))


def read_checked(storage: Storage, rel: str, size: int, crc: int, label: int, what: str) -> bytes:
    """Bytes of a durable file; IndexDamagedError when it is missing or differs from its reference.

    `rel`: the path in `storage`. `size` in bytes, `crc`: CRC-32. `label` (key group) and `what` are for the error's text.
    """
    try:
        data = storage.read(rel)
    except FileNotFoundError as e:
        raise IndexDamagedError(_text(storage.where(rel), label, what, "is missing")) from e
    if len(data) != size:
        raise IndexDamagedError(_text(storage.where(rel), label, what, f"has {len(data)} bytes instead of {size}"))
    found = zlib.crc32(data)
    if found != crc:
        problem = f"has checksum {found:08x} instead of {crc:08x}"
        raise IndexDamagedError(_text(storage.where(rel), label, what, problem))
    return data


def fetch_checked(storage: Storage, rel: str, local: str, size: int, crc: int, label: int, what: str) -> None:
    """Copy a durable file to a local path. IndexDamagedError as in `read_checked`, StateError when the copy is not whole."""
    try:
        storage.fetch(rel, local)
    except FileNotFoundError as e:
        raise IndexDamagedError(_text(storage.where(rel), label, what, "is missing")) from e
    if crc_of(local) != (size, crc):
        read_checked(storage, rel, size, crc, label, what)
        raise StateError(
            f"key group {label}: {storage.where(rel)} cannot be copied whole to {local}; check the space on the local disk"
        )


def _text(where: str, label: int, what: str, problem: str) -> str:
    return (
        f"{what} of key group {label} {problem}: {where}; restore the file from a copy of the checkpoint, or start the "
        "job, which loads the index from the table again"
    )
