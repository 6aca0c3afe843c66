"""Base files of a metadata table's file groups: HFiles, written front to back."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from tagstream.table.file_group.partition_metadata import join
from tagstream.table.metadata.encode.hfile_writer import HFileWriter
from tagstream.table.metadata.encode.record_schema import file_avro_json
from tagstream.table.metadata.write.layout import key_filter
from tagstream.table.metadata.write.metadata_writer import TOKEN, MetadataWriter
from tagstream.table.timeline.write_status import NO_PREVIOUS, WriteStat


def write_base_file(
    writer: MetadataWriter,
    partition: str,
    file_id: str,
    instant: str,
    batches: Iterable[tuple[pa.Array, pa.Array]],
    prev_commit: str = NO_PREVIOUS,
    prev_base_file: str | None = None,
) -> WriteStat | None:
    """Write the base file of a slice: keys and values (binary) in batches, ascending over all of them.

    None, and no file, where there is nothing to write: Hudi makes none then.
    """
    filled = (batch for batch in batches if len(batch[0]))
    first = next(filled, None)
    if first is None:
        return None
    name = f"{file_id}_{TOKEN}_{instant}.hfile"
    with writer.storage.open_output(join(partition, name)) as out:
        file = HFileWriter(out, file_avro_json(writer.forms.records), bloom=key_filter(writer.version))
        file.add(*first)
        for batch in filled:
            file.add(*batch)
        found = file.finish()
    return WriteStat(
        file_id=file_id,
        path=join(partition, name),
        partition_path=partition,
        prev_commit=prev_commit,
        num_writes=found.entries,
        num_inserts=found.entries,
        file_size=found.size,
        total_write_bytes=found.size,
        prev_base_file=prev_base_file,
    )
