"""What goes wrong with the servers of locks: lost sessions, data that cannot be read, missing rights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
import pytest
from kazoo.exceptions import ConnectionLoss

from tagstream.table.errors import CorruptFileError, LockError, LockLostError
from tagstream.table.locks.lock import Lock, TableLock
from tagstream.table.locks.options import LockOptions
from tagstream.table.locks.storage_based import LOCK_FILE
from tagstream.table.locks.zookeeper import CuratorLock
from tests.behaviours.lock_places import DYNAMODB, LOCK_TABLE, LONG_S, STORAGE, ZOOKEEPER, Place, only, zookeeper_client
from tests.support.process import wait_for
from tests.support.zookeeper import ZookeeperServer


@only(ZOOKEEPER)
def test_an_expired_session_is_noticed(place: Place) -> None:
    lock, other = place.open("one"), place.open("other")
    assert lock.try_acquire(0)
    client: Any = lock._client  # type: ignore[attr-defined]
    with zookeeper_client(place.options["zookeeper_url"], client.client_id):
        pass
    assert not lock.is_held()
    assert other.try_acquire(LONG_S)
    lock.release()
    assert other.is_held()
    assert not lock.try_acquire(0)
    other.release()
    assert lock.try_acquire(LONG_S)


@only(ZOOKEEPER)
def test_a_server_that_ends_and_comes_back(place: Place, tmp_path: Path) -> None:
    with ZookeeperServer(tmp_path / "own") as own:
        lock = place.open(zookeeper_url=own.hosts, zookeeper_connection_timeout_ms=3000)
        table = TableLock(lock, LockOptions(**place.options))
        with table.hold("commit"):
            own.kill()
            with pytest.raises(LockLostError, match="did not answer"):
                table.check()
        with pytest.raises(LockError, match="check that ZooKeeper runs"):
            lock.try_acquire(0)
        own.start()
        wait_for(lambda: takes(lock), LONG_S, "the lock of the server that is back")
        assert lock.is_held()


@only(ZOOKEEPER)
def test_a_release_that_gets_no_answer_ends_the_session(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the node would stay for as long as this process lives."""
    lock, other = place.open("one"), place.open("other")
    assert lock.try_acquire(0)
    client: Any = lock._client  # type: ignore[attr-defined]

    def refuse(path: str) -> Any:
        raise ConnectionLoss

    monkeypatch.setattr(client, "delete_async", refuse)
    lock.release()
    assert not client.connected
    assert other.try_acquire(LONG_S)


@only(ZOOKEEPER)
def test_a_try_that_could_not_clean_up_keeps_nobody_waiting(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, third = place.open("one"), place.open("other"), place.open("third")
    assert one.try_acquire(0)
    with monkeypatch.context() as patched:
        patched.setattr(CuratorLock, "_best_effort_cleanup", lambda _: None)
        assert not other.try_acquire(0)
    one.release()
    assert third.try_acquire(LONG_S)


def takes(lock: Lock) -> bool:
    """Whether it can be taken; False while the server refuses."""
    try:
        return lock.try_acquire(1)
    except LockError:
        return False


@only(ZOOKEEPER)
def test_a_server_that_is_not_there(place: Place) -> None:
    lock = place.open(zookeeper_url="127.0.0.1:1", zookeeper_connection_timeout_ms=200)
    with pytest.raises(LockError, match=r"127\.0\.0\.1:1.*zookeeper\.url") as error:
        lock.try_acquire(0)
    assert error.value.may_pass
    assert not lock.is_held()
    assert "not known" in lock.holder()


@only(ZOOKEEPER)
def test_a_node_of_another_user(place: Place) -> None:
    from kazoo.security import make_digest_acl

    with zookeeper_client(place.options["zookeeper_url"]) as client:
        client.create("/private", acl=[make_digest_acl("user", "password", all=True)])
    lock = place.open(zookeeper_base_path="/private")
    with pytest.raises(LockError, match="let this user create") as error:
        lock.try_acquire(0)
    assert not error.value.may_pass


@only(STORAGE)
@pytest.mark.parametrize("data", [b"", b"{}", b'{"expired":"no","validUntil":1,"owner":"x"}', b"[1]"])
def test_a_malformed_lock_file_is_named(place: Place, data: bytes) -> None:
    place.storage.replace(LOCK_FILE, data)
    lock = place.open()
    table = TableLock(lock, LockOptions(**place.options))
    with pytest.raises(CorruptFileError, match=r"table_lock\.json.*delete it when no writer"), table.hold("commit"):
        pass
    assert "not known" in lock.holder()
    place.remove()
    assert lock.try_acquire(0)


@only(STORAGE)
def test_members_that_hudi_accepts(place: Place) -> None:
    for data in (
        b'{"expired":false,"validUntil":1,"owner":null}',
        b'{"owner":"x","more":1,"validUntil":1,"expired":true}',
    ):
        place.storage.replace(LOCK_FILE, data)
        lock = place.open()
        assert lock.try_acquire(0)
        lock.release()


@only(DYNAMODB)
def test_an_item_without_a_lease_is_named(place: Place) -> None:
    one = place.open()
    assert one.try_acquire(0)
    one.release()
    item = {"key": place.table, "ownerName": "x", "leaseDuration": "soon", "recordVersionNumber": "1"}
    made = {name: {"S": value} for name, value in item.items()}
    boto3.client("dynamodb").put_item(TableName=LOCK_TABLE, Item=made)
    with pytest.raises(LockError, match="leaseDuration 'soon'"):
        one.try_acquire(0)


@only(DYNAMODB)
def test_a_released_item_of_amazons_client_is_free(place: Place) -> None:
    lock = place.open()
    assert lock.try_acquire(0)
    lock.release()
    item = {
        "key": place.table,
        "ownerName": "x",
        "leaseDuration": "60000",
        "recordVersionNumber": "1",
        "isReleased": "1",
    }
    made = {name: {"S": value} for name, value in item.items()}
    boto3.client("dynamodb").put_item(TableName=LOCK_TABLE, Item=made)
    assert lock.holder() == "nobody"
    assert lock.try_acquire(0)


@only(STORAGE)
def test_a_bucket_that_is_not_there(place: Place) -> None:
    lock = Place(STORAGE, place.options, "s3a://nowhere/t").open()
    with pytest.raises(LockError, match="s3a://nowhere/t") as error:
        lock.try_acquire(0)
    assert not error.value.may_pass
