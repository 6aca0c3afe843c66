"""Several at once on one storage: writers of one name, readers of a file that changes, swappers of one register."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tagstream.table.errors import StaleVersionError
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.storage.storage import Storage
from tests.behaviours import storages as s

AT_ONCE = 4


@pytest.mark.extended("more kinds of storages", first=("posix-processes", "wrapped-threads"))
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_of_many_writers_of_a_name_one_wins(storage: Storage, kind: str) -> None:
    names = 30
    with s.workers(kind, AT_ONCE) as run:
        won = run(s.create_numbers, [(storage, who, names) for who in range(AT_ONCE)])
    assert sorted(n for mine in won for n in mine) == list(range(names))
    for who, mine in enumerate(won):
        assert all(storage.read(f"race/{name}") == bytes([who]) * 1000 for name in mine)


def test_a_file_is_replaced_in_one_step(storage: Storage) -> None:
    storage.replace("x", b"a")
    found: list[int] = []
    watcher = threading.Thread(target=lambda: found.append(s.look_often(storage, "x", (1, s.BIG), "end")))
    watcher.start()
    for i in range(20):
        storage.replace("x", bytes([i]) * (s.BIG if i % 2 else 1))
    storage.write_new("end", b"")
    watcher.join()
    assert found == [0]
    assert (storage.read("x"), storage.names("")) == (bytes([19]) * s.BIG, ("end", "x"))


@pytest.mark.extended("more kinds of storages", first=("posix-processes", "wrapped-threads"))
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_of_many_publishers_of_a_name_one_stays(storage: Storage, kind: str) -> None:
    names = 20
    with s.workers(kind, AT_ONCE) as run:
        won = run(s.publish_own, [(storage, who, names) for who in range(AT_ONCE)])
    for name in range(names):
        winners = [who for who, mine in enumerate(won) if name in mine]
        # A copy looks before it writes: of writers of one name at one moment several may be told that they were first.
        assert len(winners) == 1 or (winners and storage.stamp("") is None)
        assert storage.read(f"p=1/{name}") in [bytes([who]) * 1000 for who in winners]


@pytest.mark.extended("more kinds of storages", first=("posix-processes", "wrapped-threads"))
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_no_change_of_a_register_is_lost(storage: Storage, kind: str) -> None:
    times = 15
    with s.workers(kind, AT_ONCE) as run:
        done = run(s.count_up, [(storage, who, times) for who in range(AT_ONCE)])
    numbers = [n for mine in done for n in mine]
    assert len(set(numbers)) == len(numbers) == times * AT_ONCE
    found = storage.read_register("counter")
    assert found is not None
    assert int(found.data.split()[0]) >= max(numbers)


class Paused(PosixStorage):
    """Stands still before it creates a file, until it may go on."""

    reached = threading.Event()
    go_on = threading.Event()

    def write_new(self, rel: str, data: bytes) -> None:
        self.reached.set()
        self.go_on.wait(60)
        super().write_new(rel, data)


@pytest.mark.parametrize("others", [1, 5])
def test_a_swapper_that_wakes_up_late_changes_nothing(others: int, tmp_path: Path) -> None:
    storage, paused = PosixStorage(str(tmp_path), sync=False), Paused(str(tmp_path), sync=False)
    version = storage.swap("r", b"0", None)
    outcome: list[str] = []

    def swap() -> None:
        try:
            outcome.append(paused.swap("r", b"late", version))
        except StaleVersionError:
            outcome.append("stale")

    Paused.reached.clear()
    Paused.go_on.clear()
    thread = threading.Thread(target=swap)
    thread.start()
    assert Paused.reached.wait(60)
    newest = version
    for i in range(others):
        newest = storage.swap("r", f"{i + 1}".encode(), newest)
    Paused.go_on.set()
    thread.join()
    assert outcome == ["stale"]
    found = storage.read_register("r")
    assert found is not None
    assert (found.data, found.version) == (str(others).encode(), newest)
    assert storage.swap("r", b"on", newest)
