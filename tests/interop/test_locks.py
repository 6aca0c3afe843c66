"""Hudi's own lock providers against ours: each waits for the other."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.peers import home as peers
from tagstream.table.errors import LockLostError
from tagstream.table.locks.lock import Lock, Surroundings, TableLock
from tagstream.table.locks.opened import open_lock, path_hash
from tagstream.table.locks.options import LockOptions
from tagstream.table.storage.posix import PosixStorage
from tests.interop.hudi_lock import hudi_lock
from tests.support.answering import AnsweringProgram
from tests.support.process import in_thread
from tests.support.zookeeper import ZookeeperServer

pytestmark = pytest.mark.hudi_jar
LONG_S = 240.0
PACKAGE = "org.apache.hudi.client.transaction.lock."
HERE = Surroundings(writer="tagstream", new_id=lambda: str(uuid.uuid4()))


class Sides:
    """Hudi's lock of a table, and ours."""

    def __init__(self, hudi: AnsweringProgram, options: LockOptions, base_path: Path) -> None:
        self.hudi, self.options, self.base_path = hudi, options, base_path
        lock = open_lock(options, "t", str(base_path), PosixStorage(str(base_path)), HERE)
        assert lock is not None
        self.ours: Lock = lock


def hudis(provider: str, base_path: Path, **more: str) -> dict[str, str]:
    """Properties of Hudi; `more`: keys below ``hoodie.write.lock.``, with ``__`` for a dot."""
    told = {
        "hoodie.base.path": str(base_path),
        "hoodie.table.name": "t",
        "hoodie.write.lock.provider": PACKAGE + provider,
    }
    return told | {f"hoodie.write.lock.{name.replace('__', '.')}": value for name, value in more.items()}


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperServer]:
    with ZookeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(
    scope="module",
    params=["FileSystemBasedLockProvider", "ZookeeperBasedLockProvider", "ZookeeperBasedImplicitBasePathLockProvider"],
)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    peers.set_up()
    folder = tmp_path_factory.mktemp("locks")
    base_path = folder / "t"
    (base_path / ".hoodie").mkdir(parents=True)
    options: dict[str, str | int] = {"provider": request.param}
    more: dict[str, str] = {}
    if request.param != "FileSystemBasedLockProvider":
        server = request.getfixturevalue("zookeeper")
        options |= {"zookeeper_url": server.hosts, "zookeeper_session_timeout_ms": 2000}
        more |= {"zookeeper__url": server.hosts, "zookeeper__session_timeout_ms": "2000"}
    if request.param == "ZookeeperBasedLockProvider":
        options |= {"zookeeper_base_path": f"/hudi/{uuid.uuid4().hex}"}
        more |= {"zookeeper__base_path": str(options["zookeeper_base_path"]), "zookeeper__lock_key": "t"}
    with hudi_lock(hudis(request.param, base_path, **more), folder / "hudi.log") as hudi:
        made = Sides(hudi, LockOptions(**options), base_path)  # type: ignore[arg-type]
        yield made
        made.ours.close()


@pytest.fixture
def sides(running: Sides) -> Iterator[Sides]:
    """Neither side has the lock, before and after."""
    yield running
    running.ours.release()
    if running.hudi.is_running:
        assert running.hudi.ask("close") == "ok"


def test_each_waits_for_the_other(sides: Sides) -> None:
    hudi, ours = sides.hudi, sides.ours
    assert hudi.ask("lock") == "ok"
    assert not ours.try_acquire(0.5)
    assert ours.holder() != "nobody"
    got: list[bool] = []
    waiting = in_thread(lambda: got.append(ours.try_acquire(LONG_S)))
    assert not got
    assert hudi.ask("unlock") == "ok"
    waiting.join()
    assert got == [True]
    assert ours.is_held()
    assert "HoodieLockException" in hudi.ask("lock")
    assert ours.is_held()
    ours.release()
    assert hudi.ask("lock") == "ok"
    assert hudi.ask("unlock") == "ok"
    assert ours.try_acquire(LONG_S)


def test_hudi_waits_and_gets_it_after_our_release(sides: Sides) -> None:
    hudi, ours = sides.hudi, sides.ours
    assert ours.try_acquire(0)
    assert "HoodieLockException" in hudi.ask("lock")
    hudi.tell("lock")
    ours.release()
    if hudi.answer() != "ok":  # its tries were over before the release
        assert hudi.ask("lock") == "ok"
    assert not ours.try_acquire(0)
    assert hudi.ask("unlock") == "ok"
    assert ours.try_acquire(LONG_S)


def test_hudis_close_is_found_where_it_deletes_our_lock(sides: Sides) -> None:
    hudi, ours = sides.hudi, sides.ours
    table = TableLock(ours, sides.options)
    deletes = sides.options.used_provider == "FileSystemBasedLockProvider"
    with table.hold("commit"):
        table.check()
        assert "HoodieLockException" in hudi.ask("lock")
        table.check()
        assert hudi.ask("close") == "ok"
        if deletes:
            with pytest.raises(LockLostError, match="another writer deleted the lock"):
                table.check()
            assert not (sides.base_path / ".hoodie" / "lock").exists()
        else:
            table.check()
    assert hudi.ask("lock") == "ok"
    ours.release()
    assert not ours.try_acquire(0)


def test_nothing_is_left_in_the_folder(sides: Sides) -> None:
    hudi, ours = sides.hudi, sides.ours
    assert hudi.ask("lock") == "ok"
    assert not ours.try_acquire(0)
    assert hudi.ask("unlock") == "ok"
    assert ours.try_acquire(LONG_S)
    ours.release()
    assert os.listdir(sides.base_path / ".hoodie") == []


def test_names_of_tables_by_their_paths(sides: Sides) -> None:
    for path in ("/data/t", "s3://b/t", "hdfs://host:8020/x/ü t"):
        assert sides.hudi.ask(f"hash {path}") == path_hash(path)


def test_a_killed_hudi(sides: Sides) -> None:
    """The last one for each provider."""
    hudi, ours = sides.hudi, sides.ours
    assert hudi.ask("lock") == "ok"
    hudi.kill()
    if sides.options.used_provider == "FileSystemBasedLockProvider":
        assert not ours.try_acquire(1)
        assert "left no name" in ours.holder()
    else:
        assert ours.try_acquire(LONG_S)
