"""The form of the source's files, by the options."""

from __future__ import annotations

from tagstream.streaming.options.csv_options import CsvOptions
from tagstream.streaming.source.csv_text import CsvDialect
from tagstream.streaming.source.file_avro import AvroFiles
from tagstream.streaming.source.file_csv import CsvFiles
from tagstream.streaming.source.file_parquet import ParquetFiles
from tagstream.streaming.source.source_file import FileForm


def make_form(name: str, csv: CsvOptions, columns: tuple[str, ...] = ()) -> FileForm | None:
    """The form with this name; None for lines of JSON. ``columns``: of CSV files without a header."""
    if name == "parquet":
        return ParquetFiles()
    if name == "avro":
        return AvroFiles()
    if name == "csv":
        return CsvFiles(
            CsvDialect(csv.sep, csv.quote, csv.escape, csv.comment),
            header=csv.header,
            columns=columns,
            null_value=csv.null_value.encode(),
            empty_value=csv.empty_value.encode(),
            trims=(csv.trim_left, csv.trim_right),
        )
    return None
