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


def read_sealed(path: str, version: int) -> tuple[dict[str, Any], int] | None:
    """(content, CRC-32 of the file) of what `sealed` made; None when there is no file."""
    try:
        with open(path, "rb") as f:
            data = f.read()
    except FileNotFoundError:
        return None
    crc, _, body = data.partition(b" ")
    if crc != b"%08x" % zlib.crc32(body):
        raise damaged(path, "its checksum does not match")
    doc: dict[str, Any] = json.loads(body)
    found = doc.pop("version", None)
    if found != version:
        raise StateError(
            f"{path} has version {found!r}, this program knows {version}; run the program version that wrote the checkpoint"
        )
    return doc, zlib.crc32(data)


def damaged(path: str, why: str) -> IndexDamagedError:
    """The error for a file that is there and cannot be used."""
    return IndexDamagedError(
        f"{path} cannot be used ({why}); put it back from a copy of the checkpoint, or let the index be loaded from the "
        "table again under a new generation"
    )
