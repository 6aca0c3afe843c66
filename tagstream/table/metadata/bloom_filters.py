"""Bloom filters of base files out of the metadata table, so that their footers need not be read."""

from __future__ import annotations

from collections.abc import Sequence

from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.file_group.bloom import BloomFilter
from tagstream.table.metadata.metadata_table import BLOOM_FILTERS_PARTITION, MetadataTable
from tagstream.table.metadata.name_hash import file_id, partition_id
from tagstream.table.metadata.records import BLOOM_FILTER

File = tuple[str, str]  # partition path, file name


def bloom_filters(metadata: MetadataTable, files: Sequence[File]) -> dict[File, BloomFilter]:
    """The filters of those of the files that have one which can be asked; a filter has some 500 kB with Hudi's defaults."""
    keys = {partition_id(path) + file_id(name): (path, name) for path, name in files}
    found: dict[File, BloomFilter] = {}
    for key, record in metadata.lookup(BLOOM_FILTERS_PARTITION, list(keys)).items():
        member = record.get(BLOOM_FILTER) or {}
        text = member.get("bloomFilter")
        if not text or member.get("isDeleted"):
            continue
        try:
            found[keys[key]] = BloomFilter.from_base64(text, member["type"], "/".join(keys[key]))
        except (CorruptFileError, UnsupportedTableError):
            continue  # the footer is asked
    return found
