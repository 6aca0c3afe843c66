"""Clients of HDFS: one for each cluster in a process, with their errors translated.

A client is made when it is first used. A child that was forked makes its own. What hdfs-native raises becomes an
error that the rest of the program knows. It is translated only here.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from hdfs_native import Client

from tagstream.table.errors import InvalidPartitionPathError, StoreError
from tagstream.table.storage.settings import Options

_RPC = re.compile(r'RPCError\("(?P<kind>[\w.$]+)", "(?P<text>(?:[^"\\]|\\.)*)')
NOT_COMPLETE = "the last block is not complete yet"
# The NameNode is there and can't do it now: after a start, while it becomes the active one, before DataNodes have reported.
_PASSES = re.compile(
    r"SafeModeException|StandbyException|RetriableException|NotReplicatedYetException|could only be (?:written|replicated)|"
    r"Connection re|Broken pipe|Failed to complete file|timed out|early eof|No available|DataTransferError|refused|"
    + NOT_COMPLETE
)
_NO_NAME = re.compile(r"InvalidPathException|PathComponentTooLong|FSLimitException")
_NOT_ALLOWED = re.compile(r"AccessControlException|AuthorizationException")
_FULL = re.compile(r"DSQuotaExceeded|NSQuotaExceeded|QuotaExceeded")


@contextmanager
def told(where: str) -> Iterator[None]:
    """Raise what goes wrong with the file ``where`` as the errors that :class:`Storage` promises."""
    try:
        yield
    except StoreError:
        raise
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), where) from None
    except FileExistsError:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), where) from None
    except (OSError, RuntimeError, ValueError) as e:
        raise _translated(e, where) from e
    except BaseException as e:
        if type(e).__name__ != "PanicException":  # Rust's own, which is no Exception
            raise
        raise StoreError(errno.EIO, f"the client of HDFS gave up: {e}; {_UNKNOWN}", where) from None


_UNKNOWN = "what HDFS says of it is all that is known"


def is_no_folder(error: Exception) -> bool:
    """Whether a part of the path is a file."""
    return "is not a directory" in str(error)


def may_pass(error: BaseException) -> bool:
    """Whether the same may succeed later."""
    if isinstance(error, FileNotFoundError | FileExistsError):
        return False
    return _PASSES.search(str(error)) is not None


def _translated(error: Exception, where: str) -> Exception:
    text = str(error)
    found = _RPC.search(text)
    short = text.splitlines()[0][:300] if text else type(error).__name__
    if found is not None:
        short = f"{found['kind'].rpartition('.')[2]}: {found['text'].split(chr(92) + 'n', 1)[0]}"
    if _NO_NAME.search(text):
        return InvalidPartitionPathError(f"{where!r} is no name that HDFS takes: {short}")
    if is_no_folder(error):
        return StoreError(errno.ENOTDIR, f"{short}; a part of that path is a file; correct the path", where)
    if _NOT_ALLOWED.search(text):
        advice = "let the user (HADOOP_USER_NAME, or the Kerberos ticket's) write there, or run the job as its owner"
        return StoreError(errno.EACCES, f"{short}; {advice}", where)
    if _FULL.search(text):
        return StoreError(errno.EDQUOT, f"{short}; raise the quota or make room; nothing is lost", where)
    if may_pass(error):
        advice = "check that NameNode and DataNodes run and have room; a start goes on where this run ended"
        return StoreError(errno.EIO, f"{short}; {advice}", where)
    return StoreError(errno.EIO, f"{short}; {_UNKNOWN}", where)


LOG = logging.getLogger("tagstream")
R = TypeVar("R")
# A NameNode that starts, or DataNodes that died and are not known as dead yet, are waited for.
RETRY_S = 180

_made: dict[tuple[str, Options], Client] = {}
_of_parents: list[dict[tuple[str, Options], Client]] = []
_lock = threading.Lock()


def client(url: str, options: Options) -> Client:
    """The client of a cluster in this process."""
    found = _made.get((url, options))
    if found is None:
        with _lock:
            found = _made.setdefault((url, options), _make(url, options))
    return found


def _make(url: str, options: Options) -> Client:
    config = dict(options)
    named = url != "hdfs://"
    return Client(url if named else None, config or None)


def until_done(action: Callable[[], R], what: str) -> R:
    """Do something again while HDFS says that it can't now. What it does must be fine to be done twice."""
    began, wait, tries = time.monotonic(), 0.1, 1
    while True:
        try:
            return action()
        except (OSError, RuntimeError) as e:
            if not may_pass(e) or time.monotonic() - began > RETRY_S:
                raise
            LOG.warning("%s: try %d failed (%s); it is tried again", what, tries, str(e).split("\n", 1)[0][:200])
        time.sleep(wait)
        wait, tries = min(2 * wait, 5.0), tries + 1


def _in_child() -> None:
    """A client of the parent would hang here, if it were used and even if it were let go: it waits for its threads.

    Also in a child that is about to run a program: Spark's JVM is started by one with code of its own before that.
    """
    global _lock, _made
    _lock = threading.Lock()
    _of_parents.append(_made)
    _made = {}


os.register_at_fork(after_in_child=_in_child)
