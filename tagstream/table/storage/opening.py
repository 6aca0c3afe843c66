"""The storage of a URL, by its scheme; and whether files could be written there.

What reads the job's options opens the storage. All other code gets a storage as an argument.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePosixPath
from urllib.parse import quote, unquote, urlsplit

from tagstream.table.errors import ConfigError
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.storage.settings import HDFS_SCHEME, SCHEMES, kept_settings, parse_hdfs_url, parse_object_url
from tagstream.table.storage.storage import Storage


def open_storage(url: str) -> Storage:
    """A storage for a path or a URL; a scheme that is not supported raises ConfigError by its name."""
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
    """A path or URL as it is known however it was spelled: an absolute path, or a URL as :attr:`Storage.root` has it.

    Nothing is opened; a scheme that is not supported stays as it is.
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
    """What :meth:`Storage.where` tells as a URI, in which Spark and Hadoop quote what is no plain character."""
    scheme, sign, rest = where.partition("://")
    return scheme + sign + quote(rest, safe="/@:") if sign else PurePosixPath(where).as_uri()


def path_of(text: str) -> str:
    """What :meth:`Storage.where` tells of a file that Spark names by a URI."""
    scheme, sign, rest = text.partition("://")
    return f"{scheme}{sign}{unquote(rest)}" if sign and scheme != "file" else unquote(urlsplit(text).path)


def unsynced(storage: Storage) -> Storage:
    """The same files for what need not outlive the machine: no disk is waited for where there is one."""
    return replace(storage, sync=False) if isinstance(storage, PosixStorage) else storage


def private(storage: Storage) -> Storage:
    """The same files, and those written from now on for their owner alone, where the store has owners."""
    return replace(storage, mode=0o600) if isinstance(storage, PosixStorage) else storage


def same_place(one: str, other: str) -> bool:
    """Whether two URLs are of one folder, by links and second mounts, too."""
    first, second = open_storage(one), open_storage(other)
    if isinstance(first, PosixStorage) and isinstance(second, PosixStorage) and first != second:
        try:
            return os.path.samefile(first.root, second.root)
        except OSError:  # one of them is not there
            return False
    return first.root == second.root


def _posix(url: str) -> Storage:
    return PosixStorage(canonical(url))


def _object_store(url: str) -> Storage:
    try:
        from tagstream.table.storage.object_store import ObjectStorage
    except ImportError as e:
        raise _without(url, "s3", "obstore", e) from None
    return ObjectStorage.of_url(url, kept_settings(), os.environ)


def _hdfs(url: str) -> Storage:
    try:
        from tagstream.table.storage.hdfs_store import HdfsStorage
    except ImportError as e:
        raise _without(url, "hdfs", "hdfs-native", e) from None
    return HdfsStorage.of_url(url, kept_settings())


def _without(url: str, extra: str, package: str, error: ImportError) -> ConfigError:
    return ConfigError(
        f"{url}: the package {package} is missing ({error}); install it with pip install 'tagstream[{extra}]' (in a "
        f"checkout: pip install '.[{extra}]'), on every host that runs Spark's workers"
    )


# What opens a URL of a scheme.
OPENERS: dict[str, Callable[[str], Storage]] = {
    "file": _posix,
    HDFS_SCHEME: _hdfs,
    **dict.fromkeys(SCHEMES, _object_store),
}


def is_ours(root: str) -> bool:
    """Whether a folder is on a store that this program reads itself."""
    scheme = urlsplit(root).scheme if "://" in root or root.startswith("file:") else "file"
    return scheme in OPENERS


def why_not_writable(storage: Storage) -> str | None:
    """Why no file can be written there; None when nothing speaks against it, or when the kind of store can't tell before.

    A folder that is not there yet would be made in the nearest one above that is.
    """
    if not isinstance(storage, PosixStorage):
        return None
    place = storage.root
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    if not os.path.isdir(place):
        return f"{place} is a file, or a link that leads nowhere"
    if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        return f"user {os.geteuid()} may not read and write in {place}, or its file system is read-only"
    return None
