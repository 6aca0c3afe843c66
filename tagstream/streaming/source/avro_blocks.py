"""The records of blocks of Avro data files as Arrow columns.

Calls of the reader cost more than the records of a small block. So the records of many blocks become one block, in which
each block of the file is one record: an array of the file's records, and a mark behind it. A block whose bytes are not
those of its records does not leave the mark where it is expected. It is read alone then.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.errors import SourceError
from tagstream.streaming.source.source_file import DamagedFileError
from tagstream.table.errors import ConfigError
from tagstream.table.file_group.avro_reader import (
    AvroReader,
    container_block,
    container_header,
    readable_schema,
)
from tagstream.table.file_group.log_format import zigzag

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
_MARK = bytes.fromhex("9e3779b97f4a1c05")  # no byte twice: with bytes before it, its begin does not look like it


@dataclass(frozen=True)
class AvroBlock:
    """A block: where it begins in the file, the number of its records, its bytes with count, size and marker, and the
    place in them where the records, perhaps compressed, begin.
    """

    start: int
    count: int
    raw: bytes
    body: int

    @property
    def sync(self) -> bytes:
        """The marker of the file."""
        return self.raw[-SYNC_BYTES:]

    @property
    def content(self) -> memoryview:
        """The records, perhaps compressed."""
        return memoryview(self.raw)[self.body : -SYNC_BYTES]


class AvroDecoder:
    """Decodes blocks of one writer's schema. Logical types are ignored here: ``FileRows`` knows them from the schema."""

    def __init__(self, schema: str, codec: str, where: str) -> None:
        try:
            self._plain = readable_schema(json.loads(schema))
        except ConfigError as e:
            raise SourceError(
                f"source file {where}: {e}; remove it from the source folder, or write it with another schema"
            ) from e
        self._codec = codec
        self._reader = AvroReader()
        try:
            self._kind = self._reader.types(self._header(b"\0" * SYNC_BYTES, "null"))
        except ValueError as e:
            raise SourceError(f"source file {where}: {e}") from e
        array = {"type": "array", "items": self._plain}
        mark = {"type": "fixed", "name": "tagstream_mark", "size": len(_MARK)}
        fields = [{"name": "rows", "type": array}, {"name": "mark", "type": mark}]
        self._arrays = container_header({"type": "record", "name": "tagstream_block", "fields": fields})

    def decode(self, blocks: list[AvroBlock]) -> Iterator[tuple[list[AvroBlock], pa.StructArray]]:
        """(blocks, their records) of successive blocks. DamagedFileError names the block that cannot be decoded.

        Bytes behind the last record of a block are ignored, as Java's reader does: some writers leave such bytes.
        """
        rows = self._together(blocks)
        if rows is not None:
            yield blocks, rows
            return
        for block in blocks:
            yield [block], self._alone(block) if block.count else pa.array([], self._kind)

    def _together(self, blocks: list[AvroBlock]) -> pa.StructArray | None:
        """All records; None where a block is not one of these records alone."""
        content = _CODECS.get(self._codec)
        if content is None:
            return None
        try:
            arrays = [
                (zigzag(block.count), content(block.content), zigzag(0), _MARK) if block.count else (zigzag(0), _MARK)
                for block in blocks
            ]
            records = b"".join(chain.from_iterable(arrays))
            found = self._reader.read([self._arrays, *container_block(records, len(blocks))], len(blocks))
        except (ValueError, zlib.error, pa.ArrowException, OSError):
            return None
        rows = found.field("rows")
        lengths = rows.value_lengths().to_numpy(zero_copy_only=False)
        if not np.array_equal(lengths, [block.count for block in blocks]):
            return None
        if not pc.all(pc.equal(found.field("mark"), pa.scalar(_MARK))).as_py():
            return None
        return rows.flatten().cast(self._kind)

    def _alone(self, block: AvroBlock) -> pa.StructArray:
        """The records of a block. Texts may be no UTF-8: bytes have the same form, and whoever needs texts checks them."""
        for schema in (self._plain, _bytes_for_texts(self._plain)):
            try:
                found = self._reader.read([self._header(block.sync, self._codec, schema), block.raw], block.count)
                return found.view(self._kind)
            except (ValueError, pa.ArrowException):
                continue
        return self._one_by_one(block)

    def _one_by_one(self, block: AvroBlock) -> pa.StructArray:
        """A block by the slow reader, where the fast one has failed."""
        content = self._header(block.sync, self._codec) + block.raw
        try:
            found = list(fastavro.reader(io.BytesIO(content)))
            if len(found) == block.count:
                return pa.array(found, self._kind)
            why = f"it has {len(found):,} records, but says {block.count:,}"
        except Exception as e:
            why = f"{type(e).__name__}: {str(e)[:120]}"
        raise DamagedFileError(f"the block at byte {block.start:,} cannot be decoded ({why}; codec {self._codec})")

    def _header(self, sync: bytes, codec: str, schema: Any = None) -> bytes:
        meta = {b"avro.schema": json.dumps(schema or self._plain).encode(), b"avro.codec": codec.encode("latin-1")}
        entries = b"".join(zigzag(len(part)) + part for pair in meta.items() for part in pair)
        return MAGIC + zigzag(len(meta)) + entries + zigzag(0) + sync


def _bytes_for_texts(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_bytes_for_texts(branch) for branch in plain]
    if not isinstance(plain, dict):
        return "bytes" if plain == "string" else plain
    parts = {part: _bytes_for_texts(plain[part]) for part in ("items", "values") if part in plain}
    if "fields" in plain:
        parts["fields"] = [{**field, "type": _bytes_for_texts(field["type"])} for field in plain["fields"]]
    return {**plain, **parts}


def _snappy(data: memoryview) -> bytes:
    """Snappy's raw form: the length as a number of seven bits a byte, the content; behind it the CRC-32 of the bytes."""
    length = shift = 0
    for byte in data[:5]:
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    found: bytes = pa.decompress(data[:-4], length, "snappy", asbytes=True)
    if zlib.crc32(found).to_bytes(4, "big") != data[-4:]:
        raise ValueError("the bytes of a block do not have its checksum")
    return found


def _zstandard(data: memoryview) -> bytes:
    with pa.input_stream(pa.py_buffer(data), compression="zstd") as stream:
        found: bytes = stream.read()
    return found


# Codecs of blocks that are decoded together. The reader itself knows some others.
_CODECS: dict[str, Callable[[memoryview], bytes | memoryview]] = {
    "null": lambda data: data,
    "deflate": lambda data: zlib.decompress(data, wbits=-15),
    "snappy": _snappy,
    "zstandard": _zstandard,
}


@lru_cache(maxsize=8)
def avro_decoder(schema: str, codec: str, where: str) -> AvroDecoder:
    """The decoder of files with this schema and codec. SourceError for a schema that is not one of columns."""
    return AvroDecoder(schema, codec, where)
