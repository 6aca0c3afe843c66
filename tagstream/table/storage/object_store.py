"""Files on an object store: S3, Google Cloud Storage, Azure Data Lake. Needs the extra ``s3``.

A folder exists while an object is below it. A conditional put creates a name exclusively. A copy inside the store
publishes a staged file. A register is one object that is swapped by its ETag. An object is never visible in part.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from tagstream.table.errors import InvalidPartitionPathError, StaleVersionError
from tagstream.table.storage.common import joined
from tagstream.table.storage.object_bucket import AT_ONCE, Bucket, Found
from tagstream.table.storage.settings import object_options, parse_object_url
from tagstream.table.storage.storage import FileEntry, Register, each

# Names of empty files that this writer and Hudi create. Another empty object may be a folder of Hadoop's S3A, which a
# request by its name does not find.
_EMPTY = (".requested", ".inflight", ".CREATE", ".MERGE", ".APPEND", ".done")


@dataclass(frozen=True)
class ObjectStorage:
    """The objects of a bucket whose keys begin with ``prefix``; an empty prefix is the whole bucket."""

    bucket: Bucket
    prefix: str

    @classmethod
    def of_url(cls, url: str, settings: Mapping[str, str], env: Mapping[str, str]) -> ObjectStorage:
        """The storage of a URL; ``settings`` are Hadoop's, ``env`` the process environment. ConfigError for a wrong URL."""
        place, prefix = parse_object_url(url)
        return cls(Bucket(place, object_options(place, settings, env)), prefix)

    @property
    def root(self) -> str:
        """The URL as Hadoop and Spark use it, with ``s3a://`` for ``s3://``."""
        return self.bucket.where(self.prefix)

    @property
    def publishes_by_copy(self) -> bool:
        """True: the store completes a copy whose client is gone."""
        return True

    @property
    def is_remote(self) -> bool:
        """True: each call is at least one request."""
        return True

    def below(self, rel: str) -> ObjectStorage:
        """The storage of a folder below this one."""
        return ObjectStorage(self.bucket, self._key(rel))

    def where(self, rel: str) -> str:
        """The URL of ``rel``; InvalidPartitionPathError when it is outside of the root."""
        return joined(self.root, rel)

    def exists(self, rel: str) -> bool:
        """True when an object has this name, or has it before a slash."""
        key = self._key(rel)
        return (bool(key) and self.bucket.head(key) is not None) or self.bucket.any_below(key)

    def size(self, rel: str) -> int:
        """Size of a file in bytes."""
        found = self.bucket.head(self._key(rel))
        if found is None:
            raise FileNotFoundError(2, os.strerror(2), self.where(rel))
        return found.size

    def list(self, rel: str, prefixes: tuple[str, ...] = ("",)) -> builtins.list[FileEntry]:
        """The entries of a folder, sorted by name. Folders have the modification time 0."""
        folders, objects = self.bucket.folder(self._key(rel))
        found = [FileEntry(name, 0, True, 0) for name in folders]
        found += [FileEntry(o.key.rpartition("/")[2], o.size, False, o.mtime_ms) for o in objects]
        kept = (e for e in found if e.name.startswith(prefixes) and not _is_checksum(e.name))
        return sorted(kept, key=lambda e: e.name)

    def names(self, rel: str) -> tuple[str, ...]:
        """The names in a folder, sorted."""
        return tuple(e.name for e in self.list(rel))

    def walk_files(self, rel: str) -> Iterator[str]:
        """Names of all files below a folder, from one listing."""
        start = len(self.prefix) + 1 if self.prefix else 0
        found = list(self.bucket.below(self._key(rel)))
        folders = self._folders(found)
        for o in found:
            if o.key not in folders and not _is_checksum(o.key.rpartition("/")[2]):
                yield o.key[start:]

    def stamp(self, rel: str) -> object | None:
        """None: folders do not exist, so they have no modification time."""
        self._key(rel)
        return None

    def read(self, rel: str) -> bytes:
        """The whole content of a small file."""
        return self.bucket.get(self._key(rel))[0]

    def read_range(self, rel: str, offset: int, length: int) -> bytes:
        """At most ``length`` bytes from ``offset``."""
        return self.bucket.get_range(self._key(rel), offset, length)

    def open_input(self, rel: str) -> pa.NativeFile:
        """A file for Arrow: in memory when one request has it all, else read by ranges."""
        source, _ = self.bucket.reader(self._key(rel))
        return pa.BufferReader(source) if isinstance(source, bytes) else pa.PythonFile(source, mode="r")

    def fetch(self, rel: str, local: str) -> None:
        """Copy a file to a local path."""
        key = self._key(rel)
        fd = os.open(local, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            self.bucket.fetch(key, lambda offset, data: os.pwrite(fd, data, offset))
        finally:
            os.close(fd)

    def write_new(self, rel: str, data: bytes) -> None:
        """Create a small file by a conditional put; FileExistsError when the name exists."""
        self.bucket.put_new(self._file(rel), data)

    def replace(self, rel: str, data: bytes) -> None:
        """Write a small file, over an existing one."""
        self.bucket.put(self._file(rel), data)

    @contextmanager
    def open_output(self, rel: str) -> Iterator[BinaryIO]:
        """An object to write in parts. It appears when the last part is confirmed."""
        with self.bucket.writer(self._file(rel)) as out:
            yield cast(BinaryIO, out)

    def put(self, rel: str, local: str) -> None:
        """Upload a local file."""
        key = self._file(rel)
        os.stat(local)  # FileNotFoundError with its own name
        self.bucket.put(key, Path(local))

    def publish(self, pairs: Sequence[tuple[str, str]], *, are_free: bool = False) -> None:
        """Copy staged files inside the store. A missing source and, as checked before the copy, an existing target fail."""
        self.bucket.copy_new([(self._file(staged), self._file(final)) for staged, final in pairs], are_free=are_free)

    def read_register(self, rel: str) -> Register | None:
        """The register: one object, whose ETag is its version."""
        try:
            return Register(*self.bucket.get(self._key(rel)))
        except FileNotFoundError:
            return None

    def swap(self, rel: str, data: bytes, expected: str | None) -> str:
        """Put an object that replaces the version ``expected``.

        The ETag depends on the content: equal bytes have equal ones.
        """
        key = self._file(rel)
        try:
            version = self.bucket.put_new(key, data) if expected is None else self.bucket.put_over(key, data, expected)
        except FileExistsError:
            version = None
        if version is None:
            raise StaleVersionError(f"{self.where(rel)} is no longer at version {expected}: another process wrote it")
        return version

    def delete(self, rel: str) -> bool:
        """Remove a file. Always True: the store does not say whether it existed."""
        self.bucket.delete([self._file(rel)])
        return True

    def delete_many(self, rels: Iterable[str]) -> None:
        """Remove files, 1000 in a request."""
        self.bucket.delete([self._file(rel) for rel in rels])

    def delete_tree(self, rel: str) -> None:
        """Remove everything below a folder."""
        if rel == "":
            raise ValueError(f"{self.root} is never deleted as a whole")
        self.bucket.delete([o.key for o in self.bucket.below(self._key(rel))])

    def delete_empty(self, rel: str) -> None:
        """Do nothing: folders do not exist here."""
        if rel == "":
            raise ValueError(f"{self.root} is never deleted as a whole")
        self._key(rel)

    def clear_scratch(self, rel: str, before_ms: int) -> int:
        """Do nothing: parts of an upload are not visible. The bucket's lifecycle rule removes those of killed writers."""
        del before_ms
        self._key(rel)
        return 0

    def _key(self, rel: str) -> str:
        key = self.where(rel)[len(self.bucket.place.url) + 1 :]
        if any(c < " " or c == "\x7f" for c in key):
            raise InvalidPartitionPathError(f"path {rel!r} has a control character, which object stores do not allow")
        return key

    def _file(self, rel: str) -> str:
        if rel == "":
            raise ValueError(f"{self.root} is a folder, not a file")
        return self._key(rel)

    def _folders(self, found: Sequence[Found]) -> set[str]:
        """Keys of a listing that are not files: empty objects that S3A creates for folders, listed without their slash."""
        empty = {o.key for o in found if o.size == 0}
        if not empty:
            return set()
        folders = {parent for o in found for parent in _parents(o.key) if parent in empty}
        doubtful = sorted(key for key in empty - folders if not key.endswith(_EMPTY))
        heads = each(self.bucket.head, doubtful, AT_ONCE)
        return folders | {key for key, head in zip(doubtful, heads, strict=True) if head is None}


def _parents(key: str) -> Iterator[str]:
    while "/" in key:
        key = key.rpartition("/")[0]
        yield key


def _is_checksum(name: str) -> bool:
    return name.startswith(".") and name.endswith(".crc")
