"""What a task needs to know to write file groups: pinned by the driver, the same for every attempt of a batch."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from tagstream.table.file_group.base_file import DEFAULT_ROW_GROUP_BYTES
from tagstream.table.file_group.bloom import BloomParams
from tagstream.table.schema.schema import avro_json, with_meta, with_meta_avro
from tagstream.table.timeline.timeline import Timeline

MIB = 1024 * 1024


@dataclass(frozen=True)
class WriterOptions:
    """How files are written; the defaults are Hudi's. Sizes in bytes of Arrow data (rows in memory).

    ``inserts_to_base_files``: on merge-on-read, new records go to base files, for tables that are shared with writers
    whose index cannot see log files (bloom, simple). ``groups_begin_with_base_files``: those of a new file group alone,
    for readers that do not see a group without one; later ones go to its logs. ``compare_ordering``: the index could not
    tell late rows, so a copy-on-write merge compares the ordering values of old and new rows and keeps the greater.
    ``range_columns``: those whose least and greatest value each file's status tells, and ``tells_bloom``: it tells a base
    file's bloom filter, both for the metadata table. ``drops_columns``: columns of the file before that the schema lacks
    are left out.
    """

    codec: str = "gzip"
    bloom: BloomParams = field(default_factory=BloomParams)
    row_group_bytes: int = DEFAULT_ROW_GROUP_BYTES
    data_block_bytes: int = 256 * MIB
    inserts_to_base_files: bool = False
    groups_begin_with_base_files: bool = False
    compare_ordering: bool = False
    range_columns: frozenset[str] = frozenset()
    tells_bloom: bool = False
    drops_columns: bool = False


@dataclass(frozen=True)
class WriteContext:
    """One write. ``schema`` and ``avro_json`` are the user columns; ``as_of`` is the newest completed instant the
    driver saw (None: the table is empty), ``timeline`` the timeline it saw it on.

    ``task_partition`` and ``write_token`` tell the attempts of a task apart.
    """

    instant: str
    action: str
    task_partition: int
    write_token: str
    schema: pa.Schema
    avro_json: str
    as_of: str | None
    timeline: Timeline
    options: WriterOptions = field(default_factory=WriterOptions)

    @property
    def file_schema(self) -> pa.Schema:
        """Columns of a data file: the meta columns, then the user columns as they are written."""
        return with_meta(self.schema)

    @property
    def file_avro_json(self) -> str:
        """The Avro schema of a data file, with the meta columns."""
        return avro_json(with_meta_avro(self.avro_json))
