"""The lock that options name: its place, refusals by storage, missing packages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tagstream.table.errors import ConfigError, LockError
from tagstream.table.locks.lock import Surroundings
from tagstream.table.locks.opened import open_lock, path_hash
from tagstream.table.locks.options import LockOptions
from tagstream.table.storage.opening import open_storage
from tagstream.table.storage.posix import PosixStorage

HERE = Surroundings(writer="me", new_id=lambda: "id", env={"AWS_REGION": "eu-west-1"})
ZOOKEEPER = {"zookeeper_url": "a:1,b:2", "zookeeper_base_path": "/hudi/"}


def place(provider: str, base_path: str = "/data/t", **options: Any) -> str:
    lock = open_lock(LockOptions(provider=provider, **options), "orders", base_path, open_storage(base_path), HERE)
    assert lock is not None
    lock.close()
    return lock.place


def test_no_lock_for_a_single_writer() -> None:
    assert open_lock(LockOptions(), "orders", "/data/t", PosixStorage("/data/t"), HERE) is None


def test_places() -> None:
    assert place("FileSystemBasedLockProvider") == "/data/t/.hoodie/lock"
    assert place("FileSystemBasedLockProvider", file_path="/locks/t") == "/locks/t/lock"
    assert place("InProcessLockProvider") == "this process, for /data/t"
    assert place("StorageBasedLockProvider", "s3a://b/t") == "s3a://b/t/.hoodie/.locks/table_lock.json"
    assert place("ZookeeperBasedLockProvider", **ZOOKEEPER) == "ZooKeeper a:1,b:2 /hudi/orders"
    assert place("ZookeeperBasedLockProvider", zookeeper_lock_key="k", **ZOOKEEPER) == "ZooKeeper a:1,b:2 /hudi/k"
    assert place("ZookeeperBasedImplicitBasePathLockProvider", **ZOOKEEPER).endswith(
        f" /tmp/{path_hash('/data/t')}/lock_key"
    )
    assert place("DynamoDBBasedLockProvider", dynamodb_table="l") == "DynamoDB eu-west-1 table l key orders"
    assert place("DynamoDBBasedLockProvider", dynamodb_table="l", dynamodb_partition_key="k").endswith("key k")
    assert (
        place("DynamoDBBasedImplicitPartitionKeyLockProvider", dynamodb_table="l", dynamodb_region="us-west-2")
        == f"DynamoDB us-west-2 table l key {path_hash('/data/t')}"
    )


def test_hashes_are_those_of_hudi() -> None:
    """Vectors of Hudi 1.2.0's HashID; tests/interop/test_locks.py asks it."""
    assert path_hash("/data/t") == "710D1237950927F9"
    assert path_hash("s3://b/t") == path_hash("s3a://b/t") == path_hash("S3A://b/t") == "45205BCC2F82AB53"


def test_a_lock_file_on_an_object_store_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"s3a://b/t/\.hoodie is on an object store.*use StorageBasedLockProvider"):
        place("FileSystemBasedLockProvider", "s3a://b/t")
    with pytest.raises(ConfigError, match=r"s3a://b/locks is on an object store"):
        place("FileSystemBasedLockProvider", file_path="s3a://b/locks")


def test_a_lock_of_object_stores_on_a_disk_is_refused() -> None:
    with pytest.raises(ConfigError, match="/data/t is not on an object store.*use FileSystemBasedLockProvider"):
        place("StorageBasedLockProvider")


@pytest.mark.parametrize(
    ("package", "extra", "options"),
    [
        ("kazoo", "zookeeper", {"provider": "ZookeeperBasedLockProvider", **ZOOKEEPER}),
        ("boto3", "dynamodb", {"provider": "DynamoDBBasedLockProvider", "dynamodb_table": "l"}),
    ],
)
def test_a_missing_package_is_named(
    package: str, extra: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"tagstream.table.locks.{extra}", raising=False)
    with pytest.raises(ConfigError, match=rf"the package {package} is missing.*pip install 'tagstream\[{extra}\]'"):
        place(**options)


def test_an_address_that_is_none_is_refused() -> None:
    options = LockOptions(provider="ZookeeperBasedLockProvider", zookeeper_url="h:port", zookeeper_base_path="/hudi")
    lock = open_lock(options, "t", "/data/t", PosixStorage("/data/t"), HERE)
    assert lock is not None
    with pytest.raises(ConfigError, match="zookeeper.url = h:port: "):
        lock.try_acquire(0)
    with pytest.raises(ConfigError, match=r"dynamodb: no client for region us-east-1 and endpoint https://a b"):
        place("DynamoDBBasedLockProvider", dynamodb_table="l", dynamodb_region="us-east-1", dynamodb_endpoint_url="a b")


def test_a_path_that_leads_through_a_file(tmp_path: Path) -> None:
    (tmp_path / ".hoodie").write_text("no folder")
    lock = open_lock(
        LockOptions(provider="FileSystemBasedLockProvider"), "t", str(tmp_path), PosixStorage(str(tmp_path)), HERE
    )
    assert lock is not None
    with pytest.raises(LockError, match="lock cannot be created: .*hoodie.write.lock.filesystem.path") as error:
        lock.try_acquire(0)
    assert not error.value.may_pass
    assert (lock.is_held(), lock.holder()) == (False, "nobody")
