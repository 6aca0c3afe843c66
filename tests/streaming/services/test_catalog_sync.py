"""The syncs of a run: on a thread that a commit wakes, and what an error means. Against Glue by moto."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tagstream.catalog.catalog import Catalog, CatalogError
from tagstream.catalog.glue import GlueCatalog
from tagstream.catalog.options import SyncOptions
from tagstream.streaming.services.catalog_sync import SERVICE, CatalogSync
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE
from tests.support.aws import aws_server, environment
from tests.support.process import wait_for
from tests.table.writer import Writer, row


@pytest.fixture(scope="module")
def glue() -> Iterator[GlueCatalog]:
    with aws_server() as settings, environment(settings):
        yield GlueCatalog()


class Gate:
    """A catalogue that is away while ``open`` is not set; each try is counted."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.open = threading.Event()
        self.tries = 0
        self.error: Exception = CatalogError("the catalogue is away")

    def __getattr__(self, name: str) -> object:
        return getattr(self._catalog, name)

    def has_database(self, database: str) -> bool:
        self.tries += 1
        if not self.open.is_set():
            raise self.error
        return self._catalog.has_database(database)


class Turns(list[tuple[str, int, str | None]]):
    def take(self, name: str, done: int, error: str | None) -> None:
        self.append((name, done, error))


Make = Callable[..., tuple[CatalogSync, Gate, Writer, Turns]]


@pytest.fixture
def make(tmp_path: Path, glue: GlueCatalog) -> Iterator[Make]:
    made: list[CatalogSync] = []

    def of(**options: bool | None) -> tuple[CatalogSync, Gate, Writer, Turns]:
        writer = Writer.create(tmp_path, COPY_ON_WRITE)
        writer.write([row(n, f"p{n}", 1) for n in range(2)])
        gate, turns = Gate(glue), Turns()
        table = HoodieTable.open(writer.table.base_path)
        asked = replace(SyncOptions(catalogs=("glue",), database=tmp_path.name[:40], table="t"), **options)  # type: ignore[arg-type]
        sync = CatalogSync(table, [gate], asked, "tester", turns.take, time.monotonic)  # type: ignore[list-item]
        made.append(sync)
        return sync, gate, writer, turns

    yield of
    for sync in made:
        sync.close()


def partitions(glue: GlueCatalog, tmp_path: Path) -> int:
    entry = glue.table(tmp_path.name[:40], "t")
    return 0 if entry is None else len(glue.partitions(entry))


def test_a_start_and_a_commit_wake_it(make: Make, glue: GlueCatalog, tmp_path: Path) -> None:
    sync, gate, writer, turns = make()
    gate.open.set()
    sync.start()
    wait_for(lambda: len(turns) == 1, 60, "the sync of the start")
    assert partitions(glue, tmp_path) == 2
    writer.write([row(7, "p7", 1)])
    sync.committed()
    sync.finish()
    assert partitions(glue, tmp_path) == 3
    assert set(turns) == {(SERVICE, 1, None)}


def test_an_error_is_reported_and_the_next_commit_heals(make: Make, glue: GlueCatalog, tmp_path: Path) -> None:
    sync, gate, writer, turns = make()
    sync.start()
    wait_for(lambda: len(turns) == 1, 60, "the sync that fails")
    assert turns[0] == (SERVICE, 0, "the catalogue is away")
    sync.committed()  # raises nothing: the stream goes on
    gate.open.set()
    writer.write([row(8, "p8", 1)])
    sync.committed()
    sync.finish()
    assert turns[-1] == (SERVICE, 1, None)
    assert partitions(glue, tmp_path) == 3


def test_an_error_says_how_many_commits_are_missing(make: Make) -> None:
    sync, gate, writer, turns = make(ignore_errors=True)
    gate.open.set()
    sync.start()
    wait_for(lambda: len(turns) == 1, 60, "the sync of the start")
    gate.open.clear()
    for number in range(3):
        writer.write([row(20 + number, "p1", 1)])
    sync.finish()
    assert turns[-1] == (SERVICE, 0, "the catalogue is away (3 commits behind)")


def test_a_run_that_ends_with_an_error_says_so(make: Make) -> None:
    sync, _, _, _ = make()
    sync.start()
    with pytest.raises(CatalogError, match="away"):
        sync.finish()


def test_an_error_that_is_ignored(make: Make) -> None:
    sync, gate, _, turns = make(ignore_errors=True)
    sync.start()
    sync.finish()
    assert gate.tries >= 1
    assert turns[-1] == (SERVICE, 0, "the catalogue is away")


def test_an_error_of_any_kind_is_reported_and_ends_no_thread(make: Make, glue: GlueCatalog, tmp_path: Path) -> None:
    sync, gate, _, turns = make()
    gate.error = KeyError("x")
    sync.start()
    wait_for(lambda: len(turns) == 1, 60, "the sync that fails")
    assert turns[0] == (SERVICE, 0, "KeyError: 'x'")
    gate.open.set()
    sync.committed()
    sync.finish()
    assert turns[-1] == (SERVICE, 1, None)
    assert partitions(glue, tmp_path) == 2


def test_an_error_that_ends_the_run(make: Make) -> None:
    sync, _, _, turns = make(ignore_errors=False)
    sync.start()
    wait_for(lambda: bool(turns), 60, "the sync that fails")
    with pytest.raises(CatalogError, match="away"):
        sync.committed()


def test_without_a_catalogue_there_is_no_thread(make: Make, tmp_path: Path) -> None:
    writer = Writer.create(tmp_path / "other", COPY_ON_WRITE)
    sync = CatalogSync(writer.table, [], SyncOptions(), "tester", Turns().take, time.monotonic)
    sync.start()
    sync.committed()
    sync.finish()
    sync.close()
