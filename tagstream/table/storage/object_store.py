"""Files on an object store: S3, Google Cloud Storage, Azure Data Lake. Needs the extra ``s3``.

There are no folders: one is there while an object is below it. A name is taken by a conditional put, a staged file is
published by a copy inside the store, a register is one object that is swapped by its ETag. Nothing is ever half there.
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

# Empty files of ours and of Hudi. Another empty object may be a folder of Hadoop's S3A: looked for by its name, it is
# not there.
_EMPTY = (".requested", ".inflight", ".CREATE", ".MERGE", ".APPEND", ".done")


@dataclass(frozen=True)
class ObjectStorage:
    """The objects of a bucket whose keys begin with ``prefix``; an empty one is the whole bucket."""

    bucket: Bucket
    prefix: str

    @classmethod
    def of_url(cls, url: str, settings: Mapping[str, str], env: Mapping[str, str]) -> ObjectStorage:
        """The storage of a URL; ``settings`` are Hadoop's."""
        place, prefix = parse_object_url(url)
        return cls(Bucket(place, object_options(place, settings, env)), prefix)

    @property
    def root(self) -> str:
        """The URL as Hadoop and Spark take it: that of ``s3://`` is ``s3a://``."""
        return self.bucket.where(self.prefix)

    @property
    def publishes_by_copy(self) -> bool:
        """The store goes on copying for a client that is gone."""
        return True

    @property
    def is_remote(self) -> bool:
        """Each call is one request or more."""
        return True

    def below(self, rel: str) -> ObjectStorage:
        """The storage of a folder."""
        return ObjectStorage(self.bucket, self._key(rel))

    def where(self, rel: str) -> str:
        """The URL of ``rel``; InvalidPartitionPathError when it would leave the root."""
        return joined(self.root, rel)

    def exists(self, rel: str) -> bool:
        """True when an object has that name, or has it before a slash."""
        key = self._key(rel)
        return (bool(key) and self.bucket.head(key) is not None) or self.bucket.any_below(key)

    def size(self, rel: str) -> int:
        """Bytes of a file."""
        found = self.bucket.head(self._key(rel))
        if found is None:
            raise FileNotFoundError(2, os.strerror(2), self.where(rel))
        return found.size

    def list(self, rel: str, prefixes: tuple[str, ...] = ("",)) -> builtins.list[FileEntry]:
        """The entries of a folder, sorted by name. Folders have no time of change: 0."""
        folders, objects = self.bucket.folder(self._key(rel))
        found = [FileEntry(name, 0, True, 0) for name in folders]
        found += [FileEntry(o.key.rpartition("/")[2], o.size, False, o.mtime_ms) for o in objects]
        kept = (e for e in found if e.name.startswith(prefixes) and not _is_checksum(e.name))
        return sorted(kept, key=lambda e: e.name)

    def names(self, rel: str) -> tuple[str, ...]:
        """The names in a folder, sorted."""
        return tuple(e.name for e in self.list(rel))

    def walk_files(self, rel: str) -> Iterator[str]:
        """Names of all files below a folder, of one listing."""
        start = len(self.prefix) + 1 if self.prefix else 0
        found = list(self.bucket.below(self._key(rel)))
        folders = self._folders(found)
        for o in found:
            if o.key not in folders and not _is_checksum(o.key.rpartition("/")[2]):
                yield o.key[start:]

    def stamp(self, rel: str) -> object | None:
        """Folders are not there, so they don't change."""
        self._key(rel)
        return None

    def read(self, rel: str) -> bytes:
        """The whole content of a small file."""
        return self.bucket.get(self._key(rel))[0]

    def read_range(self, rel: str, offset: int, length: int) -> bytes:
        """At most ``length`` bytes from ``offset``."""
        return self.bucket.get_range(self._key(rel), offset, length)

    def open_input(self, rel: str) -> pa.NativeFile:
        """The file: in memory where one request has it all, else read by ranges."""
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
        """Create a small file, by a put that the store refuses when the key is taken."""
        self.bucket.put_new(self._file(rel), data)

    def replace(self, rel: str, data: bytes) -> None:
        """Write a small file over another."""
        self.bucket.put(self._file(rel), data)

    @contextmanager
    def open_output(self, rel: str) -> Iterator[BinaryIO]:
        """An object that is sent in parts while it is written; the store shows it when the last one is confirmed."""
        with self.bucket.writer(self._file(rel)) as out:
            yield cast(BinaryIO, out)

    def put(self, rel: str, local: str) -> None:
        """Send a local file."""
        key = self._file(rel)
        os.stat(local)  # FileNotFoundError by its own name
        self.bucket.put(key, Path(local))

    def publish(self, pairs: Sequence[tuple[str, str]], *, are_free: bool = False) -> None:
        """Copies inside the store: one fails when its source is gone, or when its name is taken as it looks before."""
        self.bucket.copy_new([(self._file(staged), self._file(final)) for staged, final in pairs], are_free=are_free)

    def read_register(self, rel: str) -> Register | None:
        """A register is one object; its ETag is the version."""
        try:
            return Register(*self.bucket.get(self._key(rel)))
        except FileNotFoundError:
            return None

    def swap(self, rel: str, data: bytes, expected: str | None) -> str:
        """A put that names the version it replaces. ETags are made of the content: the same bytes have the same one."""
        key = self._file(rel)
        try:
            version = self.bucket.put_new(key, data) if expected is None else self.bucket.put_over(key, data, expected)
        except FileExistsError:
            version = None
        if version is None:
            raise StaleVersionError(f"{self.where(rel)} is no longer at version {expected}: another process wrote it")
        return version

    def delete(self, rel: str) -> bool:
        """Remove a file; the store does not tell whether it was there."""
        self.bucket.delete([self._file(rel)])
        return True

    def delete_many(self, rels: Iterable[str]) -> None:
        """Remove files, a thousand a request."""
        self.bucket.delete([self._file(rel) for rel in rels])

    def delete_tree(self, rel: str) -> None:
        """Remove all below a folder."""
        if rel == "":
            raise ValueError(f"{self.root} is never deleted as a whole")
        self.bucket.delete([o.key for o in self.bucket.below(self._key(rel))])

    def delete_empty(self, rel: str) -> None:
        """There are no folders here."""
        if rel == "":
            raise ValueError(f"{self.root} is never deleted as a whole")
        self._key(rel)

    def clear_scratch(self, rel: str, before_ms: int) -> int:
        """Nothing of a killed writer is visible here; parts of an upload go by the bucket's lifecycle rule."""
        del before_ms
        self._key(rel)
        return 0

    def _key(self, rel: str) -> str:
        key = self.where(rel)[len(self.bucket.place.url) + 1 :]
        if any(c < " " or c == "\x7f" for c in key):
            raise InvalidPartitionPathError(f"path {rel!r} has a control character, which no object store takes")
        return key

    def _file(self, rel: str) -> str:
        if rel == "":
            raise ValueError(f"{self.root} is a folder, not a file")
        return self._key(rel)

    def _folders(self, found: Sequence[Found]) -> set[str]:
        """The keys of a listing that are no files: empty objects that S3A made for a folder, with a slash at their end."""
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
