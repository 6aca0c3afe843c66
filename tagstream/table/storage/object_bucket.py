"""The objects of a bucket by their keys. Each call is one request where the store allows it; errors are those of files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import obstore as obs
from obstore.exceptions import BaseError, NotSupportedError

from tagstream.table.storage.common import PART, PARTS_AT_ONCE, TAIL, ObjectWriter, RangeReader
from tagstream.table.storage.object_client import (
    Clients,
    clients,
    is_out_of_range,
    missing,
    put_once,
    taken,
    translated_errors,
)
from tagstream.table.storage.settings import S3, Options, Place, kept_settings
from tagstream.table.storage.storage import each

AT_ONCE = 32  # parallel requests, and so connections, of one call
_PIECE = 16 << 20
_PIECES_AT_ONCE = 4


@dataclass(frozen=True)
class Found:
    """An object of a listing. ``mtime_ms`` is the store's clock, in whole seconds on S3."""

    key: str
    size: int
    mtime_ms: int


@dataclass(frozen=True)
class Bucket:
    """A bucket and its client options.

    It is sent to tasks by value; each process makes its own client at the first request.
    """

    place: Place
    options: Options

    def where(self, key: str) -> str:
        """URL of an object."""
        return f"{self.place.url}/{key}" if key else self.place.url

    # Listing

    def head(self, key: str) -> Found | None:
        """The object with this key, or None."""
        try:
            with translated_errors(self.where(key)):
                return _found(obs.head(self._clients.store, key))
        except FileNotFoundError:
            return None

    def folder(self, prefix: str) -> tuple[list[str], list[Found]]:
        """(names of the folders directly below a prefix, objects directly below it); one request for each 1000.

        Empty objects whose keys end in ``/``, which Hadoop's S3A creates, are not files and are left out.
        """
        with translated_errors(self.where(prefix)):
            answer = obs.list_with_delimiter(self._clients.store, prefix or None)
        folders = sorted({path.rpartition("/")[2] for path in answer["common_prefixes"]})
        objects = [_found(meta) for meta in answer["objects"]]
        paths = set(answer["common_prefixes"])
        return folders, [o for o in objects if o.key != prefix and not (o.size == 0 and o.key in paths)]

    def below(self, prefix: str) -> Iterator[Found]:
        """All objects below a prefix, in the order of their keys; one request for each 1000."""
        with translated_errors(self.where(prefix)):
            for chunk in obs.list(self._clients.store, prefix or None, chunk_size=1000):
                yield from (o for o in map(_found, cast("Sequence[Any]", chunk)) if o.key != prefix)

    def any_below(self, prefix: str) -> bool:
        """Whether a prefix has an object."""
        return next(iter(self.below(prefix)), None) is not None

    # Reading

    def get(self, key: str) -> tuple[bytes, str]:
        """(content, version) of an object."""
        with translated_errors(self.where(key)):
            answer = obs.get(self._clients.store, key)
            return answer.bytes().to_bytes(), _version(cast("dict[str, Any]", answer.meta))

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """At most ``length`` bytes from ``offset``."""
        with translated_errors(self.where(key)):
            try:
                if length:
                    return obs.get_range(self._clients.store, key, start=offset, length=length).to_bytes()
            except BaseError as e:
                if not is_out_of_range(e):
                    raise
            found = self.head(key)  # stores have no request for an empty range
        if found is None:
            raise missing(self.where(key))
        if length and offset < found.size:
            raise OSError(f"{self.where(key)}: bytes from {offset} cannot be read, though the object has {found.size}")
        return b""

    def reader(self, key: str) -> tuple[bytes | RangeReader, int]:
        """(the content of a small object, else a reader by ranges; the size of the object)."""
        with translated_errors(self.where(key)):
            try:
                answer = obs.get(self._clients.store, key, options={"range": {"suffix": TAIL}})
                tail, size = answer.bytes().to_bytes(), answer.meta["size"]
            except NotSupportedError:  # Azure
                size = obs.head(self._clients.store, key)["size"]
                tail = self.get_range(key, max(0, size - TAIL), min(size, TAIL))
            except BaseError as e:
                if not is_out_of_range(e):  # of an empty object
                    raise
                return b"", 0
        if len(tail) == size:
            return tail, size
        return RangeReader(lambda offset, length: self.get_range(key, offset, length), size, tail), size

    def fetch(self, key: str, write: Callable[[int, bytes], object]) -> None:
        """Read an object in pieces and call ``write`` with (offset, bytes) of each, in parallel and in any order."""
        with translated_errors(self.where(key)):
            try:
                answer = obs.get(self._clients.store, key, options={"range": (0, _PIECE)})
                size = answer.meta["size"]
                write(0, answer.bytes().to_bytes())
            except BaseError as e:
                if not is_out_of_range(e):
                    raise
                size = 0  # an empty object has no first byte

        def piece(offset: int) -> None:
            data = self.get_range(key, offset, min(_PIECE, size - offset))
            if len(data) != min(_PIECE, size - offset):
                raise OSError(f"{self.where(key)} changed while it was read: try again")
            write(offset, data)

        each(piece, range(_PIECE, size, _PIECE), _PIECES_AT_ONCE)

    # Writing

    def put(self, key: str, data: bytes | Path) -> None:
        """Write an object, over an existing one. ``data``: its bytes, or the local file that has them."""
        with translated_errors(self.where(key)):
            obs.put(self._clients.store, key, data, chunk_size=PART, max_concurrency=PARTS_AT_ONCE)

    def put_new(self, key: str, data: bytes) -> str:
        """Create an object and return its version; FileExistsError when another writer's exists."""
        version = self._put(key, data, "create")
        if version is None:
            raise taken(self.where(key))
        return version

    def put_over(self, key: str, data: bytes, version: str) -> str | None:
        """Replace one version of an object. Returns the new version; None when the object has another version or is gone."""
        e_tag, _, generation = version.partition(" ")
        named = {"e_tag": e_tag, "version": generation}
        return self._put(key, data, {name: value for name, value in named.items() if value})

    def _put(self, key: str, data: bytes, mode: Any) -> str | None:
        def send() -> str:
            return _version(obs.put(self._clients.once, key, data, mode=mode, use_multipart=False))

        def is_own() -> str | None:
            try:
                there, version = self.get(key)
            except FileNotFoundError:
                return None
            return version if there == data else None

        with translated_errors(self.where(key)):
            return put_once(send, is_own)

    @contextmanager
    def writer(self, key: str) -> Iterator[ObjectWriter]:
        """An object to write in parts. After an exception the object does not appear."""
        with translated_errors(self.where(key)):
            raw = obs.open_writer(self._clients.store, key, buffer_size=PART, max_concurrency=PARTS_AT_ONCE)
            out = ObjectWriter(raw)
        yield out
        with translated_errors(self.where(key)):
            out.finish()

    def copy_new(self, pairs: Sequence[tuple[str, str]], *, are_free: bool = False) -> None:
        """Copy objects inside the store to free keys, several in parallel. All are tried; the first error is raised.

        ``are_free``: the caller knows that the keys are free, so they are not checked where copies overwrite.
        """

        def copy(pair: tuple[str, str]) -> None:
            staged, final = pair
            if self.place.scheme == S3:  # its copies always overwrite (MinIO, versitygw)
                if not are_free and self.head(final) is not None:
                    raise taken(self.where(final))
                with translated_errors(self.where(staged)):
                    obs.copy(self._clients.store, staged, final)
                return
            with translated_errors(f"{self.where(staged)} to {final}"):
                obs.copy(self._clients.store, staged, final, overwrite=False)

        each(copy, pairs, AT_ONCE)

    # Removing

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, 1000 in a request where the store allows it. Missing ones are no error."""
        names = list(dict.fromkeys(keys))  # obstore cannot parse MinIO's answer to a key that is named twice
        if not names:
            return
        with translated_errors(self.where(names[0])):
            try:
                obs.delete(self._clients.store, names if len(names) > 1 else names[0])
            except FileNotFoundError:  # not on S3: the other keys may still exist
                self._delete_each(names)

    def _delete_each(self, names: Sequence[str]) -> None:
        def delete(name: str) -> None:
            try:
                obs.delete(self._clients.store, name)
            except FileNotFoundError:
                return

        each(delete, names, AT_ONCE)

    @property
    def _clients(self) -> Clients:
        return clients(self.place, self.options, kept_settings)


def _found(meta: Any) -> Found:
    return Found(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * 1000))


def _version(meta: Any) -> str:
    """Version of an object for a conditional put: its ETag and, where the store has one, its generation."""
    return f"{meta.get('e_tag') or ''} {meta.get('version') or ''}".rstrip()
