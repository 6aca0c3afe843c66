"""Log files of a metadata table's file groups: one for each group that an instant has something for."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.file_group.log.delete_block import delete_blocks
from tagstream.table.file_group.log.format import BlockType, HeaderKey, encode_block
from tagstream.table.file_group.log.writer import write_log_file
from tagstream.table.file_group.names import log_file_name, write_token
from tagstream.table.file_group.partition_metadata import join
from tagstream.table.metadata.encode.hfile_writer import hfile_bytes
from tagstream.table.metadata.encode.record_schema import file_avro_json
from tagstream.table.metadata.write.entries import GroupEntries
from tagstream.table.metadata.write.metadata_writer import TOKEN, MetadataWriter
from tagstream.table.timeline.write_status import WriteStat

_BLOCK_ENTRIES: Final = 1 << 20  # of one block, which is put together in memory
_NO_DELETES: Final = b"\0\0\0\3\0\0\0\1\0"  # content of a delete block of no keys, as Hudi begins each file group


def first_log_file(writer: MetadataWriter, partition: str, file_id: str, instant: str) -> None:
    """The empty log file that begins a file group, so that readers see the group before it has an entry."""
    block = encode_block(BlockType.DELETE, {HeaderKey.INSTANT_TIME: instant}, _NO_DELETES)
    write_log_file(writer.storage, join(partition, log_file_name(file_id, instant, 1, TOKEN)), [block])


def delta_log_file(writer: MetadataWriter, file_slice: FileSlice, instant: str, found: GroupEntries) -> WriteStat:
    """Put an instant's entries of a file group over its newest slice. InstantConflictError when the file is there."""
    partition, file_id = file_slice.partition_path, file_slice.file_id
    own = writer.has_completion_times  # then a log file has its own instant's name, and no other instant's
    time, version = (instant, 1) if own else (file_slice.base_instant, file_slice.next_log_version)
    name = log_file_name(file_id, time, version, TOKEN if own else _token_of(instant))
    size = _write(writer, join(partition, name), found, instant)
    base = file_slice.base_file.name if file_slice.base_file is not None and not own else ""
    return WriteStat(
        file_id=file_id,
        path=join(partition, name),
        partition_path=partition,
        prev_commit=time,
        num_writes=len(found.keys),
        num_updates=len(found.keys),
        num_deletes=len(found.deleted),
        file_size=size,
        total_write_bytes=size,
        log_version=version,
        base_file=base,
        log_files=(name,),
    )


def _write(writer: MetadataWriter, rel: str, found: GroupEntries, instant: str) -> int:
    """Write the log file; its size in bytes. A plan that is executed again has the names of the execution before: a driver
    that wakes up late must not write over what its successor has completed."""
    blocks = _blocks(found, rel.partition("/")[0], instant, writer.forms.records)
    if len(found.keys) > _BLOCK_ENTRIES:  # not to be put together in memory
        if writer.storage.exists(rel):
            raise writer.conflict(rel)
        return write_log_file(writer.storage, rel, blocks)
    data = b"".join(blocks)
    writer.create(rel, data)
    return len(data)


def _token_of(instant: str) -> str:
    """The write token where names do not tell instants apart: a driver that wakes up late must not write over the file that
    its successor has made with the same number meanwhile."""
    return write_token(0, zlib.crc32(instant.encode()) >> 1, 0)


def _blocks(found: GroupEntries, partition: str, instant: str, form: int) -> Iterator[bytes]:
    avro = file_avro_json(form)
    for start in range(0, len(found.keys), _BLOCK_ENTRIES):
        keys, values = (column.slice(start, _BLOCK_ENTRIES) for column in (found.keys, found.values))
        header = {HeaderKey.SCHEMA: avro, HeaderKey.INSTANT_TIME: instant}
        yield encode_block(BlockType.HFILE_DATA, header, hfile_bytes(keys, values, avro))
    if len(found.deleted):
        # In natural order: the delete wins over everything older, and nothing here has an ordering value.
        yield from delete_blocks(found.deleted.cast(pa.string()), partition, None, instant, avro)
