"""Tables that the whole stream wrote, read and continued by real Hudi and read by hudi-rs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tests.interop.hudi_spark import HudiError, HudiSpark
from tests.interop.typed_streams import KINDS, ORDERINGS, Streamed, stream
from tests.support.compare import compare
from tests.support.hudi_rs import keys_found_twice, read_table
from tests.support.table_version import table_version

pytestmark = [pytest.mark.hudi_jar, pytest.mark.spark]
# On merge-on-read the first writes go to logs; 0.15 builds a record index only where every group has a base file.
CONTINUED = [("cow", "BLOOM"), ("cow", "RECORD"), ("mor_base_inserts", "BLOOM"), ("mor_base_inserts", "RECORD")]
UPDATED, INSERTED = 40, 10


@pytest.fixture(scope="session")
def streams(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Streamed]:
    """A streamed table by its kind and ordering type; shared by the tests, which copy it before they change it."""

    @cache
    def make(kind: str, ordering: str, version: int) -> Streamed:
        return stream(tmp_path_factory.mktemp(f"stream-v{version}"), spark, kind, ordering)

    return lambda kind, ordering: make(kind, ordering, table_version())


def check(found: pa.Table, expected: pa.Table, who: str) -> None:
    """The rows found are the expected ones, with no key twice."""
    assert keys_found_twice(found, "id").num_rows == 0, who
    wrong = compare(expected, found, ["id"])
    assert not wrong, f"{who}: {wrong}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_streamed_tables_are_read(
    hudi: HudiSpark, streams: Callable[[str, str], Streamed], kind: str, ordering: str
) -> None:
    streamed = streams(kind, ordering)
    check(hudi.read(streamed.table), streamed.expected, f"Hudi {hudi.version}")
    check(read_table(streamed.table), streamed.expected, "hudi-rs")


@pytest.mark.parametrize(("kind", "index"), CONTINUED)
def test_hudi_upserts_into_a_streamed_table(
    hudi: HudiSpark, streams: Callable[[str, str], Streamed], tmp_path: Path, kind: str, index: str
) -> None:
    upsert_into_copy(hudi, streams(kind, "long"), tmp_path / "t", index)


def test_hudi_upserts_into_a_streamed_table_of_logs_only(
    hudi: HudiSpark, streams: Callable[[str, str], Streamed], tmp_path: Path
) -> None:
    """Only an index that sees logs can go on there: 1.2 builds its record index from them, 0.15 fails and says so."""
    if hudi.is_0x:
        with pytest.raises(HudiError, match="No value present in Option"):
            upsert_into_copy(hudi, streams("mor", "long"), tmp_path / "t", "RECORD")
    else:
        upsert_into_copy(hudi, streams("mor", "long"), tmp_path / "t", "RECORD")


def upsert_into_copy(hudi: HudiSpark, streamed: Streamed, path: Path, index: str) -> None:
    """Updates and inserts by Hudi in a copy: all in place, the others untouched, no key twice."""
    shutil.copytree(streamed.table, path)
    table, rows = HoodieTable.open(str(path)), streamed.expected
    old, rest = rows.slice(0, UPDATED), rows.slice(UPDATED)
    newer = pc.add(old["ts"], 1_000_000)
    ids = [f"new{n}" for n in range(INSERTED)]
    updated = put(put(old, "ts", newer), "name", pa.array(["hudi"] * UPDATED))
    inserted = put(updated.slice(0, INSERTED), "id", pa.array(ids))
    hudi.write(table, pa.concat_tables([updated, inserted]), hudi.index(index))
    expected = pa.concat_tables([updated, inserted, rest])
    check(hudi.read(path), expected, f"Hudi {hudi.version}")
    check(read_table(path), expected, "hudi-rs")
    assert validate(table.reload()) == []


def put(rows: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    """The rows with one column replaced."""
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), values)
