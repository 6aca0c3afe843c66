"""The end of an HFile: where its parts lie, and its own properties (protobuf messages; HFile.proto of HBase).

The last 4096 bytes are ``TRABLK"$``, a message behind its length, zeros, and in the last four the minor (1 byte) and
major version (3 bytes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tagstream.table.errors import UnsupportedTableError
from tagstream.table.file_group.log.varint import read_varint
from tagstream.table.metadata.hfile_block import Codec, FileRange

TRAILER_SIZE: Final = 4096
TRAILER_MAGIC: Final = b'TRABLK"$'
INFO_MAGIC: Final = b"PBUF"
_MAJOR: Final = 3
_MOST_LEVELS: Final = 8
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class Trailer:
    """What is needed of the trailer. ``load_on_open``: where the root index, the meta index and the properties begin."""

    load_on_open: int
    first_data_block: int
    index_count: int
    index_levels: int
    entries: int
    codec: Codec


def read_trailer(source: FileRange) -> Trailer:
    """The trailer of version 3; other versions, encryption and unknown codecs are refused by name."""
    offset = source.length - TRAILER_SIZE
    data = source.read(offset, TRAILER_SIZE)
    major = int.from_bytes(data[-3:], "big")
    if not data.startswith(TRAILER_MAGIC):
        raise source.corrupt(max(offset, 0), "no trailer begins")
    if major != _MAJOR:
        raise UnsupportedTableError(f"{source.path} is an HFile of version {major}; version {_MAJOR} can be read")
    try:
        fields = trailer_fields(data)
        codec = Codec(_number(fields, 12, Codec.NONE))
    except ValueError as error:
        raise source.corrupt(offset, f"the trailer is broken ({error})") from None
    if any(fields.get(13, ())):  # an empty key is none: Hudi 1.1 before its release wrote one
        raise UnsupportedTableError(f"{source.path} is an encrypted HFile, which cannot be read")
    trailer = Trailer(
        load_on_open=_number(fields, 2),
        first_data_block=_number(fields, 9),
        index_count=_number(fields, 5),
        index_levels=_number(fields, 8, 1),
        entries=_number(fields, 7),
        codec=codec,
    )
    if trailer.load_on_open > offset or not 0 <= trailer.index_levels <= _MOST_LEVELS:
        raise source.corrupt(
            offset,
            f"the trailer tells of {trailer.index_levels} index levels and of indexes at {trailer.load_on_open}",
        )
    return trailer


def trailer_fields(data: bytes) -> dict[int, list[int | bytes]]:
    """Everything the trailer says, by the numbers of HFile.proto; ValueError where it is broken."""
    size, at = read_varint(data, len(TRAILER_MAGIC))
    return _message(data[at : at + size])


def read_info(data: bytes) -> dict[str, bytes]:
    """The properties of a file-info block; ValueError where they are broken."""
    if not data.startswith(INFO_MAGIC):
        raise ValueError("no properties begin")
    size, at = read_varint(data, len(INFO_MAGIC))
    info = {}
    for pair in _message(data[at : at + size]).get(1, ()):
        if isinstance(pair, int):
            raise ValueError("a property is a number")
        fields = _message(pair)
        key, value = (fields.get(number, [b""])[0] for number in (1, 2))
        if isinstance(key, int) or isinstance(value, int):
            raise ValueError("a property's key or value is a number")
        info[key.decode("utf-8", "replace")] = value
    return info


def _number(fields: dict[int, list[int | bytes]], number: int, default: int = 0) -> int:
    value = fields.get(number, [default])[-1]
    if not isinstance(value, int):
        raise ValueError(f"field {number} is no number")
    return value


def _message(data: bytes) -> dict[int, list[int | bytes]]:
    """Values of a protobuf message by field number."""
    fields: dict[int, list[int | bytes]] = {}
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        kind = tag & 7
        value: int | bytes
        if kind == _VARINT:
            value, at = read_varint(data, at)
        elif kind in (_BYTES, _FIXED64, _FIXED32):
            size = {_FIXED64: 8, _FIXED32: 4}.get(kind, 0)
            if kind == _BYTES:
                size, at = read_varint(data, at)
            if at + size > len(data):
                raise ValueError(f"a field of {size} bytes at {at} of {len(data)}")
            value, at = data[at : at + size], at + size
        else:
            raise ValueError(f"a field of the wire type {kind}")
        fields.setdefault(tag >> 3, []).append(value)
    return fields
