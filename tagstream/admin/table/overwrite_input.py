"""The rows of an insert overwrite: files of JSON lines or Parquet, decoded as the stream decodes its records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tagstream.admin.errors import AdminError
from tagstream.admin.source_files import files_below, lines_of, raw_lines
from tagstream.state.tag_batch import FLAG_DELETE, FLAG_NO_ORDERING
from tagstream.streaming.source.decode.key_decoder import FLAG_BAD, FLAG_SKIPPED
from tagstream.streaming.source.decode.state_keys import record_keys
from tagstream.streaming.source.decode.typed.typed_rows import TypedRows, with_row
from tagstream.streaming.source.decode.typed.typed_schema import fits
from tagstream.streaming.source.decode_spec import DecodeSpec, cached_decoder, decoder_of
from tagstream.table.schema.schema import storage_schema, user_schema
from tagstream.table.services.replacing.rows import NewRows, Records, RowsByKey
from tagstream.table.services.spill import RowKeeper

_BATCH_ROWS = 65_536
_PARQUET = ".parquet"


def read_rows(paths: list[str], spec: DecodeSpec, depth: int | None, keeper: RowKeeper) -> NewRows:
    """The rows that count of all files, or of all files below the folders, given; to be used in the keeper's block.

    A name that ends in .parquet is Parquet, any other one JSON lines. ``depth``: of the table's partitions, where the values
    of records decide it. AdminError for the first record that cannot be written: nothing is left out.
    """
    found = RowsByKey(spec.schema, keeper, global_keys=spec.global_index)
    for path in paths:
        for file in files_below(path, "--from"):
            for batch in _decoded(file, spec, depth):
                good = _checked(file, batch)
                if good.num_rows:
                    found.add(_records(good, spec))
    return found.chosen()


def _decoded(file: Path, spec: DecodeSpec, depth: int | None) -> Iterator[pa.RecordBatch]:
    before = 0
    if file.name.endswith(_PARQUET):
        decoder = decoder_of(spec, TypedRows(spec.schema, spec.format.delete_field))
        for batch in _parquet_batches(file, spec):
            yield decoder.keys(with_row(batch, before + 1, 0, spec.format.delete_field), depth)
            before += batch.num_rows
        return
    for lines in lines_of(file):
        yield cached_decoder(spec).keys(raw_lines(file, lines, before), depth)
        before += len(lines)


def _parquet_batches(file: Path, spec: DecodeSpec) -> Iterator[pa.RecordBatch]:
    """The user columns of a file, row group by row group; AdminError for one that the table has not, or not so."""
    try:
        with pq.ParquetFile(file) as opened:
            columns = user_schema(opened.schema_arrow)
            _check_columns(file, columns, spec)
            yield from opened.iter_batches(_BATCH_ROWS, columns=columns.names)
    except (OSError, pa.ArrowInvalid) as error:
        raise AdminError(f"{file} cannot be read ({error}); leave it out") from error


def _check_columns(file: Path, columns: pa.Schema, spec: DecodeSpec) -> None:
    schema, mark = spec.schema, spec.format.delete_field
    for field in storage_schema(columns):
        if field.name == mark and pa.types.is_boolean(field.type):
            continue
        if field.name not in schema.names:
            raise AdminError(
                f"{file} has the column {field.name!r}, which the table has not ({', '.join(schema.names)}): leave it "
                "out, or give the table the column first"
            )
        wanted = schema.field(field.name).type
        if not fits(field.type, wanted):
            raise AdminError(
                f"column {field.name!r} of {file} is {field.type}, and the table has {wanted}, which does not hold all of "
                "its values: cast the column in the file"
            )


def _checked(file: Path, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Without the records that say nothing of a row; AdminError names the first bad one."""
    flags = batch.column("flags").to_numpy()
    bad = np.flatnonzero((flags & FLAG_BAD) != 0)
    if len(bad):
        at = int(bad[0])
        kind = "row" if file.name.endswith(_PARQUET) else "line"
        raise AdminError(
            f"{kind} {batch.column('pos_lo')[at]} of {file} cannot be written: {batch.column('reason')[at]}. Nothing was "
            "changed: correct the record, or leave it out"
        )
    skipped = (flags & FLAG_SKIPPED) != 0
    return batch.filter(pa.array(~skipped)) if skipped.any() else batch


def _records(batch: pa.RecordBatch, spec: DecodeSpec) -> Records:
    flags = batch.column("flags").to_numpy()
    row = batch.column("row")
    return Records(
        rows=pa.Table.from_arrays(row.flatten(), schema=pa.schema(list(row.type))),
        keys=record_keys(batch.column("skey")),
        partitions=batch.column("part").fill_null(""),  # of a delete that does not tell it
        ordering=None if spec.ordering_kind == "none" else batch.column("ord"),
        deleted=(flags & FLAG_DELETE) != 0,
        unordered=(flags & FLAG_NO_ORDERING) != 0,
    )
