"""Files of records that a user gives to a command, decoded as in the stream.

The files are on this machine, and are read in the order in which a stream reads them. ``read_rows``: the rows of an insert
overwrite, from JSON lines or Parquet. ``read_sample``: a sample of a stream, from JSON lines.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tagstream.cli.output import AdminError
from tagstream.state.tag_batch import FLAG_DELETE, FLAG_NO_ORDERING, TagBatch
from tagstream.streaming.source.decode.key_decoder import FLAG_BAD, FLAG_SKIPPED, record_keys
from tagstream.streaming.source.decode.typed_rows import TypedRows, fits, with_row
from tagstream.streaming.source.decode_spec import DecodeSpec, cached_decoder, decoder_of
from tagstream.table.errors import ConfigError
from tagstream.table.schema.schema import storage_schema, user_schema
from tagstream.table.services.insert_overwrite import NewRows, Records, RowsByKey
from tagstream.table.services.merged_rows import RowKeeper

_READ_BYTES = 4 * 1024 * 1024
_BATCH_ROWS = 65_536
_PARQUET = ".parquet"
_SHOWN = 10


def files_below(given: str, flag: str) -> list[Path]:
    """The file itself, or the visible files below the folder, in the stream's order: by time, then by path.

    ConfigError, which names ``flag``, when there is neither.
    """
    path = Path(given.removeprefix("file://"))
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ConfigError(f"{flag} {path}: there is no such file or folder")
    found = []
    for folder, below, names in os.walk(path):
        below[:] = [name for name in below if not name.startswith((".", "_"))]
        found += [Path(folder, name) for name in names if not name.startswith((".", "_"))]
    return sorted(found, key=lambda file: (file.stat().st_mtime_ns // 1000, str(file)))


def lines_of(file: Path) -> Iterator[list[bytes]]:
    """The lines of a file, some MiB at a time. A .gz or .bz2 file is decompressed. AdminError when it cannot be read."""
    rest = b""
    try:
        with pa.input_stream(str(file)) as stream:
            while block := stream.read(_READ_BYTES):
                *lines, rest = (rest + block).split(b"\n")
                if lines:
                    yield lines
    except (OSError, pa.ArrowInvalid) as error:
        raise AdminError(f"{file} cannot be read ({error}); repair it or leave it out") from error
    if rest:
        yield [rest]


def raw_lines(file: Path, lines: list[bytes], before: int) -> pa.RecordBatch:
    """Lines as the input of a decoder. ``before``: number of lines of the file before these."""
    n = len(lines)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.nulls(n, pa.binary()),
            "value": pa.array(lines, pa.binary()),
            "src": pa.repeat(pa.scalar(str(file)), n),
            "pos_hi": pa.array(np.full(n, file.stat().st_mtime_ns // 1000, np.int64)),
            "pos_lo": pa.array(np.arange(before + 1, before + n + 1)),
        }
    )


def read_rows(paths: list[str], spec: DecodeSpec, depth: int | None, keeper: RowKeeper) -> NewRows:
    """The rows to write from all files, or from all files below the folders. Use them inside the keeper's block.

    A file named .parquet is Parquet, any other one JSON lines. ``depth``: of the table's partition paths, when it depends on
    the values of records. AdminError for the first record that cannot be written: no record is left out.
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
    """The user columns of a file, in batches. AdminError for a column that the table lacks or has with a smaller type."""
    try:
        with pq.ParquetFile(file) as opened:
            columns = user_schema(opened.schema_arrow)
            _check_columns(file, columns, spec)
            yield from opened.iter_batches(_BATCH_ROWS, columns=columns.names)
    except (OSError, pa.ArrowInvalid) as error:
        raise AdminError(f"{file} cannot be read ({error}); repair it or leave it out") from error


def _check_columns(file: Path, columns: pa.Schema, spec: DecodeSpec) -> None:
    schema, mark = spec.schema, spec.format.delete_field
    for field in storage_schema(columns):
        if field.name == mark and pa.types.is_boolean(field.type):
            continue
        if field.name not in schema.names:
            raise AdminError(
                f"{file} has the column {field.name!r}, which the table does not have ({', '.join(schema.names)}); remove "
                "it from the file, or add the column to the table first"
            )
        wanted = schema.field(field.name).type
        if not fits(field.type, wanted):
            raise AdminError(
                f"column {field.name!r} of {file} is {field.type}; the table has {wanted}, which cannot represent all of "
                "its values: cast the column in the file"
            )


def _checked(file: Path, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The records with data of a row. AdminError names the first bad record."""
    flags = batch.column("flags").to_numpy()
    bad = np.flatnonzero((flags & FLAG_BAD) != 0)
    if len(bad):
        at = int(bad[0])
        kind = "row" if file.name.endswith(_PARQUET) else "line"
        raise AdminError(
            f"{kind} {batch.column('pos_lo')[at]} of {file} cannot be written: {batch.column('reason')[at]}. Nothing was "
            "changed; correct the record, or leave it out"
        )
    skipped = (flags & FLAG_SKIPPED) != 0
    return batch.filter(pa.array(~skipped)) if skipped.any() else batch


def _records(batch: pa.RecordBatch, spec: DecodeSpec) -> Records:
    flags = batch.column("flags").to_numpy()
    row = batch.column("row")
    return Records(
        rows=pa.Table.from_arrays(row.flatten(), schema=pa.schema(list(row.type))),
        keys=record_keys(batch.column("skey")),
        partitions=batch.column("part").fill_null(""),  # of a delete without a partition path
        ordering=None if spec.ordering_kind == "none" else batch.column("ord"),
        deleted=(flags & FLAG_DELETE) != 0,
        unordered=(flags & FLAG_NO_ORDERING) != 0,
    )


@dataclass(frozen=True)
class BadLine:
    """A line that the stream would quarantine; ``line`` counts from 1."""

    file: str
    line: int
    reason: str


@dataclass(frozen=True)
class Sample:
    """``rows``: the good records in stream order, with the columns of ``KeyDecoder.keys`` and ``record_key``.

    ``bad``: number of the others; ``first_bad`` has some. ``more``: the limit cut the sample.
    """

    rows: pa.Table
    files: int
    bad: int
    first_bad: tuple[BadLine, ...]
    more: bool

    @property
    def deleted(self) -> npt.NDArray[np.bool_]:
        """Mask of the deletes."""
        mask: npt.NDArray[np.bool_] = (self.rows.column("flags").to_numpy() & FLAG_DELETE) != 0
        return mask

    def batch(self, *, ordered: bool) -> TagBatch:
        """The records as the input of the stream's decisions. ``ordered``: the table has an ordering field."""
        column = {name: self.rows.column(name).to_numpy() for name in self.rows.column_names}
        return TagBatch(
            skeys=column["skey"],
            partitions=column["part"],
            ordering=column["ord"] if ordered else None,
            flags=column["flags"].astype(np.uint8),
            source=column["src"],
            pos_hi=column["pos_hi"],
            pos_lo=column["pos_lo"],
        )


def read_sample(path: str, spec: DecodeSpec, limit: int) -> Sample:
    """At most ``limit`` records (0: all) of a file, or of the files below a folder, oldest file first.

    ConfigError when the path does not exist, AdminError when a file cannot be read or there is no good record.
    """
    files = files_below(path, "--sample")
    decoded: list[pa.RecordBatch] = []
    left, more, used = limit or None, False, 0
    for file in files:
        number = 0
        for lines in lines_of(file):
            taken = lines if left is None else lines[:left]
            more = len(taken) < len(lines)
            if taken:
                decoded.append(cached_decoder(spec).keys(raw_lines(file, taken, number)))
                used += number == 0
                number += len(taken)
            left = None if left is None else left - len(taken)
            if more:
                break
        if more:
            break
    if not decoded or not any(batch.num_rows for batch in decoded):
        raise AdminError(f"the sample {path} has no record; give a file or folder with lines of JSON")
    rows = pa.Table.from_batches(decoded)
    wrong = (rows.column("flags").to_numpy() & FLAG_BAD) != 0
    bad = rows.filter(pa.array(wrong))
    named = bad.slice(0, _SHOWN).select(["src", "pos_lo", "reason"]).to_pylist()
    first_bad = tuple(BadLine(r["src"], r["pos_lo"], r["reason"]) for r in named)
    if bad.num_rows == rows.num_rows:
        at = first_bad[0]
        raise AdminError(
            f"no record of the sample {path} fits the table, {bad.num_rows:,} are bad; the first is line {at.line} of "
            f"{at.file}: {at.reason}. Give the stream's --props, whose schema may have defaults"
        )
    good = rows.filter(pa.array(~wrong)).combine_chunks()
    return Sample(
        good.append_column("record_key", record_keys(good.column("skey").combine_chunks())),
        used,
        bad.num_rows,
        first_bad,
        more,
    )
