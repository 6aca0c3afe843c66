"""One block of a log file, its content read when asked for."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.file_group.log import avro_block, delete_block
from tagstream.table.file_group.log.delete_block import DeleteRecords
from tagstream.table.file_group.log.format import BlockType, HeaderKey, encode_block
from tagstream.table.file_group.parquet_options import BLOCK_SAMPLE, writer_options
from tagstream.table.schema.stored import from_file
from tagstream.table.storage.storage import Storage


@dataclass(frozen=True)
class LogBlock:
    """A block's kind, header (by the names of HeaderKey) and place; a CORRUPT one has no header.

    ``path`` is relative to the table, ``offset`` that of the block's magic; ``content_offset`` and ``content_length`` tell
    where its content lies.
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
        """Instant a rollback command takes back."""
        return self.header.get("TARGET_INSTANT_TIME")

    @property
    def avro_schema(self) -> str | None:
        """Writer's schema as Avro JSON, with the meta columns."""
        return self.header.get("SCHEMA")

    @property
    def is_partial(self) -> bool:
        """True for a partial update, whose rows have some of the table's columns only."""
        return self.header.get("IS_PARTIAL", "").lower() == "true"

    @property
    def compacted_instants(self) -> frozenset[str]:
        """Of a log compaction's block: the instants whose blocks of this slice it stands for; else none."""
        return frozenset(filter(None, self.header.get("COMPACTED_BLOCK_TIMES", "").split(",")))

    @property
    def columns(self) -> frozenset[str]:
        """Names of the columns that a data block has, with the meta columns."""
        return frozenset(field["name"] for field in json.loads(self._schema())["fields"])

    @property
    def where(self) -> str:
        """The block's place, for messages."""
        return f"{self.type.name} block at byte {self.offset} of {self.storage.where(self.path)}"

    def content(self) -> bytes:
        """The content's bytes."""
        data = self.storage.read_range(self.path, self.content_offset, self.content_length)
        if len(data) != self.content_length:
            raise CorruptFileError(f"{self.where} became shorter while it was read; read the table again")
        return data

    def read_table(self, reader_schema: pa.Schema | None = None) -> pa.Table:
        """Rows of a data block, in the reader's schema or else in the writer's.

        Raises UnsupportedTableError for kinds that hold no rows of a data table. Of a partial update the columns that it
        leaves out are null in a reader's schema that has them.
        """
        if self.type is BlockType.AVRO_DATA:
            columns = None if reader_schema is None else reader_schema.names
            rows = avro_block.decode(self.content(), self._schema(), self.where, columns)
        elif self.type is BlockType.PARQUET_DATA:
            rows = self._read_parquet(reader_schema)
        else:
            raise UnsupportedTableError(f"{self.where} holds no rows of a data table; only Avro and Parquet blocks do")
        return rows if reader_schema is None else from_file(rows, reader_schema, self.where)

    def deletes(self, ordering_type: pa.DataType | None = None) -> DeleteRecords:
        """Keys of a delete block; see ``delete_block.decode`` for the ordering values."""
        if self.type is not BlockType.DELETE:
            raise ValueError(f"{self.where} is no delete block")
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
            raise CorruptFileError(f"{self.where} holds no readable Parquet ({error}); restore the file") from error


def avro_data_block(rows: pa.Table, avro_json: str, instant: str) -> bytes:
    """Whole Avro data block of rows with meta columns; slow beside a Parquet one."""
    header = {HeaderKey.SCHEMA: avro_json, HeaderKey.INSTANT_TIME: instant}
    return encode_block(BlockType.AVRO_DATA, header, avro_block.encode(rows, avro_json))


def data_block(rows: pa.Table, avro_json: str, instant: str, codec: str = "gzip") -> bytes:
    """Whole Parquet data block of rows with meta columns; ``avro_json`` is their schema, with meta columns too."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, rows.schema, **writer_options(codec, rows, BLOCK_SAMPLE)) as writer:
        writer.write_table(rows)
        # As the JVM writes it; without a bloom filter and key range, which only base files carry.
        writer.add_key_value_metadata({"writer.model.name": "avro", "parquet.avro.schema": avro_json})
    header = {HeaderKey.SCHEMA: avro_json, HeaderKey.INSTANT_TIME: instant}
    return encode_block(BlockType.PARQUET_DATA, header, memoryview(sink.getvalue()))
