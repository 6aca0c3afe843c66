"""Location codes: (partition path, file id) pairs interned per key group, strings kept whole.

Two families of entries in the store, read only for the locations a batch meets, so that their number never matters:

    NUL "c" u32 big endian            -> partition path NUL file id     (UTF-8)
    NUL "l" partition path NUL file id -> u32 big endian

Both entries of a place that no record uses any more are removed before a snapshot (state/tag/sweep.py). Its code is never
given again: the next free one only rises, so whatever older delta or store a code is read in, it means one place.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import takewhile

import numpy as np
import numpy.typing as npt

from tagstream.state.errors import IndexDamagedError, StateError
from tagstream.state.store.codec import NO_LOCATION
from tagstream.state.store.rocks_store import RocksStore

CODE_PREFIX = b"\x00c"
PLACE_PREFIX = b"\x00l"

Place = tuple[str, str]
MultiGet = Callable[[list[bytes]], Sequence[bytes | None]]


def _code_key(code: int) -> bytes:
    return CODE_PREFIX + struct.pack(">I", code)


def _place_bytes(place: Place) -> bytes:
    return place[0].encode() + b"\x00" + place[1].encode()


def places_of(codes: npt.NDArray[np.uint32], get: MultiGet, label: int) -> list[Place]:
    """The places of distinct codes; StateError when the store lacks one."""
    keys = [_code_key(c) for c in codes.tolist()]
    if not keys:
        return []
    places: list[Place] = []
    for code, value in zip(codes.tolist(), get(keys), strict=True):
        if value is None:
            raise IndexDamagedError(
                f"key group {label}: location code {code} is in no dictionary; the index is damaged and has to be loaded "
                "from the table again under a new generation"
            )
        partition, file_id = value.split(b"\x00", 1)
        places.append((partition.decode(), file_id.decode()))
    return places


def intern(places: Sequence[Place], get: MultiGet, next_code: int) -> tuple[list[int], list[tuple[bytes, bytes]], int]:
    """Codes of distinct places: (codes, entries new to the store, next free code)."""
    if not places:
        return [], [], next_code
    codes: list[int] = []
    entries: list[tuple[bytes, bytes]] = []
    raws = [_place_bytes(p) for p in places]
    for raw, known in zip(raws, get([PLACE_PREFIX + r for r in raws]), strict=True):
        if known is not None:
            codes.append(struct.unpack(">I", known)[0])
            continue
        if next_code >= NO_LOCATION:
            raise StateError("a key group has used up its 4 billion location codes; rescale to more key groups")
        codes.append(next_code)
        entries.append((_code_key(next_code), raw))
        entries.append((PLACE_PREFIX + raw, struct.pack(">I", next_code)))
        next_code += 1
    return codes, entries, next_code


def codes_of(places: Sequence[Place], get: MultiGet) -> list[int | None]:
    """Codes of places; None for one that the store does not know."""
    if not places:
        return []
    values = get([PLACE_PREFIX + _place_bytes(p) for p in places])
    return [None if v is None else int(struct.unpack(">I", v)[0]) for v in values]


def all_codes(store: RocksStore) -> tuple[npt.NDArray[np.uint32], list[bytes]]:
    """Every code of a store's dictionary, ascending, and its place as it is kept. A loop over places, not over records."""
    entries = list(takewhile(lambda entry: entry[0].startswith(CODE_PREFIX), store.items(CODE_PREFIX)))
    codes = np.frombuffer(b"".join(key[len(CODE_PREFIX) :] for key, _ in entries), ">u4").astype(np.uint32)
    return codes, [place for _, place in entries]


def own_keys(codes: npt.NDArray[np.uint32], places: Sequence[bytes]) -> list[bytes]:
    """The keys of both entries of places, ascending; `places` as they are kept."""
    return [*map(_code_key, sorted(codes.tolist())), *(PLACE_PREFIX + place for place in sorted(places))]
