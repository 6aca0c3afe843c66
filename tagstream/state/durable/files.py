"""Durable files of the index: written whole or not at all, never changed, checked when read."""

from __future__ import annotations

import zlib
from typing import Any

from tagstream.state.errors import IndexDamagedError, StateError
from tagstream.state.sealed import unsealed
from tagstream.state.store.scratch import crc_of
from tagstream.table.storage.storage import Storage

_OLD_TEMP_PREFIX = ".tmp-"  # of scratch files that program versions before this one left when they were killed


def batch_of(name: str) -> int | None:
    """The batch id in a durable file's name, or in that of an old scratch file; None for a name of another kind."""
    head = name.removeprefix(_OLD_TEMP_PREFIX).split("-", 1)[0]
    return int(head) if head.isdigit() else None


def read_sealed(storage: Storage, rel: str, version: int) -> tuple[dict[str, Any], int] | None:
    """(content, CRC-32 of the file) of a file that `state.sealed.sealed` made; None when there is none."""
    try:
        data = storage.read(rel)
    except FileNotFoundError:
        return None
    return unsealed(data, version, storage.where(rel))


def read_checked(storage: Storage, rel: str, size: int, crc: int, label: int, what: str) -> bytes:
    """Bytes of a durable file; IndexDamagedError when it is missing or not what its reference says."""
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
    """Copy a durable file to a local path; IndexDamagedError as `read_checked`, StateError when the copy is not whole."""
    try:
        storage.fetch(rel, local)
    except FileNotFoundError as e:
        raise IndexDamagedError(_text(storage.where(rel), label, what, "is missing")) from e
    if crc_of(local) != (size, crc):
        read_checked(storage, rel, size, crc, label, what)
        raise StateError(
            f"key group {label}: {storage.where(rel)} cannot be copied whole to {local}; is the local disk full?"
        )


def _text(where: str, label: int, what: str, problem: str) -> str:
    return (
        f"{what} of key group {label} {problem}: {where}; put the file back from a copy of the checkpoint, or let the "
        "index be loaded from the table again under a new generation"
    )
