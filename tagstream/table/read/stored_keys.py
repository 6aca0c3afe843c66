"""How the stored rows of a table were written: by which key generator, and whether into buckets.

Another key generator than the table's duplicates every key, or puts rows into another partition. Hudi's key
generators, their options and Spark SQL make different paths from the same values, and the table's properties do not
always say which. So a few stored rows of a few partitions are checked: they have the record keys and partition paths
that their writer made.

Hudi's versions disagree on the complex generator with one key field: 0.14.1 to 1.0.2 write the value alone
(``k1``), versions before and after ``field:value`` (``id:k1``).

Rows of a bucketed table are placed by a hash of their key. No table property says so. File ids of a bucket index begin
with the bucket number in eight digits (BucketIdentifier.newBucketFileIdPrefix). The consistent-hashing engine keeps its
rings in ``.hoodie/.bucket_index``. The probability that a random id looks like a bucket number under 10,000 is 1 in
450,000.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.buckets.hashing_metadata import CONSISTENT_HASHING, HASHING_FOLDER, SIMPLE_ENGINE, is_consistent
from tagstream.table.errors import ConfigError, CorruptFileError, TableConfigMismatchError, UnsupportedTableError
from tagstream.table.fields import columns_of
from tagstream.table.file_group.base_file import open_base_file
from tagstream.table.file_group.log_file import scan_log_file
from tagstream.table.file_group.log_format import BlockType
from tagstream.table.file_group.names import parse_base_file_name, parse_log_file_name
from tagstream.table.keys.generators import KeyKind, key_generator_type
from tagstream.table.keys.keys import KeyGenerator
from tagstream.table.keys.time_partition import PREFIX
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.slice_reader import path_columns, with_path_columns
from tagstream.table.read.snapshot import scan_snapshot, snapshot_schema
from tagstream.table.schema.conform import from_file
from tagstream.table.schema.schema import OPERATION, PARTITION_PATH, RECORD_KEY, avro_to_arrow, with_meta
from tagstream.table.timeline.commit_metadata import WriteStat
from tagstream.table.timeline.timeline import Timeline

_PARTITIONS: Final = 16
_COMMITS: Final = 32  # the newest commits, whose files mostly still exist
_ROWS: Final = 16  # of each file
_DELETED: Final = "_hoodie_is_deleted"
_DATA: Final = (BlockType.AVRO_DATA, BlockType.PARQUET_DATA)


@dataclass(frozen=True)
class StoredRows:
    """Rows of one file of a partition: the requested columns and the meta columns."""

    partition: str
    path: str
    rows: pa.Table


def stored_rows(table: HoodieTable, fields: Sequence[str], *, partitions: int = _PARTITIONS) -> Iterator[StoredRows]:
    """Rows of one file in each of the last written ``partitions`` partitions; none for a table without a commit.

    ``fields``: columns, or fields of structs by their dotted path. Files that lack one of them are skipped.
    Columns that only partition paths have get the path's values: the path made from them must be the same.
    """
    text = table.schema_json()
    if text is None or not table.config.populate_meta_fields:
        return
    schema = with_meta(avro_to_arrow(text))
    in_path = [name for name in fields if name in table.config.dropped_fields]
    heads = columns_of((name for name in fields if name not in in_path), schema.names)
    if not set(heads) <= set(schema.names):
        return
    wanted = pa.schema([schema.field(n) for n in dict.fromkeys((RECORD_KEY, PARTITION_PATH, *heads))])
    seen: set[str] = set()
    for stat in _stats(table):
        if stat.partition_path in seen:
            continue
        rows = _rows(table, stat, wanted)
        if rows is not None and rows.num_rows:
            seen.add(stat.partition_path)
            rows = with_path_columns(rows, path_columns(table.config, stat.partition_path, in_path))
            yield StoredRows(stat.partition_path, stat.path, rows)
            if len(seen) == partitions:
                return


def _stats(table: HoodieTable) -> Iterator[WriteStat]:
    timeline = table.timeline()
    for instant in islice(reversed(timeline.completed_writes), _COMMITS):
        for stat in timeline.metadata(table.storage, instant).all_stats():
            if stat.path and stat.num_writes > 0:
                yield stat


def _rows(table: HoodieTable, stat: WriteStat, wanted: pa.Schema) -> pa.Table | None:
    try:
        if parse_log_file_name(stat.file_name) is not None:
            return _of_log(table, stat.path, wanted)
        return _of_base(table, stat.path, wanted)
    except (FileNotFoundError, CorruptFileError, UnsupportedTableError):
        return None  # a rewrite has replaced it, or the load of the index will report its error


def _of_base(table: HoodieTable, rel: str, wanted: pa.Schema) -> pa.Table | None:
    with open_base_file(table.storage, rel) as file:
        if not set(wanted.names) <= set(file.schema_arrow.names):
            return None
        batch = next(file.iter_batches(batch_size=_ROWS, columns=wanted.names), None)
        if batch is None:
            return None
        return from_file(pa.Table.from_batches([batch]), wanted, table.storage.where(rel))


def _of_log(table: HoodieTable, rel: str, wanted: pa.Schema) -> pa.Table | None:
    """The first rows that are not deletes, because deletes may lack values of partition fields."""
    marks = pa.schema([pa.field(_DELETED, pa.bool_()), pa.field(OPERATION, pa.string())])
    for block in scan_log_file(table.storage, rel):
        if block.type not in _DATA or not set(wanted.names) <= block.columns:
            continue
        rows = block.read_table(pa.schema([*wanted, *(mark for mark in marks if mark.name not in wanted.names)]))
        deleted = pc.or_(
            pc.fill_null(pc.cast(rows.column(_DELETED), pa.bool_()), False),
            pc.fill_null(pc.is_in(rows.column(OPERATION), value_set=pa.array(["D", "-U"])), False),
        )
        return rows.filter(pc.invert(deleted)).slice(0, _ROWS)
    return None


KEY, PATH = "record key", "partition path"
CHECK_STORED = "tagstream.check.stored.keys"
_ZONES = (
    "UTC",
    "Asia/Shanghai",
    "Asia/Kolkata",
    "America/New_York",
    "America/Los_Angeles",
    "Europe/Berlin",
    "Europe/London",
)


@dataclass(frozen=True)
class Difference:
    """A stored row whose key or path the generator does not make. ``what`` is :data:`KEY` or :data:`PATH`."""

    what: str
    stored: str
    made: str | None
    at: StoredRows


def fitting_generator(table: HoodieTable, generator: KeyGenerator, *, moves: bool = True) -> KeyGenerator:
    """The generator, adapted to the form of timestamps in the partition paths of the table's rows.

    ``moves``: a row whose partition field changes moves to its new partition. Otherwise a row's path may differ from
    the path of its fields, so that single rows prove little. TableConfigMismatchError when the generator makes other
    keys than the rows have, or none of their paths; it says what would fit.
    """
    fields = (*generator.record_key_fields, *generator.partition_fields)
    samples = [found for found in stored_rows(table, fields) if _can_be_made(generator, found)]
    if next(differences(generator, samples), None) is None:
        return generator
    wrong, best = min(
        ((list(differences(form, samples)), form) for form in (generator, *_forms(generator))), key=lambda f: len(f[0])
    )
    if not wrong:
        return best
    hint = _hint(generator, samples, len(wrong), moves)
    # Rows that an earlier writer kept in their old partition explain single files. A wrong generator fits no file.
    by_path = all(difference.what == PATH for difference in wrong)
    if hint is None and by_path and (not moves or len(wrong) < len(samples)):
        return best
    first = next((d for d in wrong if d.what == KEY), wrong[0])
    name = f"table {table.config.name} at {table.base_path}"
    raise TableConfigMismatchError(
        f"{name}: the {generator.kind.value} key generator makes {_shown(first.made)} instead of the {first.what} "
        f"{_shown(first.stored)} of a row in {first.at.path}, so this job would write the row a second time, or into "
        f"another partition; {hint or 'its writer had another key generator, or other options'}. {CHECK_STORED}=false skips "
        "this check"
    )


def _hint(generator: KeyGenerator, samples: Sequence[StoredRows], wrong: int, moves: bool) -> str | None:
    """How to get the generator that fits more files.

    A time zone must fit all files, and is not tried if rows do not move.
    """
    counts = [(len(list(differences(form, samples))), text) for form, text in _flags(generator)]
    if moves:
        counts += [(0, text) for form, text in _zones(generator) if next(differences(form, samples), None) is None]
    least, text = min(counts, key=lambda found: found[0])
    return text if least < wrong else None


def _can_be_made(generator: KeyGenerator, found: StoredRows) -> bool:
    """False when a column does not have the type that the generator needs: another check reports it."""
    try:
        generator.check(found.rows.schema, digits=True)
    except ConfigError:
        return False
    return True


def differences(generator: KeyGenerator, samples: Iterable[StoredRows]) -> Iterator[Difference]:
    """One difference for each file that none of its rows fits: a global index may keep rows in their old partition."""
    for found in samples:
        rows = found.rows
        pairs = (
            (KEY, rows.column(RECORD_KEY), generator.record_keys(rows)),
            (PATH, rows.column(PARTITION_PATH), generator.partition_paths(rows)),
        )
        for what, stored, made in pairs:
            stored = pc.cast(stored.combine_chunks(), pa.string())
            if not pc.any(pc.fill_null(pc.equal(stored, made), False)).as_py():
                yield Difference(what, stored[0].as_py(), made[0].as_py(), found)


def _forms(generator: KeyGenerator) -> Sequence[KeyGenerator]:
    """The generator with forms of timestamps that Hudi may use without naming them in the table's properties."""
    return (
        replace(generator, sql_times=True),
        replace(generator, consistent_timestamps=True),
        replace(generator, sql_times=True, consistent_timestamps=True),
    )


def _flags(generator: KeyGenerator) -> Iterator[tuple[KeyGenerator, str]]:
    """Generators with another option, and the advice if their paths are the table's."""
    properties = "correct hoodie.properties of the table"
    for hive in (generator.hive_style, not generator.hive_style):
        for encoded in (generator.url_encode, not generator.url_encode):
            flags = (
                f"hoodie.datasource.write.hive_style_partitioning={str(hive).lower()} and "
                f"hoodie.datasource.write.partitionpath.urlencode={str(encoded).lower()}"
            )
            for sql in (False, True):
                yield (
                    replace(generator, hive_style=hive, url_encode=encoded, sql_times=sql),
                    f"its rows were written with {flags}: {properties}",
                )
    yield (
        replace(generator, name_single_key=not generator.name_single_key),
        "its keys have the other form of a single field",
    )


def _zones(generator: KeyGenerator) -> Iterator[tuple[KeyGenerator, str]]:
    """The generator in other time zones, and the advice if its paths are the table's."""
    times = generator.times
    for zone in _ZONES if times is not None else ():
        yield (
            replace(generator, times=times and replace(times, output_zone=zone)),
            f"its paths are in another time zone, such as {zone}: set {PREFIX}timezone",
        )


def _shown(text: str | None) -> str:
    return "nothing" if text is None else repr(text[:200])


def names_single_key(table: HoodieTable) -> bool | None:
    """True for ``field:value``, False for the value alone; None when it does not matter or no row shows it."""
    fields = table.config.record_key_fields
    if key_generator_type(table.config.key_generator) != KeyKind.COMPLEX or len(fields) != 1:
        return None
    timeline = table.timeline()
    if fields[0] not in snapshot_schema(table, timeline, table.view(timeline)).names:
        return None  # a new table: neither a commit nor the properties nor a file has a schema
    _, batches = scan_snapshot(table, [RECORD_KEY, fields[0]])
    batch = next((batch for batch in batches if batch.num_rows), None)
    if batch is None:
        return None
    key, value = batch.column(RECORD_KEY)[0].as_py(), batch.column(fields[0]).slice(0, 1)
    if pa.types.is_string(value.type):
        return bool(key == f"{fields[0]}:{pc.fill_null(value, '')[0].as_py()}")
    # Values of other types never begin with their field's name and a colon.
    return bool(key.startswith(f"{fields[0]}:"))


_BUCKET_ID = re.compile(r"0000\d{4}-")
_ENGINE = "hoodie.index.bucket.engine"
_LOST = "rows would be put where its readers do not search them"


def bucket_evidence(table: HoodieTable, timeline: Timeline) -> str | None:
    """What shows that the table is bucketed: a file id of its newest write, or the folder of rings; None if it is not."""
    if is_consistent(table.storage):
        return HASHING_FOLDER
    found = _file_ids(table, timeline)
    return found[0] if found and all(_BUCKET_ID.match(file_id) for file_id in found) else None


def _file_ids(table: HoodieTable, timeline: Timeline) -> list[str]:
    """File ids of the newest write with files, or of all files if no write on the timeline has any."""
    for instant in reversed(timeline.completed_writes):
        names = [s.path.rpartition("/")[2] for s in timeline.metadata(table.storage, instant).all_stats() if s.path]
        found = [part.file_id for name in names if (part := parse_base_file_name(name) or parse_log_file_name(name))]
        if found:
            return found
    if not timeline.completed_writes:
        return []
    view = table.view(timeline)
    return [s.file_id for partition in view.partitions() for s in view.latest_merged_slices(partition)]


def check_bucketed(table: HoodieTable, engine: str | None) -> None:
    """UnsupportedTableError if a writer would not put rows where the table's other writers search them.

    ``engine``: the engine of the writer's bucket index, None for another index. A writer with a bucket index searches a
    row only in its bucket. A table without rows fits all; consistent hashing is for merge-on-read tables.
    """
    timeline = table.timeline()
    evidence = bucket_evidence(table, timeline)
    of_table = None if evidence is None else CONSISTENT_HASHING if evidence == HASHING_FOLDER else SIMPLE_ENGINE
    cannot = f"cannot write table {table.config.name} at {table.base_path} with"
    if engine == CONSISTENT_HASHING and not table.config.is_merge_on_read:
        raise UnsupportedTableError(
            f"{cannot} {_ENGINE}={engine}: it is copy-on-write, and consistent hashing is for merge-on-read tables only, as "
            "in Hudi on Spark; use the simple engine"
        )
    if of_table == engine or (of_table is None and not _file_ids(table, timeline)):
        return
    if of_table is None:
        raise UnsupportedTableError(
            f"{cannot} hoodie.index.type=BUCKET: its file groups are not buckets, and {_LOST}; use the index that it was "
            "written with"
        )
    asked = "another index" if engine is None else f"{_ENGINE}={engine}"
    count = "" if of_table == CONSISTENT_HASHING else " and its hoodie.bucket.index.num.buckets"
    raise UnsupportedTableError(
        f"{cannot} {asked}: it is bucketed (hoodie.index.type=BUCKET, {_ENGINE}={of_table}; shown by {evidence}), and "
        f"{_LOST}; set hoodie.index.type=BUCKET, {_ENGINE}={of_table}{count}"
    )
