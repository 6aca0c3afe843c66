"""Other places of a key: where another writer has put it into the table without a look, while the index keeps one.

    NUL "t" state key -> u32 big endian of each place (location codes); nothing: there is none any more

The entries are looked up only in a store whose meta entry counts some.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

from tagstream.state.store.dictionary import MultiGet
from tagstream.state.store.rocks_store import RocksStore

_PREFIX = b"\x00t"
_CODE = struct.Struct(">I")

Entry = tuple[bytes, bytes]


def copies_entry(skey: bytes, codes: Iterable[int]) -> Entry:
    """The entry of a key that is also at these places; of no place: it was there, and is not any more."""
    return _PREFIX + skey, b"".join(map(_CODE.pack, sorted(set(codes))))


def copies_of(skeys: Sequence[bytes], get: MultiGet) -> list[tuple[int, ...]]:
    """Codes of the other places of each key."""
    return [_codes(value) for value in get([_PREFIX + skey for skey in skeys])] if skeys else []


def all_copies(store: RocksStore) -> Iterator[tuple[bytes, tuple[int, ...]]]:
    """Every key with other places, and their codes."""
    for key, value in store.items(_PREFIX):
        if not key.startswith(_PREFIX):
            return
        if value:
            yield key[len(_PREFIX) :], _codes(value)


def _codes(value: bytes | None) -> tuple[int, ...]:
    return tuple(code for (code,) in _CODE.iter_unpack(value or b""))
