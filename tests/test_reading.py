"""``tagstream.open_table``: the public way of reading, on tables of the test writer and one that real Hudi wrote."""

from __future__ import annotations

import doctest
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tagstream
import tagstream.errors
import tagstream.reading
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.services.cleaning import clean
from tagstream.table.services.options import CleanOptions
from tests.table.reference import NAMES, expected, unpack
from tests.table.services.tables import clock, rounds
from tests.table.writer import START_MS, Writer, row

KEYS = {"k1": 1, "k2": 2, "k3": 3, "k4": 2}


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    """Three writes to two partitions."""
    found = Writer.create(tmp_path, MERGE_ON_READ)
    found.write([row(1, "p0", 1), row(2, "p0", 1), row(3, "p1", 1)])
    found.write([row(2, "p0", 2, "it's"), row(4, "p1", 2)])
    found.write([row(3, "p0", 3)])
    return found


def keys(scan: tagstream.Scan) -> dict[str, int]:
    rows = scan.to_arrow()
    return dict(zip(rows["id"].to_pylist(), rows["ver"].to_pylist(), strict=True))


def test_what_the_package_offers() -> None:
    assert dir(tagstream) == sorted([*tagstream.__all__, "__version__"])
    for name in tagstream.__all__:
        assert getattr(tagstream, name).__doc__, name
    with pytest.raises(AttributeError, match="has no attribute 'opne_table'; it has Health, Scan, Table"):
        tagstream.opne_table  # type: ignore[attr-defined] # noqa: B018


def test_reading_needs_no_spark(writer: Writer) -> None:
    program = (
        "import sys, tagstream, tagstream.errors; print(tagstream.open_table(sys.argv[1]).scan().to_arrow().num_rows);"
        "print(sorted({'pyspark', 'py4j', 'duckdb', 'polars', 'hdfs_native', 'obstore'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, writer.table.base_path], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:2] == ["4", "[]"]


def test_a_table_says_what_it_is(writer: Writer) -> None:
    table = tagstream.open_table(Path(writer.table.base_path))
    assert (table.name, table.table_type, table.version) == ("t", "MERGE_ON_READ", writer.table.config.version)
    assert table.path == writer.table.base_path and repr(table) == (
        f"<tagstream.Table t at {table.path}: MERGE_ON_READ, version {table.version}>"
    )
    assert table.schema.names == ["id", "part", "ver", "name", "amount"]
    assert [action.is_completed for action in table.timeline()] == [True] * 3
    assert table.timeline() == writer.table.timeline().instants


def test_health(writer: Writer) -> None:
    found = tagstream.open_table(writer.table.base_path).health(writer.now_ms)
    assert found.ok and found.findings == () and found.figures.active == 3
    writer.table.storage.write_new(writer.timeline_rel("20260101000000500.deltacommit.requested"), b"")
    found = tagstream.open_table(writer.table.base_path).health(writer.now_ms + 7_200_000)
    assert not found.ok and "deltacommit 20260101000000500 has been requested for 2." in found.findings[0].what
    assert "a start of the job" in found.findings[0].remedy


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, KEYS),
        ({"filter": "ver >= 2"}, {"k2": 2, "k3": 3, "k4": 2}),
        ({"filter": "part = 'p0' and name in ('it''s', 'other')"}, {"k2": 2}),
        ({"columns": ("ver", "id"), "filter": "name is not null"}, KEYS),
    ],
)
def test_columns_and_filters(how: dict[str, object], expected: dict[str, int], writer: Writer) -> None:
    scan = tagstream.open_table(writer.table.base_path).scan(**how)  # type: ignore[arg-type]
    assert keys(scan) == expected
    if "columns" in how:
        assert scan.to_arrow().column_names == ["ver", "id"]


def test_hudis_own_columns_by_name(writer: Writer) -> None:
    table = tagstream.open_table(writer.table.base_path)
    assert table.scan().to_arrow().column_names == table.schema.names
    rows = table.scan(["_hoodie_commit_time"], "id = k1").to_arrow().to_pylist()
    assert rows == [{"_hoodie_commit_time": table.timeline()[0].time}]


def test_every_form_has_the_same_rows(writer: Writer) -> None:
    scan = tagstream.open_table(writer.table.base_path).scan(["id", "ver"])
    expected = [{"id": key, "ver": ver} for key, ver in KEYS.items()]
    assert scan.to_arrow().sort_by("id").to_pylist() == expected
    assert pa.Table.from_batches(list(scan.to_batches())).sort_by("id").to_pylist() == expected
    assert pa.table(scan).sort_by("id").to_pylist() == expected
    frame = scan.to_pandas()
    assert isinstance(frame, pd.DataFrame) and frame.sort_values("id").to_dict("records") == expected
    polars = scan.to_polars()
    assert isinstance(polars, pl.DataFrame) and polars.sort("id").to_dicts() == expected
    assert scan.to_duckdb().order("id").fetchall() == list(KEYS.items())
    with duckdb.connect() as own:
        relation = scan.to_duckdb(own)
        assert relation.aggregate("sum(ver)").fetchall() == [(8,)]
        assert relation.count("id").fetchall() == [(4,)], "a relation can be asked more than once"
        assert own.sql("select max(ver) from scan").fetchall() == [(3,)]


def test_a_reader_that_is_not_installed_is_named(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(tagstream.errors.ConfigError, match="polars is not installed: pip install polars"):
        tagstream.open_table(writer.table.base_path).scan().to_polars()


def test_as_of_in_every_spelling(writer: Writer) -> None:
    table = tagstream.open_table(writer.table.base_path)
    first = table.timeline()[0].time
    moment = datetime.strptime(first[:14], "%Y%m%d%H%M%S")
    local = moment if not writer.table.config.timezone_utc else moment.replace(tzinfo=UTC)
    spellings: list[str | datetime] = [
        first,
        first[:14],
        f"{moment}",
        moment.isoformat(),
        moment,
        local.astimezone(UTC).isoformat(),
    ]
    for as_of in spellings:
        assert keys(table.scan(as_of=as_of)) == {"k1": 1, "k2": 1, "k3": 1}, as_of
    assert keys(table.scan(as_of=moment - timedelta(seconds=1))) == {}
    assert keys(table.scan(as_of="2200-01-01")) == KEYS


def test_since(writer: Writer) -> None:
    table = tagstream.open_table(writer.table.base_path)
    first, second, third = (action.completion_time or action.time for action in table.timeline())
    assert keys(table.scan(since=first)) == {"k2": 2, "k3": 3, "k4": 2}
    assert keys(table.scan(since=second, filter="ver > 2")) == {"k3": 3}
    assert keys(table.scan(since=third)) == {}
    assert keys(table.scan(since="2020-01-01")) == KEYS


def test_a_past_that_was_cleaned_is_refused(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    times = rounds(writer, 6)
    assert clean(writer.table, CleanOptions(commits=2), clock())
    table = tagstream.open_table(writer.table.base_path)
    assert table.scan(as_of=times[4]).to_arrow().num_rows == 4
    with pytest.raises(tagstream.errors.CleanedPastError, match=f"cannot be read as of {times[0]}"):
        table.scan(as_of=times[0])


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"columns": ["nope"]}, "table t has no column nope; it has _hoodie_commit_time"),
        ({"columns": []}, "columns is empty"),
        ({"columns": ["id", "id"]}, "columns: id is there twice"),
        ({"filter": "nope = 3"}, "the filter names column nope"),
        ({"filter": "ver = x"}, "'x' is not a value of column ver"),
        ({"filter": "ver = 1 or ver = 2"}, "has or"),
        ({"as_of": "yesterday"}, "as_of 'yesterday' is not a time: give an instant"),
        ({"since": "12345"}, "since '12345' is not a time"),
    ],
)
def test_wrong_arguments_are_refused_at_once(how: dict[str, object], reason: str, writer: Writer) -> None:
    with pytest.raises(tagstream.errors.ConfigError, match=reason):
        tagstream.open_table(writer.table.base_path).scan(**how)  # type: ignore[arg-type]


def test_where_there_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(tagstream.errors.TableNotFoundError, match="is not a Hudi table"):
        tagstream.open_table(tmp_path)
    with pytest.raises(tagstream.errors.ConfigError, match=r"ftp:// is not supported"):
        tagstream.open_table("ftp://host/table")


def test_an_empty_table(tmp_path: Path) -> None:
    writer = Writer.without_metadata(tmp_path, COPY_ON_WRITE)
    table = tagstream.open_table(writer.table.base_path)
    assert table.scan().to_arrow().num_rows == 0 and table.schema.names == ["id", "part", "ver", "name", "amount"]
    assert table.timeline() == () and table.health(START_MS).ok


def test_a_table_that_real_hudi_wrote(tmp_path: Path) -> None:
    name = next(name for name in NAMES if name.startswith("mor_"))
    path = unpack(name, tmp_path)
    assert tagstream.open_table(path).scan().to_arrow().num_rows == expected(path)["row_count"]


@pytest.mark.parametrize("module", [tagstream, tagstream.reading, tagstream.errors])
def test_the_examples_of_the_docstrings(module: object) -> None:
    found = doctest.testmod(module)  # type: ignore[arg-type]
    assert found.attempted and not found.failed
