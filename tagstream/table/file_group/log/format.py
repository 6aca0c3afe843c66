"""Bytes of a log file: blocks back to back.

A block (all integers big-endian)::

    "#HUDI#"            6 bytes
    i64 size            bytes behind this field up to and with the last i64
    i32 version = 1
    i32 block type
    header              i32 count, count x (i32 key, i32 length, utf8)
    i64 content length
    content
    footer              i32 count = 0
    i64 total           size + 6
"""

from __future__ import annotations

import struct
from enum import IntEnum

MAGIC = b"#HUDI#"
VERSION = 1
I32 = struct.Struct(">i")
I64 = struct.Struct(">q")
# from the version up to the header, and what a block without header and content holds behind its size
SMALLEST_SIZE = I32.size * 3 + I64.size + I32.size + I64.size


class BlockType(IntEnum):
    """Kinds of blocks, by their number in the file; CORRUPT is never written, it is what a reader finds."""

    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6


class HeaderKey(IntEnum):
    """Keys of a block's header, by their number in the file."""

    INSTANT_TIME = 0
    TARGET_INSTANT_TIME = 1
    SCHEMA = 2
    COMMAND_BLOCK_TYPE = 3
    COMPACTED_BLOCK_TIMES = 4
    RECORD_POSITIONS = 5
    BLOCK_IDENTIFIER = 6
    IS_PARTIAL = 7
    BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS = 8


ROLLBACK_COMMAND = "0"  # the only command there is: forget the blocks of TARGET_INSTANT_TIME


def encode_block(kind: BlockType, header: dict[HeaderKey, str], content: bytes | memoryview) -> bytes:
    """One whole block. The header's entries keep the given order (Java's is that of a hash map: any)."""
    entries = [I32.pack(len(header))]
    for key, value in header.items():
        text = value.encode("utf-8")
        entries += [I32.pack(key), I32.pack(len(text)), text]
    head = b"".join(entries)
    size = SMALLEST_SIZE - I32.size + len(head) + len(content)
    return b"".join(
        [
            MAGIC,
            I64.pack(size),
            I32.pack(VERSION),
            I32.pack(kind),
            head,
            I64.pack(len(content)),
            content,
            I32.pack(0),
            I64.pack(size + len(MAGIC)),
        ]
    )


def decode_header(data: bytes, offset: int) -> tuple[dict[str, str], int]:
    """(header by key name, offset behind it). Keys this version does not know are kept under their number.

    Raises ValueError or struct.error for bytes that are no header.
    """
    (count,) = I32.unpack_from(data, offset)
    offset += I32.size
    header: dict[str, str] = {}
    for _ in range(count):
        (key,), (length,) = I32.unpack_from(data, offset), I32.unpack_from(data, offset + I32.size)
        offset += 2 * I32.size
        if length < 0 or offset + length > len(data):
            raise ValueError(f"header entry {key} has a length of {length}")
        name = HeaderKey(key).name if key in list(HeaderKey) else str(key)
        header[name] = data[offset : offset + length].decode("utf-8")
        offset += length
    return header, offset
