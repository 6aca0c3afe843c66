"""Clients of object stores: made once for each process. Errors are translated, conditional puts are repeated.

A process makes one client for each bucket and its options at the first use. Clients are not sent to other processes. A
process that has made a request and then forks has a child in which every request hangs (obstore 0.12.1): the
threads for requests do not exist there. So a process that forks makes no request
(``streaming/job/python_daemon.py``), and in such a child the first use raises an error.

Errors of obstore become the errors that :class:`Storage` promises.

A conditional put may be executed without an answer. The client sends such a request only once, because it would take
its own object for another writer's. Here it is repeated until an answer comes. Only the answer to the first request
certainly is about other writers.
"""

from __future__ import annotations

import errno
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from tagstream.table.errors import ConfigError, InvalidPartitionPathError, StoreError
from tagstream.table.storage.settings import AZURE, GCS, Options, Place, profile_keys, profile_of, secrets_of

# Seconds of retries on a store that answers 503, breaks connections or hangs: more than the timeout of one request. A
# driver whose lease expires during retries notices it at its next check of the lease.
RETRY_S = 60
_BACKOFF = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=4), "base": 2}
_CLIENT = {"timeout": "30s", "connect_timeout": "5s"}


@dataclass(frozen=True)
class Clients:
    """Two clients of a bucket. ``once`` sends each request one time: for conditional puts, whose repeats are counted."""

    store: ObjectStore
    once: ObjectStore


_made: dict[tuple[Place, Options], Clients] = {}
_of_parents: list[dict[tuple[Place, Options], Clients]] = []
_lock = threading.Lock()
_used = False
_is_fork_of_user = False


def clients(place: Place, options: Options, settings: Callable[[], Mapping[str, str]]) -> Clients:
    """The clients of a bucket in this process. ``settings``: Hadoop's settings of this process.

    Raises StoreError in a child that was forked after its parent used a client; ConfigError for settings that a client
    cannot use.
    """
    global _used
    found = _made.get((place, options))
    if found is not None:
        return found
    if _is_fork_of_user:
        raise StoreError(
            0,
            "this process was forked from one that had used the store, so requests would hang: start it by spawn",
            place.url,
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
    except BaseException as e:  # a setting that the client cannot use ends in Rust's panic, which is not an Exception
        if isinstance(e, KeyboardInterrupt | SystemExit):
            raise
        raise ConfigError(f"{place.url}: the store's settings cannot be used: {type(e).__name__}: {e}") from None


def _in_child() -> None:
    """Keep the parent's clients unused: freeing one may hang. The child may only be about to execute a program."""
    global _lock, _made, _is_fork_of_user
    _lock = threading.Lock()
    _is_fork_of_user = _is_fork_of_user or _used
    _of_parents.append(_made)
    _made = {}


os.register_at_fork(after_in_child=_in_child)


# Status codes of a wrong request, which always gets the same answer. Other errors may pass.
_FINAL = re.compile(r"status code: 4(?!08|09|25|29)\d\d|status: 4(?!08|09|25|29)\d\d", re.IGNORECASE)
_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|The specified bucket does not exist", re.IGNORECASE)
_RANGE = re.compile(r"\b416\b|InvalidRange|RangeNotSatisfiable|larger than file size|requested range", re.IGNORECASE)
_ADVICE = (
    (
        re.compile(r"ExpiredToken|TokenRefreshRequired|RequestTimeTooSkewed|token.*expired", re.IGNORECASE),
        "the credentials have expired, or this machine's clock is wrong: correct that and start again; nothing is lost",
    ),
    (
        re.compile(r"169\.254\.169\.254|metadata|InvalidAccessKeyId|SignatureDoesNotMatch|credential", re.IGNORECASE),
        "no usable credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or the store's own variables), a profile, "
        "a role of the machine, or spark.hadoop.fs.* keys",
    ),
    (
        re.compile(r"dns error|Connection refused|tcp connect|timed out|TimedOut|connect", re.IGNORECASE),
        "the store does not answer: check endpoint, network and proxy; the next start resumes where this run ended",
    ),
    (
        re.compile(r"\b50[0234]\b|SlowDown|InternalError", re.IGNORECASE),
        "the store is overloaded or broken; the next start resumes where this run ended",
    ),
)


@contextmanager
def translated_errors(where: str) -> Iterator[None]:
    """Translate errors of the client about the file ``where`` into the errors that :class:`Storage` promises."""
    try:
        yield
    except FileNotFoundError as e:
        if _BUCKET.search(str(e)):
            raise StoreError(errno.ENOENT, _NO_BUCKET, where) from e
        raise missing(where) from None
    except AlreadyExistsError:
        raise taken(where) from None
    except (InvalidPathError, ValueError) as e:
        if not isinstance(e, InvalidPathError) and "parse path" not in str(e):
            raise
        raise InvalidPartitionPathError(f"{where!r} is not a name that object stores allow: {_short(e)}") from None
    except (PermissionDeniedError, UnauthenticatedError) as e:
        text = f"the store refused the request ({_short(e)}); {_advice(e, _MAY_NOT)}"
        raise StoreError(errno.EACCES, text, where) from e
    except BaseError as e:
        raise StoreError(errno.EIO, f"{_short(e)}; {_advice(e, _UNKNOWN)}", where) from e


_NO_BUCKET = "the bucket (container) does not exist: create it, or correct the URL"
_MAY_NOT = (
    "the credentials do not allow it: give them the permissions that docs/operations/storage.md lists, or use others"
)
_UNKNOWN = "no more is known than this error: look into the store's logs"


def missing(where: str) -> FileNotFoundError:
    """The error for an object that does not exist."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), where)


def taken(where: str) -> FileExistsError:
    """The error for an object that exists already."""
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), where)


def may_pass(error: BaseError) -> bool:
    """Whether the same request may succeed later, or may have succeeded without an answer."""
    text = str(error)
    final = isinstance(error, PermissionDeniedError | UnauthenticatedError | InvalidPathError)
    return not final and _FINAL.search(text) is None


def is_out_of_range(error: BaseError) -> bool:
    """Whether the error says that a range begins after the end of the object."""
    return _RANGE.search(str(error)) is not None


def _advice(error: BaseError, otherwise: str) -> str:
    text = str(error)
    return next((advice for pattern, advice in _ADVICE if pattern.search(text)), otherwise)


def _short(error: Exception) -> str:
    """The first line and the store's error code, without the query of a URL: a signed query is a key."""
    text = re.sub(r"(https?://[^\s?]*)\?[^\s\"')]*", r"\1", str(error))
    line = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    code = re.search(r"<Code>(\w+)</Code>", text)
    return line.partition(": <")[0][:500] + (f" ({code[1]})" if code else "")


def put_once(send: Callable[[], str], is_own: Callable[[], str | None]) -> str | None:
    """Repeat a conditional put until it is answered. Returns the object's version; None when another writer's object exists.

    ``send`` sends the put and returns the version. ``is_own`` reads the object and returns its version when its content
    is what is being put, else None. An error that does not pass is raised.
    """
    unknown = False
    waits = _waits()
    while True:
        try:
            return send()
        except (AlreadyExistsError, PreconditionError):
            return is_own() if unknown else None
        except BaseError as error:
            if not may_pass(error):
                raise
            unknown = True
            wait = next(waits, None)
            if wait is None:
                found = is_own()
                if found is None:
                    raise
                return found
        time.sleep(wait)


def _waits() -> Iterator[float]:
    """Seconds between the attempts, with the client's backoff: doubled up to 4 s, for :data:`RETRY_S` in total."""
    began, wait = time.monotonic(), 0.1
    while time.monotonic() - began < RETRY_S:
        yield wait
        wait = min(2 * wait, 4.0)
