"""Columns of texts that stay dictionaries from one base file to the next."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagstream.table.file_group.repeated_texts import (
    encoded,
    repeated_texts,
    with_dictionaries,
    without_unused_values,
)
from tagstream.table.meta_client.table_config import COPY_ON_WRITE
from tests.support.hudi_rs import read_table
from tests.table.writer import Writer, row

SCHEMA = pa.schema([("key", pa.string()), ("word", pa.string()), ("n", pa.int64())])
ROWS = pa.table([[str(i) for i in range(50)], ["a", None, "b", "", "b"] * 10, range(50)], schema=SCHEMA)


def file_of(rows: pa.Table, **options: object) -> pq.ParquetFile:
    out = io.BytesIO()
    pq.write_table(rows, out, version="1.0", data_page_version="1.0", store_schema=False, **options)
    return pq.ParquetFile(io.BytesIO(out.getvalue()))


def test_only_columns_that_the_file_has_as_dictionaries() -> None:
    file = file_of(ROWS, use_dictionary=["word"])
    assert repeated_texts(file, SCHEMA) == {"word"}
    assert repeated_texts(file, SCHEMA, ["word"]) == frozenset()
    assert repeated_texts(file, SCHEMA.append(pa.field("new", pa.string()))) == frozenset()
    assert repeated_texts(file_of(ROWS, use_dictionary=False), SCHEMA) == frozenset()


def test_one_whose_dictionary_was_given_up() -> None:
    """The rest of the column has plain values."""
    words = ROWS.set_column(1, SCHEMA.field(1), pa.array([f"{i:0200d}" for i in range(50)]))
    file = file_of(words, use_dictionary=["word"], dictionary_pagesize_limit=1000, write_batch_size=10)
    assert "PLAIN" in file.metadata.row_group(0).column(1).encodings
    assert repeated_texts(file, SCHEMA) == frozenset()


@settings(deadline=None)
@given(st.lists(st.lists(st.none() | st.text(max_size=3), max_size=9), min_size=1, max_size=4), st.data())
def test_a_dictionary_has_only_values_of_the_rows(parts: list[list[str | None]], data: st.DataObject) -> None:
    schema = pa.schema([("word", pa.string())])
    tables = [encoded(pa.table([part], schema=schema), with_dictionaries(schema, ["word"])) for part in parts]
    kept = [table.slice(data.draw(st.integers(0, table.num_rows))) for table in tables]
    found = without_unused_values(pa.concat_tables(kept))
    values = [value for table in kept for value in table.column("word").to_pylist()]
    assert found.column("word").to_pylist() == values
    dictionaries = [chunk.dictionary.to_pylist() for chunk in found.column("word").chunks]
    assert all(each == dictionaries[0] for each in dictionaries), "Parquet has one for a row group"
    assert sorted(*dictionaries[:1] or [[]]) == sorted({value for value in values if value is not None})


def test_rows_without_dictionaries_are_left_as_they_are() -> None:
    assert without_unused_values(ROWS) is ROWS


@pytest.mark.table_versions(6, 9)
def test_a_value_whose_last_row_was_deleted_is_not_in_the_next_file(tmp_path: Path) -> None:
    """Also after several files, with new values, nulls and values that come back."""
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    writer.write([row(key, "p0", 1, name="secret" if key == 7 else f"n{key % 3}") for key in range(30)])
    writer.write([row(key, "p0", 2, name="other") for key in range(5)], ["k7"])
    writer.write([row(key, "p0", 3, name="n0") for key in range(3)])
    newest = max((p for p in Path(writer.table.base_path, "p0").glob("*.parquet")), key=lambda p: p.stat().st_mtime_ns)
    file = pq.ParquetFile(newest, read_dictionary=["name"])
    assert b"secret" not in newest.read_bytes()
    name = file.metadata.row_group(0).column(file.schema_arrow.names.index("name"))
    assert "PLAIN_DICTIONARY" in name.encodings
    (chunk,) = file.read(["name"]).column("name").chunks
    assert sorted(chunk.dictionary.to_pylist()) == ["n0", "n1", "n2", "other"]
    assert (name.statistics.min, name.statistics.max) == ("n0", "other")
    rows = sorted(read_table(writer.table.base_path, meta_columns=False).to_pylist(), key=lambda r: r["id"])
    assert rows == sorted(writer.live.values(), key=lambda r: str(r["id"]))
