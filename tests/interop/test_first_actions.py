"""An insert overwrite, and a deletion of partitions, as the first thing that a metadata table is told: real Hudi reads by
its statistics, finds keys in its record index, and goes on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.metadata.index_definitions import default_columns
from tagstream.table.metadata.record_encoding import PLACES
from tagstream.table.services.replaced_partitions import delete_partitions
from tagstream.table.services.validate_metadata import validate_metadata
from tests.interop.hudi_spark import HudiSpark
from tests.interop.test_metadata_tables import check_filters, read_by_both, upsert_by_hudi
from tests.support.table_version import table_version
from tests.table.metadata.case import Case, groups_of
from tests.table.metadata.test_initial import contents, make
from tests.table.services.overwriting import follow, overwrite
from tests.table.services.tables import clock
from tests.table.writer import Row, Writer, row

pytestmark = pytest.mark.hudi_jar
TYPES = (COPY_ON_WRITE, MERGE_ON_READ)


def rows(ver: int, name: str) -> list[Row]:
    return [row(n, f"p{n % 3}", ver, name) for n in range(30)]


def built(folder: Path, table_type: str) -> Case:
    """A table that has rows, and then gets a metadata table with everything."""
    writer = Writer.create(folder, table_type)
    writer.write(rows(1, "before"))
    case = Case(writer, default_columns(writer.schema, table_version()))
    places = [dict(zip(PLACES.names, (key, *place, writer.now_ms), strict=True)) for key, place in writer.where.items()]
    make(case, groups_of(table_version()), contents(writer.table, case.columns), pa.Table.from_pylist(places, PLACES))
    writer.before_complete = case.tell
    return case


def overwritten(case: Case, new: Sequence[Row], replaced: Sequence[str]) -> None:
    result = overwrite(case.writer.table, new, clock(case.writer.now_ms))
    assert sorted(result.replaced) == sorted(replaced)
    follow(case.writer, new, result, replaced)
    case.writer.table = case.writer.table.reload()


def deleted(case: Case, partition: str) -> None:
    assert delete_partitions(case.writer.table, [partition], clock(case.writer.now_ms)) is not None
    gone = [key for key, found in case.writer.live.items() if found["part"] == partition]
    for key in gone:
        del case.writer.live[key], case.writer.where[key]
    case.writer.era += 1
    case.writer.now_ms += 10_000


def check(hudi: HudiSpark, case: Case) -> None:
    case.check()
    assert validate_metadata(case.writer.table) == []
    read_by_both(hudi, case)
    check_filters(hudi, case)
    if not hudi.is_0x:  # 0.15 has no such call; it finds its keys by the index when it writes
        found = hudi.locate(case.writer.table.base_path, [*(f"k{n}" for n in range(40)), "nobody"])
        assert found == {key: place for key, place in case.writer.where.items() if int(key[1:]) < 40}


@pytest.mark.parametrize("table_type", TYPES)
def test_an_insert_overwrite_of_an_empty_table(hudi: HudiSpark, tmp_path: Path, table_type: str) -> None:
    case = Case.create(tmp_path, table_type, table_version())
    overwritten(case, rows(1, "first"), [])
    check(hudi, case)
    deleted(case, "p1")
    check(hudi, case)
    case.writer.write([row(n, "p1", 5, "again") for n in range(1, 9)])
    check(hudi, case)
    upsert_by_hudi(hudi, case, 10)
    check_filters(hudi, case)


@pytest.mark.parametrize("action", ["overwrite", "delete"])
@pytest.mark.parametrize("table_type", TYPES)
def test_the_first_after_the_metadata_table_was_made(
    hudi: HudiSpark, tmp_path: Path, table_type: str, action: str
) -> None:
    case = built(tmp_path, table_type)
    if action == "delete":
        deleted(case, "p1")
    else:
        overwritten(case, [row(n, "p1", 3, "over") for n in range(1, 12, 3)], ["p1"])
    check(hudi, case)
    upsert_by_hudi(hudi, case, 10)
    check_filters(hudi, case)
