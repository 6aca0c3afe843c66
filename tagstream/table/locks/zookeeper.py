"""Hudi's ZookeeperBasedLockProvider by kazoo, the only user of that package: the mutex of Curator's InterProcessMutex.

Each contender has an ephemeral sequential node below the lock's node. The lowest number has the lock. ZooKeeper removes the
node when the contender's session ends, which is at the latest the session timeout after its last sign of life.
"""

from __future__ import annotations

import posixpath
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, InvalidACLError, KazooException, LockTimeout, NoAuthError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.recipe.lock import Lock
from kazoo.retry import KazooRetry

from tagstream.table.errors import ConfigError, LockError
from tagstream.table.locks.lock import LOG, Surroundings


class CuratorLock(Lock):  # type: ignore[misc, unused-ignore]
    """kazoo's mutex with the names of Curator's nodes.

    Curator sorts by what follows the last ``lock-``. With the names of kazoo's own class both sides get the lock at once.
    """

    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES: ClassVar[list[str]] = ["-lock-"]


@dataclass(frozen=True, kw_only=True)
class ZookeeperSettings:
    """``hosts``: the connect string. Times in seconds. ``retries``: attempts to connect again, with doubled waits."""

    hosts: str
    path: str
    session_timeout_s: float
    connection_timeout_s: float
    retries: int
    retry_wait_s: float
    max_retry_wait_s: float


class ZookeeperLock:
    """See Lock. The connection is made at the first try."""

    def __init__(self, settings: ZookeeperSettings, surroundings: Surroundings) -> None:
        self.place = f"ZooKeeper {settings.hosts} {settings.path}"
        self._settings = settings
        self._here = surroundings
        self._client: KazooClient | None = None
        self._node: str | None = None
        self._session = 0

    def try_acquire(self, wait_s: float) -> bool:
        """See Lock."""
        client = self._connected()
        try:
            lock = CuratorLock(client, self._settings.path, self._here.writer)
            try:
                got = lock.acquire(timeout=max(0.0, wait_s))
            except LockTimeout:
                got = False
            if got:
                self._node, self._session = f"{self._settings.path}/{lock.node}", client.client_id[0]
                return True
            # A node that stays behind would keep all others waiting for as long as this session lives.
            if lock.node and self._ask(client.exists_async(f"{self._settings.path}/{lock.node}")) is not None:
                self._drop()
        except (KazooException, KazooTimeoutError, OSError) as e:
            self._drop()
            raise self._refused(e) from e
        return False

    def is_held(self) -> bool:
        """See Lock. A follower answers as of its last update, so ``sync`` comes first."""
        client, node = self._client, self._node
        if client is None or node is None:
            return False
        try:
            self._ask(client.sync_async(node))
            found = self._ask(client.exists_async(node))
        except (KazooException, KazooTimeoutError, OSError):
            return False
        return found is not None and found.ephemeralOwner == self._session == _session_of(client)

    def holder(self) -> str:
        """See Lock."""
        client, path = self._client, self._settings.path
        if client is None or not client.connected:
            return "a writer that is not known without a connection to ZooKeeper"
        try:
            children = self._ask(client.get_children_async(path))
            first = min((c for c in children if "-lock-" in c), key=lambda c: c.rpartition("-lock-")[2], default=None)
            if first is None:
                return "nobody"
            data, stat = self._ask(client.get_async(f"{path}/{first}"))
        except NoNodeError:
            return "nobody"
        except (KazooException, KazooTimeoutError, OSError) as e:
            return f"a writer that is not known ({type(e).__name__})"
        name = (data or b"").decode("utf-8", "replace") or "a writer that left no name"
        return f"{name}, session {stat.ephemeralOwner:#x}, for {max(0, self._here.wall_ms() - stat.ctime) // 1000} s"

    def release(self) -> None:
        """See Lock. When the node cannot be deleted the session is ended, which deletes it."""
        client, node = self._client, self._node
        self._node = None
        if client is None or node is None:
            return
        try:
            self._ask(client.delete_async(node))
        except NoNodeError:
            return
        except (KazooException, KazooTimeoutError, OSError) as e:
            LOG.warning(
                "the lock at %s was not given back (%s); it ends with its session", self.place, type(e).__name__
            )
            self._drop()

    def close(self) -> None:
        """See Lock."""
        self.release()
        self._drop()

    def _connected(self) -> KazooClient:
        """A client with a living session: a call on another one would wait for the connection without a limit."""
        if self._client is not None and self._client.connected:
            return self._client
        self._drop()
        settings = self._settings
        retry = KazooRetry(
            max_tries=settings.retries,
            delay=settings.retry_wait_s,
            backoff=2,
            max_delay=max(settings.retry_wait_s, settings.max_retry_wait_s),
        )
        try:
            client = KazooClient(settings.hosts, timeout=settings.session_timeout_s, connection_retry=retry)
        except ValueError as e:
            raise ConfigError(
                f"hoodie.write.lock.zookeeper.url = {settings.hosts}: {e}; it must be host:port, or several of them "
                "separated by commas"
            ) from e
        self._client = client
        try:
            client.start(timeout=settings.connection_timeout_s)
        except (KazooException, KazooTimeoutError, OSError) as e:
            self._drop()
            raise self._refused(e) from e
        return client

    def _drop(self) -> None:
        """End the session and its threads. Nothing is held afterwards."""
        client, self._client, self._node = self._client, None, None
        if client is not None:
            # A connection that breaks at this moment raises errors of many classes.
            with suppress(Exception):
                client.stop()
            with suppress(Exception):
                client.close()

    def _ask(self, call: Any) -> Any:
        """The answer of an asynchronous call; KazooTimeoutError after the connection timeout."""
        return call.get(timeout=self._settings.connection_timeout_s)

    def _refused(self, error: Exception) -> LockError:
        if isinstance(error, NoAuthError | AuthFailedError | InvalidACLError):
            where = posixpath.dirname(self._settings.path)
            return LockError(
                f"the lock at {self.place} is refused ({type(error).__name__}): let this user create and delete nodes below "
                f"{where}, or set hoodie.write.lock.zookeeper.base_path",
                may_pass=False,
            )
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return LockError(
            f"the lock at {self.place} cannot be taken ({reason}): check that ZooKeeper runs, and "
            "hoodie.write.lock.zookeeper.url"
        )


def _session_of(client: KazooClient) -> int:
    found: int = client.client_id[0] if client.client_id else 0
    return found
