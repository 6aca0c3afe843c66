"""Write HFiles (version 3) that both of Hudi's readers, HBase's and its own, can read.

The codec is GZ or NONE, and there is one root index.

``hfile`` and ``hfile_block`` describe the format. Parts that no reader needs are omitted: levels of the index (a root
index may have any number of entries) and checksums. The checksum kind is "none" and their space is kept, as in Hudi's
own writer. A bloom filter of the keys, the only possible meta block, has the same text as in the footer of a Parquet
base file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from isal import isal_zlib

from tagstream.table.errors import InvalidKeyError
from tagstream.table.file_group.bloom import BloomBuilder, BloomParams
from tagstream.table.file_group.log_format import varint
from tagstream.table.metadata.hfile import INFO_MAGIC, TRAILER_MAGIC, TRAILER_SIZE
from tagstream.table.metadata.hfile_block import DATA, FILE_INFO, KEY_END, META, ROOT_INDEX, Codec

BLOCK_BYTES: Final = 64 * 1024

_CHUNK_BYTES: Final = 8 * 1024 * 1024  # of entries that are joined at a time
_PIECE: Final = 16 * 1024  # bytes a checksum would cover
_HEADER: Final = struct.Struct(">8siiqBii")
LONGEST_KEY: Final = 2**15 - 1  # a row's length is an i16
_NO_BLOCK: Final = 2**64 - 1
_COMPARATOR: Final = b"org.apache.hudi.io.storage.HoodieHBaseKVComparator"
_VERSION: Final = b"\3\0\0\3"  # minor 3, major 3
# Of ISA-L: a tenth of the time of zlib's level 6 (Java's default), for blocks that are a fifth larger.
_LEVEL: Final = 2
_BLOOM: Final = b"bloomFilter"  # the name of its meta block


@dataclass(frozen=True)
class HFileSummary:
    """A written file: number of entries, bytes, and the first and last key (empty without entries)."""

    entries: int
    size: int
    first_key: bytes
    last_key: bytes


class HFileWriter:
    """Writes one HFile sequentially; ``finish`` must be called. Memory: a chunk of entries and the index."""

    def __init__(
        self,
        out: BinaryIO,
        avro_json: str,
        codec: Codec = Codec.GZ,
        block_bytes: int = BLOCK_BYTES,
        bloom: BloomParams | None = None,
    ) -> None:
        """``avro_json``: the schema of the values, which readers take from the file. ``bloom``: the parameters of a filter
        of the keys, or None without one.
        """
        if codec not in (Codec.GZ, Codec.NONE):
            raise ValueError(f"HFiles are written with GZ or NONE, not {codec.name}")
        self._out, self._avro_json, self._codec, self._block_bytes = out, avro_json, codec, block_bytes
        self._at = self._entries = self._key_bytes = self._value_bytes = self._raw_bytes = 0
        self._index: list[bytes] = []
        self._last_block = _NO_BLOCK
        self._first: bytes | None = None
        self._last: bytes | None = None
        self._kind = bloom.kind if bloom is not None else ""
        self._bloom = BloomBuilder(bloom) if bloom is not None else None

    def add(self, keys: pa.Array, values: pa.Array) -> None:
        """Append entries: binary arrays without nulls, keys unique and ascending by their bytes, also over several calls."""
        keys, values = keys.cast(pa.large_binary()), values.cast(pa.large_binary())
        if not len(keys):
            return
        _check_order(keys, self._last)
        lengths = pc.binary_length(keys).to_numpy().astype(np.int64)
        if int(lengths.max()) > LONGEST_KEY:
            raise InvalidKeyError(
                f"a key of {int(lengths.max())} bytes does not fit into the metadata table's files (at most {LONGEST_KEY}); "
                "shorten the record key, or disable the record index (hoodie.metadata.record.index.enable=false)"
            )
        self._first = keys[0].as_py() if self._first is None else self._first
        self._last = keys[-1].as_py()
        if self._bloom is not None:
            self._bloom.add(keys)
        for start, end in _chunks(lengths, pc.binary_length(values).to_numpy().astype(np.int64)):
            self._add_chunk(keys.slice(start, end - start), values.slice(start, end - start))

    def finish(self) -> HFileSummary:
        """Write the filter, indexes, properties and trailer. The stream is not closed."""
        meta = self._meta_block()
        load_on_open = self._at
        index = b"".join(self._index)
        self._block(ROOT_INDEX, index)
        self._block(ROOT_INDEX, meta)
        info_at = self._at
        self._block(FILE_INFO, self._properties())
        blocks = len(self._index)
        numbers = {
            1: info_at, 2: load_on_open, 3: len(index), 4: self._raw_bytes, 5: blocks, 6: int(bool(meta)),
            7: self._entries, 8: 1, 9: 0 if blocks else _NO_BLOCK, 10: self._last_block,
        }  # fmt: skip
        message = b"".join(varint(number << 3) + varint(value) for number, value in numbers.items())
        message += b"\x5a" + varint(len(_COMPARATOR)) + _COMPARATOR + b"\x60" + varint(self._codec)
        trailer = TRAILER_MAGIC + varint(len(message)) + message
        self._write(trailer.ljust(TRAILER_SIZE - len(_VERSION), b"\0") + _VERSION)
        return HFileSummary(self._entries, self._at, self._first or b"", self._last or b"")

    def _add_chunk(self, keys: pa.Array, values: pa.Array) -> None:
        rows, sizes = _lengths_of(keys), _lengths_of(values)
        joined = pc.binary_join_element_wise(
            _entry_heads(rows, sizes), keys, pa.scalar(KEY_END, pa.large_binary()), values,
            pa.scalar(b"\0", pa.large_binary()), pa.scalar(b"", pa.large_binary()),
        )  # fmt: skip
        ends = np.cumsum(_lengths_of(joined))
        data = memoryview(joined.buffers()[2])[int(np.frombuffer(joined.buffers()[1], np.int64)[joined.offset]) :]
        self._entries += len(keys)
        self._key_bytes += int(rows.sum()) + len(keys) * (2 + len(KEY_END))
        self._value_bytes += int(sizes.sum())
        first = begin = 0
        while first < len(ends):
            # As in Hudi's own writer, an entry that would exceed the block size begins the next block.
            behind = max(first + 1, int(np.searchsorted(ends, begin + self._block_bytes, "right")))
            end = int(ends[behind - 1])
            self._data_block(keys[first].as_py(), data[begin:end])
            first, begin = behind, end

    def _data_block(self, first_key: bytes, raw: memoryview) -> None:
        offset = self._last_block = self._at
        size = self._block(DATA, raw)
        key = struct.pack(">h", len(first_key)) + first_key + KEY_END
        self._index.append(struct.pack(">qi", offset, size) + _hadoop_int(len(key)) + key)

    def _meta_block(self) -> bytes:
        """Write the bloom filter, if the file has one. Returns its entry in the index of meta blocks."""
        if self._bloom is None:
            return b""
        offset = self._at
        size = self._block(META, self._bloom.to_base64().encode())
        return struct.pack(">qi", offset, size) + _hadoop_int(len(_BLOOM)) + _BLOOM

    def _block(self, magic: bytes, raw: bytes | memoryview) -> int:
        """Write a block; returns its size including the header."""
        data: bytes | memoryview = raw
        if self._codec is Codec.GZ:
            stream = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, 31)
            data = stream.compress(raw) + stream.flush()
        with_header = _HEADER.size + len(data)
        places = bytes(4 * -(-with_header // _PIECE))
        size = len(data) + len(places)
        self._write(_HEADER.pack(magic, size, len(raw), -1, 0, _PIECE, with_header))
        self._write(data)
        self._write(places)
        self._raw_bytes += _HEADER.size + len(raw)
        return _HEADER.size + size

    def _write(self, data: bytes | memoryview) -> None:
        self._out.write(data)
        self._at += len(data)

    def _properties(self) -> bytes:
        count = max(self._entries, 1)
        found = {
            "KEY_VALUE_VERSION": struct.pack(">i", 1),  # each entry ends with a version number
            "MAX_MEMSTORE_TS_KEY": bytes(8),
            "hfile.CREATE_TIME_TS": bytes(8),
            # HBase's reader needs the averages, in a file without entries as well.
            "hfile.AVG_KEY_LEN": struct.pack(">i", self._key_bytes // count),
            "hfile.AVG_VALUE_LEN": struct.pack(">i", self._value_bytes // count),
            "schema": self._avro_json.encode(),
        }
        if self._first is not None and self._last is not None:
            found["hfile.LASTKEY"] = struct.pack(">h", len(self._last)) + self._last + KEY_END
        if self._bloom is not None:
            found["bloomFilterTypeCode"] = self._kind.encode()
            found["minRecordKey"], found["maxRecordKey"] = self._first or b"", self._last or b""
        pairs = b"".join(_field(1, _field(1, key.encode()) + _field(2, value)) for key, value in sorted(found.items()))
        return INFO_MAGIC + varint(len(pairs)) + pairs


def hfile_bytes(keys: pa.Array, values: pa.Array, avro_json: str, codec: Codec = Codec.GZ) -> bytes:
    """A whole HFile in memory, for the content of a log block; see ``HFileWriter.add`` for the arrays."""
    out = BytesIO()
    writer = HFileWriter(out, avro_json, codec)
    writer.add(keys, values)
    writer.finish()
    return out.getvalue()


def _check_order(keys: pa.Array, last: bytes | None) -> None:
    ascending = pc.less(keys.slice(0, len(keys) - 1), keys.slice(1))
    if (last is not None and keys[0].as_py() <= last) or not pc.all(ascending, min_count=0).as_py():
        raise ValueError("keys of an HFile must be unique and ascend by their bytes")


def _chunks(rows: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    ends = np.cumsum(rows + sizes)
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + _CHUNK_BYTES, "right")))
        yield start, end
        start = end


def _lengths_of(values: pa.Array) -> npt.NDArray[np.int64]:
    lengths: npt.NDArray[np.int64] = pc.binary_length(values).to_numpy().astype(np.int64)
    return lengths


def _entry_heads(rows: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> pa.Array:
    """i32 key length, i32 value length, i16 row length of each entry."""
    heads = np.zeros(len(rows), np.dtype([("key", ">i4"), ("value", ">i4"), ("row", ">i2")]))
    heads["key"], heads["value"], heads["row"] = rows + 2 + len(KEY_END), sizes, rows
    fixed = pa.Array.from_buffers(pa.binary(heads.itemsize), len(heads), [None, pa.py_buffer(heads)])
    return fixed.cast(pa.large_binary())


def _field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def _hadoop_int(value: int) -> bytes:
    """Hadoop's variable-length form of a length."""
    if value < 0x80:
        return bytes([value])
    data = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([0x90 - len(data)]) + data
