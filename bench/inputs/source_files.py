"""The same rows in one file of each form that a folder of the source may have."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from tagstream.streaming.record_formats import AVRO_FILES, CSV_FILES, PARQUET_FILES, PLAIN_JSON
from tagstream.streaming.source.file_avro import AvroFiles
from tagstream.streaming.source.file_csv import CsvFiles
from tagstream.streaming.source.file_parquet import ParquetFiles
from tagstream.streaming.source.source_file import FileForm


@dataclass(frozen=True)
class SourceFileCase:
    """A file of rows. ``name``: for the reader of the figures; ``format``: of its records; ``form``: of the file."""

    name: str
    format: str
    form: FileForm | None
    path: Path


def write_source_files(
    folder: Path, schema: dict[str, Any], table: pa.Schema, rows: Sequence[dict[str, Any]]
) -> list[SourceFileCase]:
    """Write the rows in all forms. ``schema``: as Avro, ``table``: the same as Arrow."""
    lines, parquet, avro, text = (folder / f"rows.{end}" for end in ("json", "parquet", "avro", "csv"))
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    pq.write_table(pa.Table.from_pylist(list(rows), schema=table), parquet, compression="zstd")
    with avro.open("wb") as out:
        fastavro.writer(out, schema, rows, codec="deflate")
    with text.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(table.names)
        writer.writerows([json.dumps(v) if isinstance(v, bool) else v for v in row.values()] for row in rows)
    return [
        SourceFileCase("JSON lines", PLAIN_JSON.name, None, lines),
        SourceFileCase("Parquet, zstd", PARQUET_FILES.name, ParquetFiles(), parquet),
        SourceFileCase("Avro, deflate", AVRO_FILES.name, AvroFiles(), avro),
        SourceFileCase("CSV with a header", CSV_FILES.name, CsvFiles(header=True), text),
    ]
