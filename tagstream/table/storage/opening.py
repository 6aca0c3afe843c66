"""Open the storage of a URL by its scheme, and check whether files can be written there.

The code that reads the job's options opens storages. All other code gets a storage as an argument.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePosixPath
from urllib.parse import quote, unquote, urlsplit

from tagstream.table.errors import WORKERS, ConfigError, missing_package
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.storage.settings import HDFS_SCHEME, SCHEMES, kept_settings, parse_hdfs_url, parse_object_url
from tagstream.table.storage.storage import Storage


def open_storage(url: str) -> Storage:
    """A storage for a path or URL; ConfigError names a scheme that is not supported."""
    if not url:
        raise ConfigError("the table's base path is empty: give a folder, for example /data/tables/orders")
    scheme = urlsplit(url).scheme if "://" in url or url.startswith("file:") else "file"
    opener = OPENERS.get(scheme)
    if opener is None:
        raise ConfigError(
            f"{url}: the file system {scheme}:// is not supported; use a local or mounted (POSIX) path, or one of "
            f"{', '.join(f'{name}://' for name in OPENERS if name != 'file')}"
        )
    return opener(url)


def canonical(place: str) -> str:
    """The one spelling of a path or URL: an absolute path, or a URL as :attr:`Storage.root` has it.

    Nothing is opened. A URL of an unsupported scheme is returned unchanged.
    """
    if place.startswith(f"{HDFS_SCHEME}://"):
        return "".join(parse_hdfs_url(place))
    if place.partition("://")[0] in SCHEMES and "://" in place:
        found, key = parse_object_url(place)
        return f"{found.url}/{key}" if key else found.url
    if "://" in place and not place.startswith("file:"):
        return place
    return os.path.abspath(unquote(urlsplit(place).path) if place.startswith("file:") else place)


def uri(where: str) -> str:
    """The URI of a path or URL of :meth:`Storage.where`, with special characters quoted as Spark and Hadoop do."""
    scheme, sign, rest = where.partition("://")
    return scheme + sign + quote(rest, safe="/@:") if sign else PurePosixPath(where).as_uri()


def path_of(text: str) -> str:
    """The path or URL of :meth:`Storage.where` for a URI of Spark: the inverse of :func:`uri`."""
    scheme, sign, rest = text.partition("://")
    return f"{scheme}{sign}{unquote(rest)}" if sign and scheme != "file" else unquote(urlsplit(text).path)


def unsynced(storage: Storage) -> Storage:
    """The same storage without waiting for the disk, for files that need not survive a crash of the machine."""
    return replace(storage, sync=False) if isinstance(storage, PosixStorage) else storage


def private(storage: Storage) -> Storage:
    """The same storage, whose new files only their owner can read, where the store has owners."""
    return replace(storage, mode=0o600) if isinstance(storage, PosixStorage) else storage


def same_place(one: str, other: str) -> bool:
    """Whether two URLs name the same folder, also through links and second mounts."""
    first, second = open_storage(one), open_storage(other)
    if isinstance(first, PosixStorage) and isinstance(second, PosixStorage) and first != second:
        try:
            return os.path.samefile(first.root, second.root)
        except OSError:  # one of them does not exist
            return False
    return first.root == second.root


def _posix(url: str) -> Storage:
    return PosixStorage(canonical(url))


def _object_store(url: str) -> Storage:
    try:
        from tagstream.table.storage.object_store import ObjectStorage
    except ImportError as e:
        raise missing_package(url, "obstore", e, "s3", WORKERS) from None
    return ObjectStorage.of_url(url, kept_settings(), os.environ)


def _hdfs(url: str) -> Storage:
    try:
        from tagstream.table.storage.hdfs_store import HdfsStorage
    except ImportError as e:
        raise missing_package(url, "hdfs-native", e, "hdfs", WORKERS) from None
    return HdfsStorage.of_url(url, kept_settings())


# The function that opens a URL, by scheme.
OPENERS: dict[str, Callable[[str], Storage]] = {
    "file": _posix,
    HDFS_SCHEME: _hdfs,
    **dict.fromkeys(SCHEMES, _object_store),
}


def is_supported(root: str) -> bool:
    """Whether this program has a storage for the scheme of a folder."""
    scheme = urlsplit(root).scheme if "://" in root or root.startswith("file:") else "file"
    return scheme in OPENERS


def why_not_writable(storage: Storage) -> str | None:
    """The reason why files cannot be written there; None when there is none, or when the store cannot say it in advance.

    For a folder that does not exist the nearest existing parent is checked.
    """
    if not isinstance(storage, PosixStorage):
        return None
    place = storage.root
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    if not os.path.isdir(place):
        return f"{place} is a file, or a link to a missing folder"
    if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        return f"user {os.geteuid()} cannot read and write in {place}, or its file system is read-only"
    return None
