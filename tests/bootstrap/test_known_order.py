"""What an index alone knows survives a load from the table: a TRUNCATE that is read late deletes what is older, an event
that is older than a delete does not bring the row back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.bootstrap.plan import plan_bootstrap
from tagstream.bootstrap.tasks import _columns, _joined, _merged, _some
from tagstream.state.bulk_load import KeyRun
from tagstream.state.codec import TOMBSTONE
from tests.simulation import checks
from tests.simulation.changes import Database, Message
from tests.simulation.model import Event
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


@pytest.mark.extended("more kinds of tables", first=("9-2",))
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
    """As docs/guide/records.md says of a new checkpoint: rows of an unknown order are older than every TRUNCATE."""
    changes = Changes(tmp_path)
    truncate = changes.truncate()
    changes.read(changes.rows(range(3)))
    shutil.rmtree(changes.world.checkpoint)
    changes.world.put(truncate)
    assert changes.world.run(1000, 0.0, {}) == "done"
    assert [problem for problem in checks.quick(changes.world) if "is lost" in problem]


class Rows:
    """A stream of rows with an ordering field."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.world = World(Settings(keys=8, columns=("txt",), **settings), folder)  # type: ignore[arg-type]

    def read(self, number: int, order: int, *, deleted: bool = False) -> str:
        """One event is sent and taken: its commit."""
        key, settings = f"k{number:04d}", self.world.settings
        path = settings.place.path(0)
        row = self.world.events._row(self.world.random, ("txt",), key, 0, order, 0, deleted)
        ident = (path, key) if settings.by_partition else key
        self.world.sent[0].append(Event(ident, (order, 0), row, deleted, path))
        self.world.topic.add(0, None, json.dumps(row).encode())
        assert self.world.run(1000, 0.0, {}) == "done"
        assert self.world.all_taken() and not checks.quick(self.world)
        return self.world.model.now.instant

    def there(self) -> set[str]:
        """Keys of the table's rows."""
        found = self.world.model.rows(self.world.model.now, self.world.settings.by_partition)
        return {ident if isinstance(ident, str) else ident[1] for ident in found}


@pytest.mark.extended("more kinds of tables", first=("MERGE_ON_READ-long-True",))
@pytest.mark.parametrize("by_partition", [False, True])
@pytest.mark.parametrize("ordering", ["long", "decimal"])
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_an_event_that_is_older_than_a_delete_is_late_after_a_rollback(
    tmp_path: Path, table_type: str, ordering: str, by_partition: bool
) -> None:
    rows = Rows(tmp_path, table_type=table_type, ordering=ordering, by_partition=by_partition)
    rows.read(1, 10)
    rows.read(2, 10)
    rows.read(1, 50, deleted=True)
    if table_type == "MERGE_ON_READ":
        assert rows.world.operate("table", "compact", "--target-base-path", str(rows.world.path), "--yes") == "done"
    for undone in range(2):  # the second load takes it from the generation that the first one made
        rows.world.roll_back(rows.read(3, 10 + undone))
        rows.read(4, 10 + undone)
    rows.read(1, 40)
    assert rows.there() == {"k0002", "k0003", "k0004"}
    rows.read(1, 60)
    assert rows.there() == {"k0001", "k0002", "k0003", "k0004"}


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_delete_that_was_undone_is_not_remembered(tmp_path: Path, table_type: str) -> None:
    rows = Rows(tmp_path, table_type=table_type)
    rows.read(1, 10)
    rows.world.roll_back(rows.read(1, 50, deleted=True))
    # The delete is read again, with the event behind it in one batch.
    rows.read(1, 60)
    assert rows.there() == {"k0001"}


def test_the_deletes_of_a_table_without_rows(tmp_path: Path) -> None:
    rows = Rows(tmp_path)
    rows.read(1, 50, deleted=True)
    rows.world.roll_back(rows.read(2, 10))
    assert not plan_bootstrap(rows.world.table()).slices
    rows.read(1, 40)
    assert rows.there() == {"k0002"}


keys_of = st.lists(st.integers(0, 60), max_size=40)


@given(keys_of, keys_of, st.integers(1, 9), st.integers(1, 9))
def test_rows_and_deletes_come_in_common_ranges_of_keys(rows: list[int], gone: list[int], run: int, piece: int) -> None:
    def pieces(keys: list[int], size: int, flag: int) -> Iterator[KeyRun]:
        for at in range(0, len(keys), size):
            part = np.array(keys[at : at + size])
            skeys = np.array([b"%03d" % key for key in part.tolist()], object)
            yield KeyRun(skeys, part.astype(np.int32), part * 2, np.full(len(part), flag, np.uint8))

    dead = sorted(set(gone))
    # Rows of one range come in any order, and a key twice.
    ranges = (key_run for key_run in pieces(sorted(set(rows)), run, 0))
    turned = (_some(_joined(one, one), slice(None, None, -1)) for one in ranges)
    found = list(_merged(turned, pieces(dead, piece, TOMBSTONE)))
    assert all(len(one.skeys) <= 2 * run + piece for one in found)
    for before, after in pairwise(found):
        assert max(before.skeys) < min(after.skeys)
    alike = [(k, int(p), int(o), int(f)) for one in found for k, p, o, f in zip(*_columns(one), strict=True)]
    expected = [(b"%03d" % k, k, k * 2, 0) for k in set(rows) for _ in range(2)]
    expected += [(b"%03d" % k, k, k * 2, TOMBSTONE) for k in dead]
    assert sorted(alike) == sorted(expected)
