"""Hudi's keys of locks: defaults, names of providers, checks."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tagstream.table.config import ConfigKey
from tagstream.table.errors import ConfigError
from tagstream.table.locks.options import PROVIDERS, LockOptions, provider_name
from tagstream.table.option_fields import keys_of, read

KEYS = {key.name: key for key in keys_of(LockOptions)}
OCC = "OPTIMISTIC_CONCURRENCY_CONTROL"


class Given:
    """Values of a properties file, else the keys' defaults."""

    def __init__(self, **given: str) -> None:
        self._given = {name.replace("__", "."): text for name, text in given.items()}

    def value(self, name: str) -> Any:
        key: ConfigKey = KEYS[name]
        return key.parse(self._given[name], "test") if name in self._given else key.default


def options(text: str) -> LockOptions:
    return read(LockOptions, Given(**dict(line.split("=", 1) for line in text.split())))


def test_defaults_are_those_of_hudi() -> None:
    found = read(LockOptions, Given())
    assert found == LockOptions()
    assert (found.mode, found.used_provider, found.excludes_processes) == ("SINGLE_WRITER", None, False)
    assert (found.wait_time_ms, found.client_retries, found.client_retry_wait_ms) == (60_000, 50, 5000)
    assert (found.retries, found.retry_wait_ms, found.max_retry_wait_ms) == (15, 1000, 16_000)
    assert (found.storage_validity_s, found.storage_renew_s, found.file_expire_min) == (300, 30, 0)
    assert (found.zookeeper_session_timeout_ms, found.zookeeper_connection_timeout_ms) == (60_000, 15_000)
    assert (found.dynamodb_billing_mode, found.dynamodb_read_capacity, found.dynamodb_write_capacity) == (
        "PAY_PER_REQUEST", 20, 10,
    )  # fmt: skip


@pytest.mark.parametrize("text", [OCC, OCC.lower(), "Optimistic_Concurrency_Control"])
def test_the_mode_in_any_case(text: str) -> None:
    found = options(
        f"hoodie.write.concurrency.mode={text} hoodie.write.lock.provider=org.apache.hudi.client.transaction.lock."
        "FileSystemBasedLockProvider"
    )
    assert (found.mode, found.used_provider, found.excludes_processes) == (OCC, "FileSystemBasedLockProvider", True)


def test_writers_that_do_not_block_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="non_blocking.*bucket index.*use OPTIMISTIC"):
        options("hoodie.write.concurrency.mode=non_blocking_concurrency_control")


def test_names_of_providers() -> None:
    for short, package in PROVIDERS.items():
        assert provider_name(short) == provider_name(package + short) == short


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider", "use ZookeeperBasedLockProvider"),
        ("NoopLockProvider", "it excludes nobody"),
        (
            "ZooKeeperBasedLockProvider",
            "did you mean org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider",
        ),
        ("com.shop.FileSystemBasedLockProvider", "not a lock provider of this version.*Known: org.apache"),
        ("com.shop.OurLocks", "Known: .*aws.transaction.lock.DynamoDBBasedLockProvider"),
    ],
)
def test_other_providers_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"lock.provider = {re.escape(text)}.*{reason}"):
        LockOptions(provider=text)


def test_a_provider_alone_is_used() -> None:
    found = LockOptions(provider="InProcessLockProvider")
    assert (found.used_provider, found.excludes_processes) == ("InProcessLockProvider", False)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"storage_validity_s": 299}, r"validity\.timeout\.secs = 299: it must be at least 10 x"),
        ({"storage_validity_s": 9, "storage_renew_s": 0}, "renew.* = 0: it must be at least 1 second"),
        ({"mode": OCC}, "ZookeeperBasedLockProvider, Hudi's default.*needs .*zookeeper.url.*or set .*lock.provider"),
        ({"provider": "ZookeeperBasedImplicitBasePathLockProvider"}, "needs hoodie.write.lock.zookeeper.url: set it$"),
        ({"provider": "ZookeeperBasedLockProvider", "zookeeper_url": "h:1"}, "needs .*zookeeper.base_path"),
        (
            {"provider": "ZookeeperBasedLockProvider", "zookeeper_url": "h:1", "zookeeper_base_path": "locks"},
            "zookeeper.base_path = locks: it must be the path",
        ),
        (
            {"provider": "ZookeeperBasedLockProvider", "zookeeper_url": "http://h:1", "zookeeper_base_path": "/l"},
            "zookeeper.url = http://h:1: it must be host:port",
        ),
        ({"provider": "DynamoDBBasedLockProvider"}, "needs hoodie.write.lock.dynamodb.table"),
    ],
)
def test_values_that_do_not_fit(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        LockOptions(**given)


def test_the_older_name_of_the_interval() -> None:
    assert KEYS["hoodie.write.lock.storage.renew.interval.secs"].aliases == (
        "hoodie.write.lock.storage.heartbeat.poll.secs",
    )
