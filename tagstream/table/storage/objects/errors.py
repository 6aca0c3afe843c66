"""What obstore raises, as errors that the rest of the program knows: translated here and nowhere else."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from tagstream.table.errors import InvalidPartitionPathError, StoreError

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
_MAY_NOT = "the credentials may not do that: give them the permissions that docs/storage.md lists, or others"
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
