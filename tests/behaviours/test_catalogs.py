"""One suite for every catalogue: Glue by moto, and real Hive Metastores of both versions."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tagstream.catalog.catalog import Catalog, CatalogError
from tagstream.catalog.changes import Cursor
from tagstream.catalog.entry import BASE_FILES, REALTIME, Column, TableEntry
from tagstream.catalog.glue import GlueCatalog
from tagstream.catalog.options import SyncOptions
from tagstream.catalog.sync import SyncResult, commits_behind, sync_table
from tagstream.table.errors import TableConfigMismatchError, UnsupportedTableError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.services.replaced_partitions import delete_partitions
from tests.support.aws import aws_server, environment
from tests.support.hive_metastore import MetastoreServer
from tests.table.writer import SCHEMA, Writer, row

KINDS = ["glue", "hive-3.1.3", "hive-4.0.1"]
pytestmark = pytest.mark.extended("needs a real Hive Metastore", first=("glue",))
_numbers = itertools.count()


@pytest.fixture(scope="module", params=KINDS)
def catalog(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    if request.param == "glue":
        with aws_server() as settings, environment(settings):
            yield GlueCatalog()
        return
    with MetastoreServer(tmp_path_factory.mktemp("metastore"), request.param.removeprefix("hive-")) as server:
        client = server.client()
        yield client
        client.close()


@pytest.fixture
def options() -> SyncOptions:
    return SyncOptions(database=f"d{next(_numbers)}", table="t")


def made(folder: Path, table_type: str = COPY_ON_WRITE, **settings: Any) -> Writer:
    writer = Writer.create(folder, table_type, settings=settings)
    writer.write([row(n, f"p{n % 3}", 1) for n in range(6)])
    return writer


def sync(writer: Writer, catalog: Catalog, options: SyncOptions) -> SyncResult:
    return sync_table(HoodieTable.open(writer.table.base_path), catalog, options, "tester")


def entry(catalog: Catalog, options: SyncOptions, name: str = "t") -> TableEntry:
    found = catalog.table(options.database, name)
    assert found is not None
    return found


def values(catalog: Catalog, options: SyncOptions, name: str = "t") -> list[str]:
    return sorted("/".join(each) for each in catalog.partitions(entry(catalog, options, name)))


def test_made_and_then_nothing_to_do(catalog: Catalog, options: SyncOptions, tmp_path: Path) -> None:
    writer = made(tmp_path)
    first = sync(writer, catalog, options)
    assert [(e.action, e.added) for e in first.entries] == [("created", 3)]
    found = entry(catalog, options)
    newest = writer.table.timeline().completed_writes[-1].time
    assert first.cursor is not None
    assert found.cursor == Cursor(newest, first.cursor.completion_time)
    assert [c.name for c in found.columns][5:] == ["id", "ver", "name", "amount"]
    assert found.partition_keys == (Column("part", "string"),)
    assert (found.input_format, found.serde_parameters["hoodie.query.as.ro.table"]) == (BASE_FILES, "false")
    at = {"/".join(each): where for each, where in catalog.partitions(found).items()}
    assert {name: where.removeprefix("file:").removeprefix("//") for name, where in at.items()} == {
        f"p{n}": f"{writer.table.base_path}/p{n}" for n in range(3)
    }
    again = sync(writer, catalog, options)
    assert [(e.action, e.added, e.commits) for e in again.entries] == [("unchanged", 0, 0)]


def test_three_entries_of_a_merge_on_read_table(catalog: Catalog, options: SyncOptions, tmp_path: Path) -> None:
    writer = made(tmp_path, MERGE_ON_READ)
    sync(writer, catalog, options)
    found = {name: entry(catalog, options, name) for name in ("t_ro", "t_rt", "t")}
    formats = {name: (e.input_format, e.serde_parameters["hoodie.query.as.ro.table"]) for name, e in found.items()}
    assert formats == {"t_ro": (BASE_FILES, "true"), "t_rt": (REALTIME, "false"), "t": (REALTIME, "false")}
    assert {name: values(catalog, options, name) for name in found} == {name: ["p0", "p1", "p2"] for name in found}
    for strategy, realtime in (("RO", False), ("RT", True)):
        other = replace(options, database=options.database + strategy.lower(), strategy=strategy)
        sync(writer, catalog, other)
        assert (entry(catalog, other).input_format == REALTIME) is realtime
        assert catalog.table(other.database, "t_ro") is None


def test_partitions_of_commits_since_the_cursor(catalog: Catalog, options: SyncOptions, tmp_path: Path) -> None:
    writer = made(tmp_path)
    sync(writer, catalog, options)
    writer.write([row(10, "p7", 1), row(0, "p0", 2)])
    writer.write([row(11, "p8", 1)])
    table = HoodieTable.open(writer.table.base_path)
    assert commits_behind(table, table.timeline(), catalog, options) == 2
    done = sync(writer, catalog, options).entries[0]
    assert (done.action, done.added, done.updated, done.dropped, done.commits) == ("unchanged", 2, 0, 0, 2)
    assert values(catalog, options) == ["p0", "p1", "p2", "p7", "p8"]
    assert commits_behind(table, table.timeline(), catalog, options) == 0


def test_a_dropped_partition_goes_and_comes_back(catalog: Catalog, options: SyncOptions, tmp_path: Path) -> None:
    writer = made(tmp_path)
    sync(writer, catalog, options)
    clock = itertools.count(writer.now_ms + 60_000, 1000)
    delete_partitions(HoodieTable.open(writer.table.base_path), ["p1"], lambda: next(clock))
    assert sync(writer, catalog, options).entries[0].dropped == 1
    assert values(catalog, options) == ["p0", "p2"]
    writer.now_ms, writer.era = next(clock) + 60_000, 1
    writer.write([row(20, "p1", 1)])
    assert sync(writer, catalog, options).entries[0].added == 1
    assert values(catalog, options) == ["p0", "p1", "p2"]


def test_all_partitions_are_compared_without_increments(catalog: Catalog, options: SyncOptions, tmp_path: Path) -> None:
    writer = made(tmp_path)
    sync(writer, catalog, options)
    catalog.drop_partitions(entry(catalog, options), [("p1",)])
    assert values(catalog, options) == ["p0", "p2"]
    assert sync(writer, catalog, options).entries[0].action == "unchanged"  # the cursor says that nothing is new
    done = sync(writer, catalog, replace(options, incremental=False)).entries[0]
    assert (done.added, values(catalog, options)) == (1, ["p0", "p1", "p2"])


def test_columns_that_are_added_and_widened(catalog: Catalog, options: SyncOptions, tmp_path: Path) -> None:
    before = SCHEMA.set(2, pa.field("ver", pa.int32()))
    writer = Writer.create(tmp_path, COPY_ON_WRITE, schema=before)
    writer.write([row(n, f"p{n % 3}", 1) for n in range(6)])
    sync(writer, catalog, options)
    assert {c.name: c.type for c in entry(catalog, options).columns}["ver"] == "int"
    writer.schema = SCHEMA.append(pa.field("extra", pa.string()))
    writer.write([{**row(30, "p9", 2), "extra": "x"}])
    assert sync(writer, catalog, options).entries[0].action == "altered"
    found = entry(catalog, options)
    types = {c.name: c.type for c in found.columns}
    assert (types["ver"], types["extra"]) == ("bigint", "string")
    assert '"name":"extra"' in "".join(
        found.parameters[f"spark.sql.sources.schema.part.{n}"]
        for n in range(int(found.parameters["spark.sql.sources.schema.numParts"]))
    )
    assert columns_of_partitions(catalog, found) == {len(found.columns)}


def columns_of_partitions(catalog: Catalog, found: TableEntry) -> set[int]:
    """How many columns the partitions have: CASCADE has reached them."""
    if isinstance(catalog, GlueCatalog):
        pages = catalog._pages("get_partitions", "Partitions", DatabaseName=found.database, TableName=found.name)
        return {len(p["StorageDescriptor"]["Columns"]) for p in pages}
    raw = catalog._call(lambda c: c.get_partitions(found.database, found.name, -1), "partitions")  # type: ignore[attr-defined]
    return {len(p.sd.cols) for p in raw}


def test_a_table_of_the_name_that_is_not_ours(catalog: Catalog, options: SyncOptions, tmp_path: Path) -> None:
    writer = made(tmp_path)
    sync(writer, catalog, options)
    ours = entry(catalog, options)
    foreign = replace(
        ours,
        name="f",
        input_format="org.apache.hadoop.mapred.TextInputFormat",
        parameters={"EXTERNAL": "TRUE", "who": "somebody"},
    )
    catalog.create_table(foreign)
    with pytest.raises(TableConfigMismatchError, match="not a Hudi table"):
        sync(writer, catalog, replace(options, table="f"))
    assert entry(catalog, options, "f").parameters["who"] == "somebody"


def test_a_table_of_another_place(catalog: Catalog, options: SyncOptions, tmp_path: Path) -> None:
    one, other = made(tmp_path / "one"), made(tmp_path / "other")
    sync(one, catalog, options)
    with pytest.raises(TableConfigMismatchError, match="recreate_table_on_error"):
        sync(other, catalog, options)
    assert entry(catalog, options).location.endswith("/one/t")
    done = sync(other, catalog, replace(options, recreate_on_error=True)).entries[0]
    assert (done.action, done.added) == ("recreated", 3)
    assert entry(catalog, options).location.endswith("/other/t")


def test_paths_that_fit_no_key_leave_nothing(catalog: Catalog, options: SyncOptions, tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    writer.write([row(1, "2026/01/02", 1), row(2, "2026/01/03", 1)])
    with pytest.raises(TableConfigMismatchError, match=r"2026/01/02.*partition_extractor_class"):
        sync(writer, catalog, options)
    assert catalog.table(options.database, "t") is None
    days = replace(options, extractor="org.apache.hudi.hive.SlashEncodedDayPartitionValueExtractor")
    sync(writer, catalog, days)
    assert values(catalog, options) == ["2026-01-02", "2026-01-03"]


def test_a_database_that_does_not_exist(catalog: Catalog, options: SyncOptions, tmp_path: Path) -> None:
    writer = made(tmp_path)
    with pytest.raises(UnsupportedTableError, match="auto_create_database"):
        sync(writer, catalog, replace(options, auto_create_database=False))
    assert not catalog.has_database(options.database)


def test_comments_and_properties_of_the_user(catalog: Catalog, options: SyncOptions, tmp_path: Path) -> None:
    writer = made(tmp_path)
    asked = replace(options, table_properties={"team": "risk"}, serde_properties={"x": "1"}, support_timestamp=True)
    sync(writer, catalog, asked)
    found = entry(catalog, options)
    assert (found.parameters["team"], found.serde_parameters["x"]) == ("risk", "1")
    catalog.alter_table(
        replace(found, columns=tuple(replace(c, comment=f"of {c.name}") for c in found.columns)), cascade=False
    )
    writer.write([row(31, "p4", 2)])
    sync(writer, catalog, asked)
    assert {c.comment for c in entry(catalog, options).columns} == {f"of {c.name}" for c in found.columns}


@pytest.mark.extended("more partitions than one call takes")
def test_many_partitions(catalog: Catalog, options: SyncOptions, tmp_path: Path) -> None:
    """More than one call takes, of each kind of call."""
    writer = Writer.create(tmp_path, COPY_ON_WRITE, groups=1)
    writer.write([row(n, f"q{n:03}", 1) for n in range(130)])
    assert sync(writer, catalog, options).entries[0].added == 130
    assert len(values(catalog, options)) == 130
    catalog.drop_partitions(entry(catalog, options), [(f"q{n:03}",) for n in range(30)])
    assert sync(writer, catalog, replace(options, incremental=False, batch=7)).entries[0].added == 30
    writer.write([row(n, f"q{n:03}", 2) for n in range(110)])
    touched = sync(writer, catalog, replace(options, touch=True)).entries[0]
    assert (touched.added, touched.updated) == (0, 110)
    assert len(values(catalog, options)) == 130


class Cut:
    """A catalogue whose n-th call that changes something does not come through."""

    CHANGES = (
        "create_database",
        "create_table",
        "alter_table",
        "add_partitions",
        "update_partitions",
        "drop_partitions",
    )

    def __init__(self, catalog: Catalog, at: int) -> None:
        self._catalog, self._left = catalog, at

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._catalog, name)
        if name in self.CHANGES:
            self._left -= 1
            if self._left < 0:
                raise CatalogError(f"cut at {name}")
        return found


def test_a_sync_that_is_cut_off_heals(catalog: Catalog, options: SyncOptions, tmp_path: Path) -> None:
    writer = made(tmp_path, MERGE_ON_READ)
    for at in itertools.count():
        try:
            sync_table(HoodieTable.open(writer.table.base_path), Cut(catalog, at), options, "tester")
        except CatalogError:
            assert commits_are_told_last(catalog, options)
        else:
            break
    assert at >= 4
    assert [values(catalog, options, name) for name in ("t_ro", "t_rt", "t")] == [["p0", "p1", "p2"]] * 3
    writer.write([row(40, "p5", 1)])
    for at in itertools.count():
        try:
            sync_table(HoodieTable.open(writer.table.base_path), Cut(catalog, at), options, "tester")
        except CatalogError:
            continue
        break
    assert [values(catalog, options, name) for name in ("t_ro", "t_rt", "t")] == [["p0", "p1", "p2", "p5"]] * 3


def commits_are_told_last(catalog: Catalog, options: SyncOptions) -> bool:
    """An entry with a cursor has its partitions."""
    found: Sequence[TableEntry | None] = [catalog.table(options.database, name) for name in ("t_ro", "t_rt", "t")]
    return all(e is None or e.cursor is None or len(catalog.partitions(e)) == 3 for e in found)


def test_values_with_characters_that_names_escape(catalog: Catalog, options: SyncOptions, tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE, settings={"url_encode": True})
    odd = ["a%2Fb", "x%3D1", "ü", "with blank"]
    writer.write([row(n, part, 1) for n, part in enumerate(odd)])
    sync(writer, catalog, options)
    assert values(catalog, options) == sorted(odd)
    writer.write([row(n, part, 2) for n, part in enumerate(odd)])
    again = sync(writer, catalog, options).entries[0]
    assert (again.added, again.updated) == (0, 0)
    decoded = replace(options, table="u", decode_partition=True)
    sync(writer, catalog, decoded)
    assert set(catalog.partitions(entry(catalog, options, "u"))) == {("a/b",), ("x=1",), ("ü",), ("with blank",)}


def test_spark_reads_pieces_of_the_schema(catalog: Catalog, options: SyncOptions, tmp_path: Path) -> None:
    writer = made(tmp_path)
    sync(writer, catalog, replace(options, schema_length=100))
    found = entry(catalog, options).parameters
    pieces = [
        found[f"spark.sql.sources.schema.part.{n}"] for n in range(int(found["spark.sql.sources.schema.numParts"]))
    ]
    assert {len(piece) for piece in pieces[:-1]} == {100}
    assert [f["name"] for f in json.loads("".join(pieces))["fields"]][-2:] == ["amount", "part"]
    sync(writer, catalog, replace(options, incremental=False))
    assert entry(catalog, options).parameters["spark.sql.sources.schema.numParts"] == "1"
    assert "spark.sql.sources.schema.part.1" not in entry(catalog, options).parameters
