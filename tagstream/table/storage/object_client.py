"""Clients of object stores: made once a process, their errors translated, conditional puts repeated.

A process makes one client for each bucket and its options at the first use, and sends it to no other process. A
process that has made a request and then forks leaves a child in which every request hangs (obstore 0.12.1): the
threads that carry the requests do not exist there. So a process that forks makes no request
(``streaming/job/python_daemon.py``), and in a child that would hang the first use raises an error.

What obstore raises becomes an error that the rest of the program knows. It is translated only here.

A conditional put may be sent without an answer. The client itself sends such a request only once: it would take
its own object for another writer's. Here it is sent again until an answer comes. Only the answer to the first
request surely speaks of other writers.
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


# An answer that will be the same however often it is asked: the request itself is wrong. Others may go away.
_FINAL = re.compile(r"status code: 4(?!08|09|25|29)\d\d|status: 4(?!08|09|25|29)\d\d", re.IGNORECASE)
_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|The specified bucket does not exist", re.IGNORECASE)
_RANGE = re.compile(r"\b416\b|InvalidRange|RangeNotSatisfiable|larger than file size|requested range", re.IGNORECASE)
_ADVICE = (
    (
        re.compile(r"ExpiredToken|TokenRefreshRequired|RequestTimeTooSkewed|token.*expired", re.IGNORECASE),
        "the credentials have run out, or this machine's clock is wrong: give new ones and start again; nothing is lost",
    ),
    (
        re.compile(r"169\.254\.169\.254|metadata|InvalidAccessKeyId|SignatureDoesNotMatch|credential", re.IGNORECASE),
        "no usable credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or the store's own variables), a profile, "
        "a role of the machine, or spark.hadoop.fs.* keys",
    ),
    (
        re.compile(r"dns error|Connection refused|tcp connect|timed out|TimedOut|connect", re.IGNORECASE),
        "the store does not answer: check endpoint, network and proxy; a start goes on where this run ended",
    ),
    (
        re.compile(r"\b50[0234]\b|SlowDown|InternalError", re.IGNORECASE),
        "the store is overloaded or broken; a start goes on where this run ended",
    ),
)


@contextmanager
def told(where: str) -> Iterator[None]:
    """Raise what goes wrong with the file ``where`` as the errors that :class:`Storage` promises."""
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
        raise InvalidPartitionPathError(f"{where!r} is no name that an object store can hold: {_short(e)}") from None
    except (PermissionDeniedError, UnauthenticatedError) as e:
        text = f"the store refused the request ({_short(e)}); {_advice(e, _MAY_NOT)}"
        raise StoreError(errno.EACCES, text, where) from e
    except BaseError as e:
        raise StoreError(errno.EIO, f"{_short(e)}; {_advice(e, _UNKNOWN)}", where) from e


_NO_BUCKET = "the bucket (container) does not exist: make it, or correct the URL"
_MAY_NOT = "the credentials may not do that: give them the permissions that docs/operations/storage.md lists, or others"
_UNKNOWN = "what the store says of it is all that is known"


def missing(where: str) -> FileNotFoundError:
    """There is no such object."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), where)


def taken(where: str) -> FileExistsError:
    """There is such an object already."""
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), where)


def may_pass(error: BaseError) -> bool:
    """Whether the same request may succeed later, or may even have been carried out."""
    text = str(error)
    final = isinstance(error, PermissionDeniedError | UnauthenticatedError | InvalidPathError)
    return not final and _FINAL.search(text) is None


def is_out_of_range(error: BaseError) -> bool:
    """Whether a range was asked for that begins behind the end of the object."""
    return _RANGE.search(str(error)) is not None


def _advice(error: BaseError, otherwise: str) -> str:
    text = str(error)
    return next((advice for pattern, advice in _ADVICE if pattern.search(text)), otherwise)


def _short(error: Exception) -> str:
    """The first line and the store's own code, without the query of a URL: a signed one is a key."""
    text = re.sub(r"(https?://[^\s?]*)\?[^\s\"')]*", r"\1", str(error))
    line = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    code = re.search(r"<Code>(\w+)</Code>", text)
    return line.partition(": <")[0][:500] + (f" ({code[1]})" if code else "")


def put_once(send: Callable[[], str], is_own: Callable[[], str | None]) -> str | None:
    """Send a conditional put until it is answered; the object's version, or None when another's was there before.

    ``is_own`` looks at what is there: its version when it is what is being put. An error that stays is raised.
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
    """Seconds between the attempts, as the client's own: doubling, up to a sum."""
    began, wait = time.monotonic(), 0.1
    while time.monotonic() - began < RETRY_S:
        yield wait
        wait = min(2 * wait, 4.0)
