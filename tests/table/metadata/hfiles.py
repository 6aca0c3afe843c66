"""HFiles that the JVM wrote (fixtures/hfiles.tar.gz), and what is in them.

One set of 2999 entries, written by HBase's writer of Hudi 0.15.0 (``hbase_gz_levels``: blocks of 2 KiB under an index of
two levels; ``hbase_none``: blocks of 8 KiB) and by Hudi 1.2.0's own writer (``native_gz``, ``native_none``).
"""

from __future__ import annotations

import base64
import json
import struct
import tarfile
from functools import cache
from pathlib import Path

from tagstream.table.metadata.hfile import HFile
from tagstream.table.metadata.hfile_block import META, read_block
from tests.support.paths import FIXTURES

NAMES = ["hbase_gz_levels", "hbase_none", "native_gz", "native_none"]

Rows = list[tuple[bytes, bytes]]


@cache
def content(name: str) -> bytes:
    """Bytes of a file of the archive."""
    with tarfile.open(FIXTURES / "hfiles.tar.gz") as archive:
        file = archive.extractfile(name)
        assert file is not None
        return file.read()


@cache
def rows() -> Rows:
    """The entries all of them hold, in order."""
    return [(key.encode(), base64.b64decode(value)) for key, value in json.loads(content("rows.json"))]


def unpack(name: str, folder: Path) -> Path:
    """Write one of the files into a folder."""
    path = folder / f"{name}.hfile"
    path.write_bytes(content(f"{name}.hfile"))
    return path


def filter_of(file: HFile) -> bytes | None:
    """The content of the meta block that the index names ``bloomFilter``; None without one. There may be no other."""
    at = file.trailer.load_on_open
    index = read_block(file.source, read_block(file.source, at, file.trailer.codec).end, file.trailer.codec).data
    if not index:
        return None
    offset, size, length = struct.unpack_from(">qiB", index)
    assert (length, index[13:]) == (len(b"bloomFilter"), b"bloomFilter")
    block = read_block(file.source, offset, file.trailer.codec)
    assert (block.magic, block.end) == (META, offset + size)
    return block.data
