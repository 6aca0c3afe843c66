"""One bucket's objects by their keys: each call is one request where the store allows it, and raises errors of files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import obstore as obs
from obstore.exceptions import BaseError, NotSupportedError

from tagstream.table.storage.common import PART, PARTS_AT_ONCE, TAIL, ObjectWriter, RangeReader
from tagstream.table.storage.object_client import Clients, clients, is_out_of_range, missing, put_once, taken, told
from tagstream.table.storage.settings import S3, Options, Place, kept_settings
from tagstream.table.storage.storage import each

AT_ONCE = 32  # requests, and so connections, of one call
_PIECE = 16 << 20
_PIECES_AT_ONCE = 4


@dataclass(frozen=True)
class Found:
    """An object that a listing has. ``mtime_ms`` by the store's clock, whole seconds on S3."""

    key: str
    size: int
    mtime_ms: int


@dataclass(frozen=True)
class Bucket:
    """Sent by value; each process makes its own client when the first request comes."""

    place: Place
    options: Options

    def where(self, key: str) -> str:
        """An object's URL."""
        return f"{self.place.url}/{key}" if key else self.place.url

    # Looking

    def head(self, key: str) -> Found | None:
        """The object, or None."""
        try:
            with told(self.where(key)):
                return _found(obs.head(self._clients.store, key))
        except FileNotFoundError:
            return None

    def folder(self, prefix: str) -> tuple[list[str], list[Found]]:
        """Names of the folders below a prefix, and the objects beside them; one request a thousand.

        Hadoop's S3A leaves empty objects whose keys end in ``/``, which are no files.
        """
        with told(self.where(prefix)):
            answer = obs.list_with_delimiter(self._clients.store, prefix or None)
        folders = sorted({path.rpartition("/")[2] for path in answer["common_prefixes"]})
        objects = [_found(meta) for meta in answer["objects"]]
        paths = set(answer["common_prefixes"])
        return folders, [o for o in objects if o.key != prefix and not (o.size == 0 and o.key in paths)]

    def below(self, prefix: str) -> Iterator[Found]:
        """All objects below a prefix, in the order of their keys; one request a thousand."""
        with told(self.where(prefix)):
            for chunk in obs.list(self._clients.store, prefix or None, chunk_size=1000):
                yield from (o for o in map(_found, cast("Sequence[Any]", chunk)) if o.key != prefix)

    def any_below(self, prefix: str) -> bool:
        """Whether there is an object below a prefix."""
        return next(iter(self.below(prefix)), None) is not None

    # Reading

    def get(self, key: str) -> tuple[bytes, str]:
        """A whole object and its version."""
        with told(self.where(key)):
            answer = obs.get(self._clients.store, key)
            return answer.bytes().to_bytes(), _version(cast("dict[str, Any]", answer.meta))

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """At most ``length`` bytes from ``offset``."""
        with told(self.where(key)):
            try:
                if length:
                    return obs.get_range(self._clients.store, key, start=offset, length=length).to_bytes()
            except BaseError as e:
                if not is_out_of_range(e):
                    raise
            found = self.head(key)  # an empty range can't be asked for
        if found is None:
            raise missing(self.where(key))
        if length and offset < found.size:
            raise OSError(f"{self.where(key)}: bytes from {offset} can't be read, though it has {found.size}")
        return b""

    def reader(self, key: str) -> tuple[bytes | RangeReader, int]:
        """The object where it is small, else what reads it by ranges; and its size."""
        with told(self.where(key)):
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
        """Hand a whole object on, piece by piece with their offsets, several at a time and so in any order."""
        with told(self.where(key)):
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
                raise OSError(f"{self.where(key)} changed while it was read")
            write(offset, data)

        each(piece, range(_PIECE, size, _PIECE), _PIECES_AT_ONCE)

    # Writing

    def put(self, key: str, data: bytes | Path) -> None:
        """Write an object over another, or a new one."""
        with told(self.where(key)):
            obs.put(self._clients.store, key, data, chunk_size=PART, max_concurrency=PARTS_AT_ONCE)

    def put_new(self, key: str, data: bytes) -> str:
        """Create an object and return its version; FileExistsError when another's is there."""
        version = self._put(key, data, "create")
        if version is None:
            raise taken(self.where(key))
        return version

    def put_over(self, key: str, data: bytes, version: str) -> str | None:
        """Write over one version of an object; the new one, or None when it has another version, or is gone."""
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

        with told(self.where(key)):
            return put_once(send, is_own)

    @contextmanager
    def writer(self, key: str) -> Iterator[ObjectWriter]:
        """An object to stream into. What an exception leaves behind is never visible."""
        with told(self.where(key)):
            raw = obs.open_writer(self._clients.store, key, buffer_size=PART, max_concurrency=PARTS_AT_ONCE)
            out = ObjectWriter(raw)
        yield out
        with told(self.where(key)):
            out.finish()

    def copy_new(self, pairs: Sequence[tuple[str, str]], *, are_free: bool = False) -> None:
        """Copy objects inside the store, to keys that are free; several at a time, and all are tried.

        ``are_free``: the caller has made sure of that, and where copies overwrite nobody looks.
        """

        def copy(pair: tuple[str, str]) -> None:
            staged, final = pair
            if self.place.scheme == S3:  # its copies overwrite, whatever they are asked (MinIO, versitygw)
                if not are_free and self.head(final) is not None:
                    raise taken(self.where(final))
                with told(self.where(staged)):
                    obs.copy(self._clients.store, staged, final)
                return
            with told(f"{self.where(staged)} to {final}"):
                obs.copy(self._clients.store, staged, final, overwrite=False)

        each(copy, pairs, AT_ONCE)

    # Removing

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, a thousand a request where the store can; missing ones are fine."""
        names = list(dict.fromkeys(keys))  # MinIO's answer to a key that is named twice is one that obstore can't read
        if not names:
            return
        with told(self.where(names[0])):
            try:
                obs.delete(self._clients.store, names if len(names) > 1 else names[0])
            except FileNotFoundError:  # not on S3: the others may still be there
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
    """ETag and, where the store has it, generation: what the next conditional put names."""
    return f"{meta.get('e_tag') or ''} {meta.get('version') or ''}".rstrip()
