"""The order that an index alone knows survives a load from the table: a TRUNCATE that is read late deletes what is older."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from tests.simulation import checks
from tests.simulation.changes import Database, Message
from tests.simulation.settings import Settings
from tests.simulation.world import World


class Changes:
    """A database whose messages are read later than they were made."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.world = World(Settings(**{"changes": "lsn", "truncates": True, **settings}), folder)  # type: ignore[arg-type]
        assert self.world.database is not None
        self.database: Database = self.world.database
        self.random = Random(1)

    def rows(self, numbers: Iterable[int]) -> list[Message]:
        """New rows."""
        found = []
        for number in numbers:
            self.database.clock += 1
            found.append(self.database.put(self.random, self.world.columns, f"k{number:04d}", number % 3))
        return found

    def large(self, number: int) -> list[Message]:
        """A row gets a large value, and is changed until this is not sent."""
        key, found = f"k{number:04d}", []
        row = self.database._rows[key]
        row.values["txt"] = None
        while not found or "txt" in found[-1].event.row:
            self.database.clock += 1
            found.append(self.database.put(self.random, self.world.columns, key, number % 3, self.database._rows[key]))
        return found

    def truncate(self) -> list[Message]:
        """All rows are deleted."""
        self.database.clock += 1
        return [self.database.truncate(self.random)]

    def read(self, messages: list[Message]) -> str:
        """They are in the topic, and the stream reads them: its newest commit."""
        self.world.put(messages)
        assert self.world.run(1000, 0.0, {}) == "done"
        assert self.world.all_taken() and not checks.quick(self.world)
        return self.world.model.now.instant


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_truncate_that_is_read_after_a_rollback(tmp_path: Path, table_type: str) -> None:
    changes = Changes(tmp_path, table_type=table_type)
    before = changes.rows(range(8))
    truncate = changes.truncate()
    after = changes.rows(range(5, 12))
    changes.read(before)
    changes.read(after)
    changes.world.roll_back(changes.read(changes.rows([20])))
    changes.read(truncate)
    assert {str(ident) for ident in changes.world.model.rows(changes.world.model.now, False)} == {
        f"k{number:04d}" for number in (*range(5, 12), 20)
    }


def test_a_truncate_that_was_undone_deletes_again(tmp_path: Path) -> None:
    changes = Changes(tmp_path)
    changes.read(changes.rows(range(8)))
    late = changes.rows([3])  # read after the TRUNCATE that it is older than
    changes.world.roll_back(changes.read(changes.truncate()))
    changes.read(changes.rows([9]))
    changes.world.roll_back(changes.read(changes.rows([10])))
    changes.read(late)
    assert {str(ident) for ident in changes.world.model.rows(changes.world.model.now, False)} == {"k0009", "k0010"}


@pytest.mark.parametrize("gone", [1, 2, 3])
@pytest.mark.parametrize("version", [6, 9])
def test_the_order_of_events_that_were_undone_is_not_taken(tmp_path: Path, version: int, gone: int) -> None:
    """They are read again, and each counts: the last one lacks a value that one before it has."""
    changes = Changes(tmp_path, toast=True, truncates=False, columns=("txt", "flt"), version=version)
    changes.read(changes.rows(range(8)))
    commits = [changes.read([*changes.large(3), *changes.rows([20])]) for _ in range(gone)]
    for instant in reversed(commits):
        changes.world.roll_back(instant)
    changes.world.random.seed(2)
    for limit in (1, 1, 1000):
        changes.world.run(limit, 0.0, {})
    assert changes.world.all_taken() and not checks.quick(changes.world)


def test_a_former_index_that_is_damaged_is_passed_over(tmp_path: Path) -> None:
    changes = Changes(tmp_path)
    changes.read(changes.rows(range(8)))
    changes.world.roll_back(changes.read(changes.rows([20])))
    for path in (changes.world.checkpoint / "tagstream" / "index" / "deltas").rglob("*.sst"):
        path.write_bytes(path.read_bytes()[:-1])
    changes.read(changes.rows([21]))


def test_without_the_former_index_the_order_is_not_known(tmp_path: Path) -> None:
    """As docs/change-streams.md says of a new checkpoint: rows of an unknown order are older than every TRUNCATE."""
    changes = Changes(tmp_path)
    truncate = changes.truncate()
    changes.read(changes.rows(range(3)))
    shutil.rmtree(changes.world.checkpoint)
    changes.world.put(truncate)
    assert changes.world.run(1000, 0.0, {}) == "done"
    assert [problem for problem in checks.quick(changes.world) if "is lost" in problem]
