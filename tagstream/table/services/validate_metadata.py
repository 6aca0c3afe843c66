"""A metadata table against its table: does it list exactly the files that are there, and name each key's place?

And do its statistics and bloom filters hold what the files do (``validate_statistics``)?
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.file_group.committed import committed_entries, committed_files
from tagstream.table.file_group.names import parse_log_file_name
from tagstream.table.file_group.partition_metadata import join
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import MetadataTable
from tagstream.table.metadata.record_index import RecordIndex
from tagstream.table.read.slice_lookup import key_reader
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.services.validate_statistics import statistics_problems
from tagstream.table.timeline.avro_timeline import read_record
from tagstream.table.timeline.instant import CLEAN
from tagstream.table.timeline.plans import requested_name
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.markers import list_markers

_SHOWN = 5
_PLACE = ("partition_path", "file_id")


def validate_metadata(table: HoodieTable) -> list[str]:
    """What is wrong, in words; empty when all agrees, and where the table has no metadata table.

    The whole record index and all keys are held in memory: this is for a person who asks, and for tests.
    """
    table, timeline, metadata = _opened(table)
    if metadata is None:
        return []
    problems = list(_files(table, timeline, metadata))
    problems += statistics_problems(table, timeline, metadata)
    index = RecordIndex.open(metadata)
    return problems if index is None else [*problems, *_keys(table, timeline, index)]


def validate_listing(table: HoodieTable) -> list[str]:
    """What is wrong with the files that it lists, in words: every folder of the table is listed once, no file is opened."""
    table, timeline, metadata = _opened(table)
    return [] if metadata is None else list(_files(table, timeline, metadata))


def _opened(table: HoodieTable) -> tuple[HoodieTable, Timeline, MetadataTable | None]:
    table = replace(table, lister=None)  # its folders, not what the metadata table says of them
    timeline = table.timeline()
    return table, timeline, MetadataTable.open(table, timeline)


def _files(table: HoodieTable, timeline: Timeline, metadata: MetadataTable) -> Iterator[str]:
    listed, there = set(metadata.partition_paths()), set(table.view(timeline).partitions())
    writing = _being_written(table, timeline)
    there = {partition for partition in there if _committed(table, timeline, partition, writing)}
    listed = {partition for partition in listed if partition in there or metadata.files(partition)}
    for partition in sorted(listed ^ there):
        yield f"partition {partition!r} is {'listed and not there' if partition in listed else 'there and not listed'}"
    going = _being_cleaned(table, timeline)
    for partition in sorted(listed & there):
        found, known = _committed(table, timeline, partition, writing), metadata.files(partition)
        known = committed_files(known, timeline)
        for name in sorted((found.keys() | known.keys()) - going.get(partition, set())):
            if name in found and _stands_for_a_size(name, known.get(name)):
                continue
            if found.get(name) != known.get(name):
                yield f"{partition}/{name} has {found.get(name)} bytes, the metadata table says {known.get(name)}"


def _stands_for_a_size(name: str, told: int | None) -> bool:
    """Hudi 0.15 tells 1 for a log file of which its rollback takes blocks back; no reader asks for a log file's size."""
    return told == 1 and parse_log_file_name(name) is not None


def _being_cleaned(table: HoodieTable, timeline: Timeline) -> dict[str, set[str]]:
    """Files by partition path that a clean is deleting: they go first, and the metadata table is told of it then."""
    found: dict[str, set[str]] = {}
    for instant in timeline.pending:
        if instant.action == CLEAN:
            rel = f"{table.config.timeline_folder}/{requested_name(instant)}"
            data = table.storage.read(rel)
            plan = read_record(data, table.storage.where(rel)) if data else {}  # empty: its writer died when it made it
            for partition, files in (plan.get("filePathsToBeDeletedPerPartition") or {}).items():
                found.setdefault(partition, set()).update(file["filePath"].rsplit("/", 1)[-1] for file in files)
    return found


def _committed(table: HoodieTable, timeline: Timeline, partition: str, writing: Collection[str]) -> dict[str, int]:
    found = committed_entries(table.storage.list(partition), timeline)
    return {name: size for name, size in found.items() if join(partition, name) not in writing}


def _being_written(table: HoodieTable, timeline: Timeline) -> set[str]:
    """Files of pending writes by their markers: up to version 7 the name of a log file does not tell whose it is."""
    if table.config.names_logs_by_commit:
        return set()
    return {marker.path for pending in timeline.pending_writes for marker in list_markers(table.storage, pending.time)}


def _keys(table: HoodieTable, timeline: Timeline, index: RecordIndex) -> Iterator[str]:
    view = table.view(timeline)
    parts = [
        pa.table({"record_key": pa.array([], pa.string()), **{name: pa.array([], pa.string()) for name in _PLACE}})
    ]
    if view.as_of is not None:
        reader = key_reader(table, timeline, view.as_of, None)
        for partition in view.partitions():
            for at in view.latest_merged_slices(partition):
                for rows in reader.read(at):
                    keys = rows.column(RECORD_KEY).combine_chunks().cast(pa.string())
                    places = [pa.repeat(pa.scalar(text), len(keys)) for text in (partition, at.file_id)]
                    parts.append(pa.table([keys, *places], names=["record_key", *_PLACE]))
    live = pa.concat_tables(parts)
    # In a record index by partition a key has a place in each partition where it is.
    names = ["record_key", "partition_path"] if index.is_partitioned else ["record_key"]
    known = pa.concat_tables([table.select(["record_key", *_PLACE]) for table in index.scan()] or parts[:1])
    for what, one, other in (("is not in the record index", live, known), ("is in the record index only", known, live)):
        keys = one.join(other.select(names), names, join_type="left anti").column("record_key")
        if len(keys):
            yield f"{len(keys):,} keys: each {what}, first {', '.join(map(repr, keys.slice(0, _SHOWN).to_pylist()))}"
    both = live.join(known, names, join_type="inner", right_suffix="_known")
    for name in (name for name in _PLACE if name not in names):
        wrong = both.filter(pc.not_equal(both.column(name), both.column(f"{name}_known")))
        if wrong.num_rows:
            first = wrong.slice(0, 1).to_pylist()[0]
            yield (
                f"{wrong.num_rows:,} keys have another {name} in the record index, first {first['record_key']!r}: "
                f"{first[name]!r} and {first[f'{name}_known']!r}"
            )
