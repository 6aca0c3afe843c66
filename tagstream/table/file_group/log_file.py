"""Read log files: block by block as Hudi's reader does, and the content of a block only when it is needed.

The scan reads only headers. The order of the blocks decides which blocks of a slice are valid.

An Avro data block is i32 version 3, i32 count, then for each record i32 length and its Avro binary.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.file_group import delete_block
from tagstream.table.file_group.avro_columns import columns_of
from tagstream.table.file_group.avro_encoder import encode_records
from tagstream.table.file_group.delete_block import DeleteRecords
from tagstream.table.file_group.log_format import (
    I32,
    I64,
    MAGIC,
    SMALLEST_SIZE,
    VERSION,
    BlockType,
    HeaderKey,
    decode_header,
    encode_block,
    framed,
    joined,
    zigzag,
)
from tagstream.table.file_group.parquet_options import BLOCK_SAMPLE, writer_options
from tagstream.table.schema.conform import conform, from_file
from tagstream.table.schema.schema import avro_to_arrow
from tagstream.table.storage.storage import Storage

_VERSION = 3
_MANY = 500  # records for which it is worth the import of the reader of columns, 0.4 s
_CHUNK = 4096  # records that are Python objects at the same time
# Logical types that are read as plain numbers. Arrow converts them without Python objects, whose years end at 9999.
_NUMBERS = ("date", "time-millis", "time-micros", "uuid")
_LENGTH = {"name": "_record_length", "type": {"type": "fixed", "name": "_record_length", "size": I32.size}}


def decode(content: bytes, avro_json: str, where: str, columns: Collection[str] | None = None) -> pa.Table:
    """Rows in the writer's schema (``avro_json``, with meta columns), or only the columns of these names.

    ``where`` names the block in errors: CorruptFileError, and UnsupportedTableError for another content version.
    """
    arrow = avro_to_arrow(avro_json, keep_meta=True)
    wanted = pa.schema([field for field in arrow if columns is None or field.name in columns])
    try:
        version, count = struct.unpack_from(">ii", content, 0)
        if version != _VERSION:
            raise UnsupportedTableError(f"{where} has Avro content of version {version}; only {_VERSION} can be read")
        if count >= _MANY:
            found = columns_of(memoryview(content)[2 * I32.size :], count, avro_json, wanted)
            if found is not None:
                return found
        batches = [_batch(records, wanted) for records in _records(content, count, _array_schema(avro_json))]
    except (struct.error, EOFError, ValueError, IndexError, StopIteration) as error:
        raise CorruptFileError(f"{where} has no readable Avro records ({error}); restore the file") from error
    return pa.Table.from_batches(batches, schema=wanted)


def encode(rows: pa.Table, avro_json: str) -> bytes:
    """Content of a block of these rows; ``avro_json`` is their schema, with meta columns.

    UnsupportedTableError for rows that do not fit it.
    """
    avro = json.loads(avro_json)
    rows = conform(rows, avro_to_arrow(avro, keep_meta=True), "the rows of an Avro block")
    out = [struct.pack(">ii", _VERSION, rows.num_rows)]
    for records in encode_records(rows, avro):
        out.append(joined(framed(records)))
    return b"".join(out)


def _batch(records: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    # A row loop, for what `columns_of` does not read: 10 us for a record of 13 columns, 25 us for 23 columns with nested
    # ones, three quarters of it in the Avro library.
    columns = [pa.array([record[field.name] for record in records], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _records(content: bytes, count: int, schema: Any) -> Iterator[list[dict[str, Any]]]:
    """Records in chunks. A chunk is given to the Avro library as one array, whose items begin with the length."""
    start = 2 * I32.size
    for first in range(0, count, _CHUNK):
        size = min(_CHUNK, count - first)
        end = _end(content, start, size)
        stream = io.BytesIO(b"".join([zigzag(size), content[start:end], zigzag(0)]))
        yield fastavro.schemaless_reader(stream, schema, None)  # type: ignore[misc]
        if stream.read(1):
            raise ValueError(f"the records after byte {start} do not end where their lengths say")
        start = end


def _end(content: bytes, offset: int, count: int) -> int:
    """Offset after this number of records, by their lengths."""
    for _ in range(count):
        (length,) = I32.unpack_from(content, offset)
        offset += I32.size + length
        if length < 0 or offset > len(content):
            raise ValueError(f"a record of {length} bytes before byte {offset}")
    return offset


def _array_schema(avro_json: str) -> Any:
    record = _plain(json.loads(avro_json))
    items = {**record, "fields": [_LENGTH, *record["fields"]]}
    return fastavro.parse_schema({"type": "array", "items": items})


def _plain(avro: Any) -> Any:
    """The schema without the logical types whose numbers would become Python objects."""
    if isinstance(avro, list):
        return [_plain(branch) for branch in avro]
    if not isinstance(avro, dict):
        return avro
    logical = str(avro.get("logicalType", ""))
    drop = logical in _NUMBERS or "timestamp" in logical
    return {key: _plain(value) for key, value in avro.items() if key != "logicalType" or not drop}


@dataclass(frozen=True)
class LogBlock:
    """The kind, header (by the names of HeaderKey) and position of a block. A CORRUPT block has no header.

    ``path`` is relative to the table. ``offset`` is that of the block's magic. ``content_offset`` and
    ``content_length`` are the position of its content in the file, in bytes.
    """

    storage: Storage
    path: str
    type: BlockType
    offset: int
    content_offset: int
    content_length: int
    header: dict[str, str] = field(default_factory=dict)

    @property
    def instant(self) -> str | None:
        """Instant that wrote the block; None for a corrupt one."""
        return self.header.get("INSTANT_TIME")

    @property
    def target_instant(self) -> str | None:
        """Instant that a rollback command rolls back."""
        return self.header.get("TARGET_INSTANT_TIME")

    @property
    def avro_schema(self) -> str | None:
        """Writer's schema as Avro JSON, with the meta columns."""
        return self.header.get("SCHEMA")

    @property
    def is_partial(self) -> bool:
        """True for a partial update, whose rows have only some of the table's columns."""
        return self.header.get("IS_PARTIAL", "").lower() == "true"

    @property
    def compacted_instants(self) -> frozenset[str]:
        """Instants whose blocks of this slice a block of a log compaction replaces; empty for other blocks."""
        return frozenset(filter(None, self.header.get("COMPACTED_BLOCK_TIMES", "").split(",")))

    @property
    def columns(self) -> frozenset[str]:
        """Names of the columns of a data block, with the meta columns."""
        return frozenset(field["name"] for field in json.loads(self._schema())["fields"])

    @property
    def where(self) -> str:
        """The block's file and offset, for messages."""
        return f"{self.type.name} block at byte {self.offset} of {self.storage.where(self.path)}"

    def content(self) -> bytes:
        """Bytes of the content. CorruptFileError when the file is shorter than before."""
        data = self.storage.read_range(self.path, self.content_offset, self.content_length)
        if len(data) != self.content_length:
            raise CorruptFileError(f"{self.where} became shorter while it was read; read the table again")
        return data

    def read_table(self, reader_schema: pa.Schema | None = None) -> pa.Table:
        """Rows of a data block, in the reader's schema or else in the writer's.

        Raises UnsupportedTableError for kinds without rows of a data table. Columns that a partial update lacks are
        null in a reader's schema that has them.
        """
        if self.type is BlockType.AVRO_DATA:
            columns = None if reader_schema is None else reader_schema.names
            rows = decode(self.content(), self._schema(), self.where, columns)
        elif self.type is BlockType.PARQUET_DATA:
            rows = self._read_parquet(reader_schema)
        else:
            raise UnsupportedTableError(f"{self.where} has no rows of a data table; only Avro and Parquet blocks do")
        return rows if reader_schema is None else from_file(rows, reader_schema, self.where)

    def deletes(self, ordering_type: pa.DataType | None = None) -> DeleteRecords:
        """Keys of a delete block; see ``delete_block.decode`` for the ordering values."""
        if self.type is not BlockType.DELETE:
            raise ValueError(f"{self.where} is not a delete block")
        return delete_block.decode(self.content(), self.where, ordering_type)

    def _schema(self) -> str:
        if self.avro_schema is None:
            raise CorruptFileError(f"{self.where} has no SCHEMA in its header; restore the file")
        return self.avro_schema

    def _read_parquet(self, reader_schema: pa.Schema | None) -> pa.Table:
        try:
            file = pq.ParquetFile(pa.BufferReader(self.content()))
            if reader_schema is None:
                return file.read()
            known = set(file.schema_arrow.names)
            return file.read([name for name in reader_schema.names if name in known])
        except (pa.ArrowInvalid, OSError) as error:
            raise CorruptFileError(
                f"{self.where} has no readable Parquet content ({error}); restore the file"
            ) from error


def avro_data_block(rows: pa.Table, avro_json: str, instant: str) -> bytes:
    """Whole Avro data block of rows with meta columns; slower to make than a Parquet block."""
    header = {HeaderKey.SCHEMA: avro_json, HeaderKey.INSTANT_TIME: instant}
    return encode_block(BlockType.AVRO_DATA, header, encode(rows, avro_json))


def data_block(rows: pa.Table, avro_json: str, instant: str, codec: str = "gzip") -> bytes:
    """Whole Parquet data block of rows with meta columns; ``avro_json`` is their schema, with meta columns, too."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, rows.schema, **writer_options(codec, rows, BLOCK_SAMPLE)) as writer:
        writer.write_table(rows)
        # As the JVM writes it, without bloom filter and key range, which only base files have.
        writer.add_key_value_metadata({"writer.model.name": "avro", "parquet.avro.schema": avro_json})
    header = {HeaderKey.SCHEMA: avro_json, HeaderKey.INSTANT_TIME: instant}
    return encode_block(BlockType.PARQUET_DATA, header, memoryview(sink.getvalue()))


_HEAD_CHUNK = 64 * 1024
_SCAN_CHUNK = 1024 * 1024


def scan_log_file(storage: Storage, rel: str) -> Iterator[LogBlock]:
    """Blocks of a log file in file order.

    A damaged block is yielded as one CORRUPT block that ends before the next magic (or at the end of the file); the
    scan continues after it. A block is damaged when its size exceeds the file, when the size repeated at its end
    differs, or when no magic follows. Raises CorruptFileError when the file does not begin with a block.
    """
    with storage.open_input(rel) as file:
        for block, _ in _walk(file, storage, rel):
            yield block


def split_log_file(storage: Storage, rel: str) -> Iterator[tuple[LogBlock, bytes]]:
    """The blocks of a small log file, which is read at once: each block with all of its bytes, including its magic.

    Damaged blocks and errors are as in :func:`scan_log_file`.
    """
    data = storage.read(rel)
    for block, behind in _walk(pa.BufferReader(data), storage, rel):
        yield block, data[block.offset : behind]


def _walk(file: pa.NativeFile, storage: Storage, rel: str) -> Iterator[tuple[LogBlock, int]]:
    """(block, its end) of each block."""
    end = file.size()
    offset = 0
    # as in Hudi's reader, the file ends when there are fewer bytes than a magic
    while offset + len(MAGIC) <= end:
        if _read(file, offset, len(MAGIC)) != MAGIC:
            raise CorruptFileError(
                f"{storage.where(rel)} is not a log file: no block begins at byte {offset}; restore the file"
            )
        start = offset + len(MAGIC)
        size = _intact_size(file, start, end)
        if size is None:
            offset = _next_magic(file, start, end)
            yield LogBlock(storage, rel, BlockType.CORRUPT, start - len(MAGIC), start, offset - start), offset
            continue
        offset = start + I64.size + size
        yield _read_block(file, storage, rel, start - len(MAGIC), size), offset


def _intact_size(file: pa.NativeFile, start: int, end: int) -> int | None:
    """Size of the block whose size field is at ``start``; None when the block is damaged."""
    if start + I64.size > end:
        return None
    (size,) = I64.unpack(_read(file, start, I64.size))
    behind = start + I64.size + size
    if size < SMALLEST_SIZE or behind > end:
        return None
    (total,) = I64.unpack(_read(file, behind - I64.size, I64.size))
    if total != size + len(MAGIC):
        return None
    following = _read(file, behind, len(MAGIC))
    return size if len(following) < len(MAGIC) or following == MAGIC else None


def _read_block(file: pa.NativeFile, storage: Storage, rel: str, offset: int, size: int) -> LogBlock:
    start = offset + len(MAGIC) + I64.size
    where = f"the block at byte {offset} of {storage.where(rel)}"
    try:
        data = _read(file, start, min(size, _HEAD_CHUNK))
        try:
            header, used = decode_header(data, 2 * I32.size)
        except (ValueError, struct.error):
            if len(data) == size:
                raise
            # a schema (or the positions of many records) can be longer than the first read
            data = _read(file, start, size)
            header, used = decode_header(data, 2 * I32.size)
        if used + I64.size > len(data):
            data = _read(file, start, used + I64.size)
        (version,), (kind,) = I32.unpack_from(data, 0), I32.unpack_from(data, I32.size)
        (length,) = I64.unpack_from(data, used)
    except (ValueError, struct.error) as error:
        raise CorruptFileError(f"{where} has a broken header ({error}); restore the file") from error
    if version != VERSION or kind not in list(BlockType):
        raise UnsupportedTableError(
            f"{where} has version {version} and type {kind}, which this reader does not support"
        )
    content = start + used + I64.size
    if length < 0 or content + length > start + size:
        raise CorruptFileError(f"{where} has a content of {length} bytes, more than the block; restore the file")
    return LogBlock(storage, rel, BlockType(kind), offset, content, length, header)


def _next_magic(file: pa.NativeFile, start: int, end: int) -> int:
    """Offset of the first magic from ``start`` on, else the end of the file."""
    offset = start
    while offset < end:
        # chunks overlap, so that a magic across two chunks is found
        found = _read(file, offset, _SCAN_CHUNK + len(MAGIC) - 1).find(MAGIC)
        if found >= 0:
            return offset + found
        offset += _SCAN_CHUNK
    return end


def _read(file: pa.NativeFile, offset: int, length: int) -> bytes:
    data: bytes = file.read_at(length, offset)
    return data


def with_block(counted: list[LogBlock], block: LogBlock) -> list[LogBlock]:
    """The valid blocks after one more block; ``counted`` may be changed and returned.

    A rollback removes the blocks of its target. A log compaction's block replaces the blocks of the instants that it
    names, at the position of the last one: blocks that were written after the compaction was planned stay behind it.
    """
    if block.type is BlockType.COMMAND:
        return [earlier for earlier in counted if earlier.instant != block.target_instant]
    replaced = block.compacted_instants
    if not replaced:
        counted.append(block)  # in place: a slice may have thousands of blocks
        return counted
    places = [
        at for at, earlier in enumerate(counted) if earlier.instant in replaced or earlier.instant == block.instant
    ]
    if not places:
        return [*counted, block]
    behind = places[-1] + 1
    kept = [earlier for earlier in counted[:behind] if earlier.instant not in replaced]
    return [*kept, block, *counted[behind:]]
