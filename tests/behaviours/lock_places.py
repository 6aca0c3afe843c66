"""Where the lock suite takes locks: one place for each provider, with its real server or disk."""

from __future__ import annotations

import itertools
import json
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest

from tagstream.table.locks.lock import Lock, Surroundings
from tagstream.table.locks.opened import open_lock
from tagstream.table.locks.options import LockOptions
from tagstream.table.locks.storage_based import LOCK_FILE
from tagstream.table.storage.opening import open_storage
from tests.support.aws import aws_server, environment
from tests.support.lock_holder import LockHolder
from tests.support.zookeeper import ZookeeperServer

FILE_SYSTEM, IN_PROCESS, STORAGE, DYNAMODB, ZOOKEEPER = (
    "file_system", "in_process", "storage_based", "dynamodb", "zookeeper",
)  # fmt: skip
KINDS = (FILE_SYSTEM, IN_PROCESS, STORAGE, DYNAMODB, ZOOKEEPER)
BETWEEN_PROCESSES = (FILE_SYSTEM, STORAGE, DYNAMODB, ZOOKEEPER)
BUCKET, LOCK_TABLE = "locks", "locks"
EXPIRE_MIN = 1
# Long enough for any machine: tests of take-over have a clock of their own, or set shorter times.
VALIDITY_S, LEASE_MS, SESSION_MS = 60, 30_000, 10_000
LONG_S = 120.0  # a deadline that no working lock comes near
# The second tier has the variants of this kind; the others need no server of their own.
MARKS = {ZOOKEEPER: pytest.mark.extended("needs a real ZooKeeper")}
_numbers = itertools.count()


def marked(*kinds: str) -> list[Any]:
    """The parameters of these kinds, with their marks."""
    return [pytest.param(kind, marks=MARKS[kind]) if kind in MARKS else kind for kind in kinds]


def only(*kinds: str) -> pytest.MarkDecorator:
    """A test of some kinds of locks."""
    return pytest.mark.parametrize("lock_server", marked(*kinds), indirect=True)


class Clock:
    """A clock that advances only when somebody sleeps; it begins with the real time."""

    def __init__(self) -> None:
        self.began_ms = time.time_ns() // 1_000_000
        self.slept_s = 0.0

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return self.began_ms + round(self.slept_s * 1000)

    def clock(self) -> float:
        """Seconds."""
        return self.slept_s

    def sleep(self, seconds: float) -> None:
        """No time passes for anybody else."""
        self.slept_s += seconds


def surroundings(writer: str, clock: Clock | None = None) -> Surroundings:
    """`clock`: None for the real one."""
    told: dict[str, Any] = {"writer": writer, "new_id": lambda: str(uuid.uuid4())}
    if clock is not None:
        told |= {"wall_ms": clock.wall_ms, "clock": clock.clock, "sleep": clock.sleep}
    return Surroundings(**told)


class Place:
    """The lock of one new table. `kind`: one of KINDS."""

    def __init__(self, kind: str, options: Mapping[str, Any], base_path: str) -> None:
        self.kind, self.options, self.base_path = kind, dict(options), base_path
        self.table = f"t{next(_numbers)}"
        self.storage = open_storage(base_path)
        self._opened: list[Lock] = []

    def open(self, writer: str = "one", clock: Clock | None = None, **options: Any) -> Lock:
        """A handle of this process, closed with the place."""
        asked = LockOptions(**{**self.options, **options})
        lock = open_lock(asked, self.table, self.base_path, self.storage, surroundings(writer, clock))
        assert lock is not None
        self._opened.append(lock)
        return lock

    def holder(self, writer: str = "other") -> LockHolder:
        """A handle of another process."""
        return LockHolder(self.options, self.base_path, self.table, writer)

    def close(self) -> None:
        """Close all handles."""
        for lock in self._opened:
            lock.close()

    @property
    def node(self) -> str:
        """ZooKeeper's node of the lock."""
        return f"{self.options['zookeeper_base_path']}/{self.table}"

    def remove(self) -> None:
        """Delete what says who has the lock, as a person or another program may."""
        if self.kind == FILE_SYSTEM:
            assert self.storage.delete(".hoodie/lock")
        elif self.kind == STORAGE:
            self.storage.delete(LOCK_FILE)
        elif self.kind == DYNAMODB:
            boto3.client("dynamodb").delete_item(TableName=LOCK_TABLE, Key={"key": {"S": self.table}})
        else:
            with zookeeper_client(self.options["zookeeper_url"]) as client:
                client.delete(self.node, recursive=True)

    def take_by_force(self) -> None:
        """Put another writer's lock there, whoever has it."""
        if self.kind == FILE_SYSTEM:
            self.storage.replace(".hoodie/lock", b"")  # as Hudi's: without content
        elif self.kind == STORAGE:
            until = time.time_ns() // 1_000_000 + 3_600_000
            made = {"expired": False, "validUntil": until, "owner": "somebody"}
            self.storage.replace(LOCK_FILE, json.dumps(made, separators=(",", ":")).encode())
        elif self.kind == DYNAMODB:
            item = {"key": self.table, "ownerName": "somebody", "leaseDuration": "3600000", "recordVersionNumber": "x"}
            made = {name: {"S": value} for name, value in item.items()}
            boto3.client("dynamodb").put_item(TableName=LOCK_TABLE, Item=made)
        else:
            raise NotImplementedError("ZooKeeper's sessions end: see zookeeper_client")

    def content(self) -> object:
        """What says who has the lock."""
        if self.kind == FILE_SYSTEM:
            return self.storage.read(".hoodie/lock")
        if self.kind == STORAGE:
            return self.storage.read(LOCK_FILE)
        return boto3.client("dynamodb").get_item(TableName=LOCK_TABLE, Key={"key": {"S": self.table}})["Item"]


@contextmanager
def zookeeper_client(hosts: str, client_id: tuple[int, bytes] | None = None) -> Iterator[Any]:
    """A client of the test's own. With the id of another client it takes over that session, and ends it with the block."""
    from kazoo.client import KazooClient

    client = KazooClient(hosts, client_id=client_id)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


@contextmanager
def server(kind: str, folder: Path) -> Iterator[dict[str, Any]]:
    """What a place of this kind needs, running; gives options of all locks there."""
    if kind == ZOOKEEPER:
        with ZookeeperServer(folder) as running:
            yield {
                "provider": "ZookeeperBasedLockProvider",
                "zookeeper_url": running.hosts,
                "zookeeper_base_path": "/hudi/locks",
                "zookeeper_session_timeout_ms": SESSION_MS,
            }
    elif kind == STORAGE:
        with aws_server() as settings, environment(settings):
            boto3.client("s3").create_bucket(Bucket=BUCKET)
            yield {"provider": "StorageBasedLockProvider", "storage_validity_s": VALIDITY_S, "storage_renew_s": 6}
    elif kind == DYNAMODB:
        with aws_server() as settings, environment(settings):
            yield {
                "provider": "DynamoDBBasedLockProvider",
                "dynamodb_table": LOCK_TABLE,
                "wait_time_ms": LEASE_MS,
                "dynamodb_endpoint_url": settings["AWS_ENDPOINT_URL"],
            }
    else:
        names = {FILE_SYSTEM: "FileSystemBasedLockProvider", IN_PROCESS: "InProcessLockProvider"}
        yield {"provider": names[kind]}


def base_path(kind: str, folder: Path) -> str:
    """The base path of a new table."""
    if kind == STORAGE:
        return f"s3a://{BUCKET}/t{next(_numbers)}"
    return str(folder)
