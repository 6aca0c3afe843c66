"""Small durable JSON files that carry a version and their own CRC-32: the marks that make a bootstrap or catch-up whole."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from tagstream.state.errors import IndexDamagedError, StateError


def sealed(doc: Mapping[str, Any], version: int) -> bytes:
    """JSON with a version and, first, the CRC-32 of the rest."""
    body = json.dumps({"version": version, **doc}, separators=(",", ":"))
    return f"{zlib.crc32(body.encode()):08x} {body}".encode()


def unsealed(data: bytes, version: int, where: str) -> tuple[dict[str, Any], int]:
    """(content, CRC-32 of the whole) of what `sealed` made; `where` it lies is for the errors' texts."""
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
    """The error for a file that is there and cannot be used."""
    return IndexDamagedError(
        f"{where} cannot be used ({why}); put it back from a copy of the checkpoint, or let the index be loaded from the "
        "table again under a new generation"
    )
