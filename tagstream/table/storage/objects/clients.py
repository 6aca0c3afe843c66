"""The clients of a process: one for each bucket and its options, made when first used, never sent to another process.

A process that has made a request and then forks leaves a child in which every request hangs (obstore 0.12.1): the threads
that carry them are not there. So nothing is asked by a process that forks (``streaming/job/python_daemon.py``), and a child
that would hang is told so at once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from tagstream.table.errors import ConfigError, StoreError
from tagstream.table.storage.objects.config import Options, profile_of, secrets_of
from tagstream.table.storage.objects.place import AZURE, GCS, Place
from tagstream.table.storage.objects.profiles import profile_keys

# A store that answers 503, breaks connections or stands still is waited for; longer than one request may take. A driver that
# has waited longer than its lease lasts finds that out by its next look at it.
RETRY_S = 60
_BACKOFF = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=4), "base": 2}
_CLIENT = {"timeout": "30s", "connect_timeout": "5s"}


@dataclass(frozen=True)
class Clients:
    """Two of one bucket. ``once`` sends each request one time: of a conditional put it must be known how often it went."""

    store: ObjectStore
    once: ObjectStore


_made: dict[tuple[Place, Options], Clients] = {}
_of_parents: list[dict[tuple[Place, Options], Clients]] = []
_lock = threading.Lock()
_used = False
_is_fork_of_user = False


def clients(place: Place, options: Options, settings: Callable[[], Mapping[str, str]]) -> Clients:
    """The clients of a bucket in this process. ``settings``: Hadoop's, as this process was given them."""
    global _used
    found = _made.get((place, options))
    if found is not None:
        return found
    if _is_fork_of_user:
        raise StoreError(
            0, "this process was forked by one that had used the store, and would hang: start it by spawn", place.url
        )
    with _lock:
        found = _made.get((place, options))
        if found is None:
            found = _made[place, options] = _make(place, options, settings(), os.environ)
            _used = True
    return found


def _make(place: Place, options: Options, settings: Mapping[str, str], env: Mapping[str, str]) -> Clients:
    kind: Any = {GCS: GCSStore, AZURE: AzureStore}.get(place.scheme, S3Store)
    config: dict[str, Any] = dict(options)
    profile = profile_of(place, settings, env)
    config |= secrets_of(place, settings) if profile is None else profile_keys(profile, env)
    client = dict(_CLIENT)
    if any(config.get(name, "").startswith("http://") for name in ("endpoint", "base_url")):
        client["allow_http"] = "true"

    def made(retries: int) -> ObjectStore:
        retry = {"max_retries": retries, "retry_timeout": timedelta(seconds=RETRY_S), "backoff": _BACKOFF}
        store: ObjectStore = kind(place.bucket, config=config, client_options=client, retry_config=retry)
        return store

    try:
        return Clients(made(10), made(0))
    except BaseException as e:  # a setting that the client can't take ends in Rust's own panic, which is no Exception
        if isinstance(e, KeyboardInterrupt | SystemExit):
            raise
        raise ConfigError(f"{place.url}: the store's settings can't be used: {type(e).__name__}: {e}") from None


def _in_child() -> None:
    """Let go of nothing: a client may wait for threads that are not there. The child may be about to run a program only."""
    global _lock, _made, _is_fork_of_user
    _lock = threading.Lock()
    _is_fork_of_user = _is_fork_of_user or _used
    _of_parents.append(_made)
    _made = {}


os.register_at_fork(after_in_child=_in_child)
