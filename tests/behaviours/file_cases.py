"""The forms of source files, each with a writer that is not the project's: one suite of behaviours for all."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from tagstream.streaming.source.csv_text import CsvDialect
from tagstream.streaming.source.decode.record_format import FAULT
from tagstream.streaming.source.decode.typed_rows import ROW
from tagstream.streaming.source.file_avro import AvroFiles
from tagstream.streaming.source.file_csv import CsvFiles
from tagstream.streaming.source.file_parquet import ParquetFiles
from tagstream.streaming.source.source_file import FileForm

Rows = Sequence[dict[str, Any]]
ARROW = pa.schema([("id", pa.int64()), ("text", pa.string())])
AVRO = {
    "type": "record",
    "name": "r",
    "fields": [{"name": "id", "type": "long"}, {"name": "text", "type": ["null", "string"], "default": None}],
}
COLUMNS = {field.name: field.type for field in ARROW}
_ODD = ['a "quote"', "a, comma", "two\nlines", "", "back\\slash", "end\\", '"', "\r\n", "ä\t", 'x","y', '\\"', "'"]


def some_rows(count: int, *, seed: int, first: int = 0) -> list[dict[str, Any]]:
    """Rows with an id from ``first`` on, and texts that are hard to quote."""
    rng = random.Random(seed)
    words = [rng.choice(_ODD) + rng.choice(_ODD) * rng.randrange(3) for _ in range(count)]
    return [{"id": first + n, "text": words[n] or None} for n in range(count)]


@dataclass(frozen=True)
class FormCase:
    """A form of files. ``write``: the bytes of a file. ``more``: the bytes that a program appends to it; None where none
    does.
    """

    name: str
    form: FileForm | None
    write: Callable[[Rows], bytes]
    more: Callable[[bytes, Rows], bytes] | None

    @property
    def source_class(self) -> str:
        return f"{'Json' if self.form is None else self.name.capitalize()}DFSSource"

    def rows_of(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        """The rows of a batch of raw records, without blank lines; a bad record is its reason."""
        if ROW in batch.schema.names:
            return [{name: row[name] for name in COLUMNS} for row in batch.column(ROW).to_pylist()]
        faults = batch.column(FAULT).to_pylist() if FAULT in batch.schema.names else [None] * batch.num_rows
        found = zip(batch.column("value").to_pylist(), faults, strict=True)
        return [{"fault": fault} if fault else json.loads(value) for value, fault in found if fault or value.strip()]


def _lines(rows: Rows) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _csv(rows: Rows, *, header: bool = True) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    if header:
        writer.writerow(COLUMNS)
    writer.writerows([row["id"], "" if row["text"] is None else row["text"]] for row in rows)
    return out.getvalue().encode()


def _avro(rows: Rows) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, AVRO, rows, codec="deflate", sync_interval=300)
    return out.getvalue()


def _more_avro(before: bytes, rows: Rows) -> bytes:
    out = io.BytesIO(before)
    out.seek(0, io.SEEK_END)
    fastavro.writer(out, AVRO, rows, sync_interval=300)  # it continues with the file's header
    return out.getvalue()[len(before) :]


def _parquet(rows: Rows) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows), ARROW), out, row_group_size=20)
    return out.getvalue()


FORMS = (
    FormCase("json", None, _lines, lambda _, rows: _lines(rows)),
    FormCase("csv", CsvFiles(CsvDialect(escape=b'"'), header=True), _csv, lambda _, rows: _csv(rows, header=False)),
    FormCase("avro", AvroFiles(), _avro, _more_avro),
    FormCase("parquet", ParquetFiles(), _parquet, None),
)


def write_bytes(path: Path, data: bytes, *, mode: str = "wb") -> None:
    """Write or append a file's bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode) as f:
        f.write(data)
