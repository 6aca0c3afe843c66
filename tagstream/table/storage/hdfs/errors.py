"""What hdfs-native raises, as errors that the rest of the program knows: translated here and nowhere else."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from tagstream.table.errors import InvalidPartitionPathError, StoreError

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
