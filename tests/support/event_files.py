"""Files of events in the forms of the file sources: Parquet and CSV by Arrow and Python's csv, Avro by fastavro."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from tests.support import events as ev

CLASSES = {"parquet": "ParquetDFSSource", "avro": "AvroDFSSource", "csv": "CsvDFSSource", "json": "JsonDFSSource"}
CONF = {
    "csv": {"hoodie.streamer.csv.header": "true", "hoodie.deltastreamer.csv.escape": '"'},
    "parquet": {},
    "avro": {},
    "json": {},
}


def content(form: str, events: Iterable[ev.Event]) -> bytes:
    """The bytes of a file of events, in small blocks or row groups."""
    rows = [event.row() for event in events]
    out = io.BytesIO()
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows, ev.ARROW_SCHEMA), out, row_group_size=40)
    elif form == "avro":
        fastavro.writer(out, ev.AVRO_SCHEMA, rows, codec="deflate", sync_interval=1000)
    else:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(ev.ARROW_SCHEMA.names)
        writer.writerows([_field(row[name]) for name in ev.ARROW_SCHEMA.names] for row in rows)
        return text.getvalue().encode()
    return out.getvalue()


def _field(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def write_file(form: str, events: Iterable[ev.Event], folder: Path, number: int) -> Path:
    """One file, visible only when it is whole; the modification time rises with its number."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"events-{number:05d}.{form}"
    hidden = folder / f".{path.name}.tmp"
    hidden.write_bytes(content(form, events))
    os.utime(hidden, (1_600_000_000 + number, 1_600_000_000 + number))
    hidden.rename(path)
    return path
