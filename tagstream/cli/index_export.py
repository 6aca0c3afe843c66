"""The index as a Parquet file: ``tagstream index export``, and the check of such a file's rows for an import.

Columns: ``record_key``, ``partition_path``, ``file_id``, ``instant`` (strings), ``ordering`` (int64, string, or the bytes
of several fields, as in the index; missing for an index without ordering values), and with ``--all`` also ``deleted``. A
deleted row without a record key has the ordering value of the newest TRUNCATE of the source table. The file's metadata
has the fixed choices of the checkpoint under ``tagstream.index``.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tagstream.cli.command import Clock, Command, add_checkpoint
from tagstream.cli.index_reader import (
    EmptiedMark,
    Entries,
    entries_of,
    existing_checkpoint,
    open_index,
    record_keys,
    state_keys,
)
from tagstream.cli.output import AdminError, Fact, Output, new_file
from tagstream.state.checkpoint import CheckpointMeta
from tagstream.state.codec import NO_LOCATION, ORDERING_UNKNOWN, TOMBSTONE, Records, minutes_of
from tagstream.state.layout import OrderingKind, StateLayout
from tagstream.state.store_entries import Location

METADATA_KEY = b"tagstream.index"
_VERSION = 1
_READ_ROWS = 250_000
_DIGITS = "^[0-9]{1,18}$"


@dataclass(frozen=True)
class ExportInfo:
    """The metadata of an exported file. ``tombstones``: whether it has deleted keys.

    ``batch_id``, ``instant``: of the newest batch in the file.
    """

    key_groups: int
    shuffle_partitions: int
    stream_id: str
    ordering: OrderingKind
    global_index: bool
    tombstones: bool
    batch_id: int | None
    instant: str | None

    @classmethod
    def of(cls, meta: CheckpointMeta, batch_id: int | None, instant: str | None, *, tombstones: bool) -> ExportInfo:
        """The metadata from the choices of a checkpoint."""
        sizes = (meta.key_groups, meta.shuffle_partitions)
        return cls(*sizes, meta.stream_id, meta.ordering, meta.global_index, tombstones, batch_id, instant)

    def schema(self) -> pa.Schema:
        """Columns of the file."""
        fields = [(name, pa.string()) for name in ("record_key", "partition_path", "file_id", "instant")]
        if self.ordering != "none":
            kinds = {"int64": pa.int64(), "bytes": pa.string(), "tuple": pa.binary()}
            fields.append(("ordering", kinds[self.ordering]))
        if self.tombstones:
            fields.append(("deleted", pa.bool_()))
        return pa.schema(fields)


def run_export(arguments: argparse.Namespace, out: Output, clock_ms: Clock) -> int:
    """Write the index to a new file, one row group at a time, and return the exit code."""
    path = os.path.abspath(arguments.out)
    begun = clock_ms()
    live = dead = 0
    with new_file(path) as temp, open_index(existing_checkpoint(arguments.checkpoint_dir)) as index:
        heads = index.heads
        info = ExportInfo.of(heads.meta, heads.batch_id, heads.instant, tombstones=arguments.all)
        about = {METADATA_KEY: json.dumps({"version": _VERSION, **asdict(info)}).encode()}
        schema, emptied = info.schema().with_metadata(about), EmptiedMark(index.layout)
        with pq.ParquetWriter(temp, schema, compression="zstd") as writer:
            for group, label in enumerate(index.labels):
                out.progress(f"key group {group + 1} of {len(index.labels)}")
                with index.group(label) as store:
                    for entries in map(emptied.taken_from, entries_of(store, index.layout, label)):
                        writer.write_batch(_rows(entries, index.layout, info).replace_schema_metadata(about))
                        dead += int(np.count_nonzero(entries.deleted))
                        live += int(np.count_nonzero(~entries.deleted))
            if emptied.found is not None and arguments.all:
                writer.write_batch(_rows(emptied.found, index.layout, info).replace_schema_metadata(about))
                dead += 1
    out.facts(
        [
            *index.facts(),
            Fact("out", "written", path),
            Fact("bytes", "bytes", os.path.getsize(path), "bytes"),
            Fact("keys", "keys", live, "count"),
            Fact("tombstones", "tombstones" if arguments.all else "tombstones left out", dead, "count"),
            Fact("seconds", "seconds", round((clock_ms() - begun) / 1000, 1)),
        ]
    )
    return 0


def _rows(entries: Entries, layout: StateLayout, info: ExportInfo) -> pa.RecordBatch:
    keys, partitions = record_keys(entries.skeys, layout)
    columns: list[pa.Array] = [keys, entries.partition_paths() if partitions is None else partitions]
    columns += [entries.file_ids(), entries.instants()]
    if info.ordering != "none":
        columns.append(entries.ordering(layout))
    deleted = pa.array(entries.deleted)
    if info.tombstones:
        return pa.RecordBatch.from_arrays([*columns, deleted], schema=info.schema())
    rows = pa.RecordBatch.from_arrays(columns, schema=info.schema())
    return rows.filter(pc.invert(deleted)) if entries.deleted.any() else rows


def read_info(path: str) -> ExportInfo:
    """The metadata of an exported file. AdminError when it is not an export, or its columns are not the expected ones."""
    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
    except FileNotFoundError as e:
        raise AdminError(f"{path} does not exist; check --from") from e
    except (pa.ArrowInvalid, OSError) as e:
        raise AdminError(f"{path} is not a readable Parquet file ({e}); export the index again") from e
    try:
        doc: dict[str, Any] = json.loads((schema.metadata or {})[METADATA_KEY])
        version = doc.pop("version")
        if version != _VERSION:
            raise AdminError(
                f"{path} is an export of version {version!r}, this program knows {_VERSION}; export the index again"
            )
        info = ExportInfo(**doc)
    except (KeyError, TypeError, ValueError) as e:
        raise AdminError(f"{path} was not made by `tagstream index export` (its metadata lacks tagstream.index)") from e
    wanted = info.schema()
    for field in wanted:
        found = schema.field(field.name).type if field.name in schema.names else None
        if found is None or not (found == field.type or (pa.types.is_string(field.type) and _is_text(found))):
            raise AdminError(
                f"{path}: column {field.name} is {'missing' if found is None else found}; {field.type} is needed"
            )
    return info


def read_rows(path: str, info: ExportInfo) -> Iterator[pa.RecordBatch]:
    """The file's rows in bounded pieces, in the columns of ``info.schema()``."""
    schema = info.schema()
    with pq.ParquetFile(path) as file:
        try:
            for batch in file.iter_batches(_READ_ROWS, columns=schema.names):
                columns = [batch.column(f.name).cast(f.type) for f in schema]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
        except (pa.ArrowInvalid, OSError) as e:
            raise AdminError(f"{path} cannot be read to its end ({e}); export the index again") from e


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def imported_entries(
    path: str, info: ExportInfo, layout: StateLayout, there: set[Location], now_ms: int
) -> Iterator[Entries]:
    """The file's records in bounded pieces. AdminError names the first row that is not valid.

    ``there``: the file groups of the table. ``now_ms``: start of the time to live, in milliseconds since 1970.
    """
    first = 0
    for rows in read_rows(path, info):
        _check(path, first, rows, layout)
        yield _entries(path, rows, layout, there, minutes_of(now_ms))
        first += rows.num_rows


def _check(path: str, first: int, rows: pa.RecordBatch, layout: StateLayout) -> None:
    deleted = _deleted(rows)
    placed = pc.or_(deleted, pc.and_(rows["partition_path"].is_valid(), rows["file_id"].is_valid()))
    keys = rows["record_key"]
    named: pa.Array = pc.not_equal(keys, "")
    if layout.ordering != "none":  # the record of the newest TRUNCATE
        named = pc.or_(named, pc.and_(deleted, rows["ordering"].is_valid()))
    checks = [
        (pc.and_kleene(keys.is_valid(), named), "has no record_key"),
        (placed, "has no partition_path or no file_id"),
        (
            pc.and_kleene(rows["instant"].is_valid(), pc.match_substring_regex(rows["instant"], _DIGITS)),
            "has no instant",
        ),
    ]
    if not layout.global_index:
        checks.append((rows["partition_path"].is_valid(), "has no partition_path, and the index is not global"))
    for good, problem in checks:
        wrong = pc.index(good.fill_null(False), pa.scalar(False)).as_py()
        if wrong >= 0:
            raise AdminError(f"{path}: row {first + wrong + 1} (record key {keys[wrong].as_py()!r}) {problem}")


def _deleted(rows: pa.RecordBatch) -> pa.Array:
    if "deleted" not in rows.schema.names:
        return pa.array(np.zeros(rows.num_rows, np.bool_))
    return rows["deleted"].fill_null(False)


def _entries(path: str, rows: pa.RecordBatch, layout: StateLayout, there: set[Location], minutes: int) -> Entries:
    n = rows.num_rows
    dead = _deleted(rows).to_numpy(zero_copy_only=False)
    places, place = _places(rows, dead)
    unknown = [p for p in places if p not in there]
    if unknown:
        partition, file_id = unknown[0]
        raise AdminError(
            f"{path} names {len(unknown)} file groups that the table does not have, first {file_id} of partition "
            f"{partition!r}: the table has changed since the export, or it is another table; export the index again"
        )
    flags = np.where(dead, TOMBSTONE, 0).astype(np.uint8)
    ordering, known = _ordering(rows, layout)
    flags |= np.where(known, 0, ORDERING_UNKNOWN).astype(np.uint8)
    skeys = state_keys(rows["record_key"], rows["partition_path"], layout)
    instant = rows["instant"].cast(pa.int64()).to_numpy()
    loc = np.full(n, NO_LOCATION, np.uint32)  # the load sets the codes
    return Entries(skeys, Records(loc, instant, np.full(n, minutes, np.uint32), flags, ordering), places, place)


def _places(rows: pa.RecordBatch, dead: npt.NDArray[np.bool_]) -> tuple[list[Location], npt.NDArray[np.int64]]:
    """Distinct locations of the live rows, and for each row the index of its location, -1 for a tombstone."""
    live = pa.array(~dead)
    names = (
        pc.binary_join_element_wise(rows["partition_path"], rows["file_id"], "\x00").filter(live).dictionary_encode()
    )
    place = np.full(len(dead), -1, np.int64)
    place[~dead] = names.indices.to_numpy()
    parts = [name.split("\x00") for name in names.dictionary.to_pylist()]
    return [(partition, file_id) for partition, file_id in parts], place


def _ordering(rows: pa.RecordBatch, layout: StateLayout) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.bool_]]:
    n = rows.num_rows
    if layout.ordering == "none":
        return np.zeros(n, np.int64), np.zeros(n, np.bool_)
    values = rows["ordering"]
    known = values.is_valid().to_numpy(zero_copy_only=False)
    if layout.ordering == "int64":
        return values.fill_null(0).to_numpy(), known
    out = np.empty(n, object)
    out[:] = values.cast(pa.binary()).fill_null(b"").to_pylist()
    return out, known


def _add_flags(out: argparse.ArgumentParser) -> None:
    add_checkpoint(out)
    out.add_argument("--out", metavar="FILE", required=True, help="Parquet file to write; must not exist")
    out.add_argument("--all", action="store_true", help="also tombstones, marked by the column deleted")


COMMANDS = (Command("index", "export", "write the index to a Parquet file", _add_flags, run_export),)
