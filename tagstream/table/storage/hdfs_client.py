"""Clients of HDFS: one for each cluster and process. Their errors are translated here.

A client is made at its first use. A forked child makes its own clients. Errors of hdfs-native become the errors that
:class:`Storage` promises.
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
# The NameNode runs but cannot serve yet: after a start, before it is active, before DataNodes have reported.
_PASSES = re.compile(
    r"SafeModeException|StandbyException|RetriableException|NotReplicatedYetException|could only be (?:written|replicated)|"
    r"Connection re|Broken pipe|Failed to complete file|timed out|early eof|No available|DataTransferError|refused|"
    + NOT_COMPLETE
)
_NO_NAME = re.compile(r"InvalidPathException|PathComponentTooLong|FSLimitException")
_NOT_ALLOWED = re.compile(r"AccessControlException|AuthorizationException")
_FULL = re.compile(r"DSQuotaExceeded|NSQuotaExceeded|QuotaExceeded")


@contextmanager
def translated_errors(where: str) -> Iterator[None]:
    """Translate errors of the client about the file ``where`` into the errors that :class:`Storage` promises."""
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
        if type(e).__name__ != "PanicException":  # Rust's panic, which is not an Exception
            raise
        raise StoreError(errno.EIO, f"the HDFS client failed: {e}; {_UNKNOWN}", where) from None


_UNKNOWN = "no more is known than this error: look into the logs of NameNode and DataNodes"


def is_no_folder(error: Exception) -> bool:
    """Whether the error says that a part of the path is a file."""
    return "is not a directory" in str(error)


def may_pass(error: BaseException) -> bool:
    """Whether the same call may succeed later."""
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
        return InvalidPartitionPathError(f"{where!r} is not a name that HDFS allows: {short}")
    if is_no_folder(error):
        return StoreError(errno.ENOTDIR, f"{short}; a part of that path is a file; correct the path", where)
    if _NOT_ALLOWED.search(text):
        advice = "let the user (HADOOP_USER_NAME, or the Kerberos ticket's) write there, or run the job as its owner"
        return StoreError(errno.EACCES, f"{short}; {advice}", where)
    if _FULL.search(text):
        return StoreError(errno.EDQUOT, f"{short}; raise the quota or delete files; nothing is lost", where)
    if may_pass(error):
        advice = (
            "check that NameNode and DataNodes run and have free space; the next start resumes where this run ended"
        )
        return StoreError(errno.EIO, f"{short}; {advice}", where)
    return StoreError(errno.EIO, f"{short}; {_UNKNOWN}", where)


LOG = logging.getLogger("tagstream")
R = TypeVar("R")
# Seconds of retries while a NameNode starts, or while dead DataNodes are not known to be dead.
RETRY_S = 180

_made: dict[tuple[str, Options], Client] = {}
_of_parents: list[dict[tuple[str, Options], Client]] = []
_lock = threading.Lock()


def client(url: str, options: Options) -> Client:
    """The client of a cluster in this process, made at its first use."""
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
    """Repeat an idempotent action while HDFS cannot serve it, for at most :data:`RETRY_S`; ``what`` is for the log."""
    began, wait, tries = time.monotonic(), 0.1, 1
    while True:
        try:
            return action()
        except (OSError, RuntimeError) as e:
            if not may_pass(e) or time.monotonic() - began > RETRY_S:
                raise
            LOG.warning("%s: attempt %d failed (%s); it is repeated", what, tries, str(e).split("\n", 1)[0][:200])
        time.sleep(wait)
        wait, tries = min(2 * wait, 5.0), tries + 1


def _in_child() -> None:
    """Keep the parent's clients unused: using or freeing one would hang, because its threads do not exist in the child.

    This also holds in a child that is about to execute a program, such as Spark's JVM: Python code runs before that.
    """
    global _lock, _made
    _lock = threading.Lock()
    _of_parents.append(_made)
    _made = {}


os.register_at_fork(after_in_child=_in_child)
