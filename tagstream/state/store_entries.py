"""The entries of a key group's store: its meta entry, its location codes, other locations of keys, its records.

The meta entry has the format and chain of the store and the counters of the key group. A location is a pair (partition
path, file id), in the code a place. Each key group has its own dictionary of codes for its locations. The entries are
read only for the locations in a batch, so their number does not matter:

    NUL "c" u32 big endian             -> partition path NUL file id     (UTF-8)
    NUL "l" partition path NUL file id -> u32 big endian

When no record uses a location any more, both entries are removed before a snapshot (state/sweep.py). The code is never
used again: the next free code only rises, so a code means one location in every older delta or store.

A key has other locations when another writer has inserted it into the table without a lookup. The index keeps one
location as the key's own. The entries of the others are looked up only if the store's meta entry counts some:

    NUL "t" state key -> u32 big endian of each location (location codes); empty: there is none any more

All records of a store are read in bounded pieces, because a store may be larger than a worker's memory.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, takewhile
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from tagstream.state import codec
from tagstream.state.codec import FORMAT_VERSION, NO_LOCATION, Records
from tagstream.state.durable_files import ROOT_CHAIN
from tagstream.state.errors import IndexDamagedError, StateError
from tagstream.state.layout import StateLayout
from tagstream.state.rocks_store import RocksStore


@dataclass(frozen=True)
class StoreMeta:
    """`chain`: of the delta up to which the store is written. `next_code`: first free location code. `live` and
    `tombstones`: number of keys. `copies`: number of keys with other locations; stored only if there are some.
    """

    chain: str = ROOT_CHAIN
    next_code: int = 0
    live: int = 0
    tombstones: int = 0
    copies: int = 0

    def to_bytes(self) -> bytes:
        """Compact JSON with the format version."""
        doc = {"format": FORMAT_VERSION, **asdict(self)}
        if not self.copies:
            del doc["copies"]
        return json.dumps(doc, separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes | None, label: int) -> StoreMeta:
        """Parse the entry; without one the store is empty. StateError for another format."""
        if data is None:
            return cls()
        doc = json.loads(data)
        found = doc.pop("format", None)
        if found != FORMAT_VERSION:
            raise StateError(
                f"index of key group {label} has record format {found!r}, this program knows {FORMAT_VERSION}; "
                "run the program version that wrote the checkpoint, or start with a new one"
            )
        return cls(**doc)


CODE_PREFIX = b"\x00c"
PLACE_PREFIX = b"\x00l"

Location = tuple[str, str]
MultiGet = Callable[[list[bytes]], Sequence[bytes | None]]


def _code_key(code: int) -> bytes:
    return CODE_PREFIX + struct.pack(">I", code)


def _place_bytes(place: Location) -> bytes:
    return place[0].encode() + b"\x00" + place[1].encode()


def places_of(codes: npt.NDArray[np.uint32], get: MultiGet, label: int) -> list[Location]:
    """The locations of distinct codes; IndexDamagedError when the store lacks one."""
    keys = [_code_key(c) for c in codes.tolist()]
    if not keys:
        return []
    places: list[Location] = []
    for code, value in zip(codes.tolist(), get(keys), strict=True):
        if value is None:
            raise IndexDamagedError(
                f"key group {label}: location code {code} is in no dictionary; the index is damaged; start the job, which "
                "loads it from the table again"
            )
        partition, file_id = value.split(b"\x00", 1)
        places.append((partition.decode(), file_id.decode()))
    return places


def intern(
    places: Sequence[Location], get: MultiGet, next_code: int
) -> tuple[list[int], list[tuple[bytes, bytes]], int]:
    """Codes of distinct locations: (codes, new entries for the store, next free code)."""
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


def codes_of(places: Sequence[Location], get: MultiGet) -> list[int | None]:
    """Codes of locations; None for one that the store does not have."""
    if not places:
        return []
    values = get([PLACE_PREFIX + _place_bytes(p) for p in places])
    return [None if v is None else int(struct.unpack(">I", v)[0]) for v in values]


def all_codes(store: RocksStore) -> tuple[npt.NDArray[np.uint32], list[bytes]]:
    """Every code of a store's dictionary, ascending, and its location as stored. A loop over locations, not over records."""
    entries = list(takewhile(lambda entry: entry[0].startswith(CODE_PREFIX), store.items(CODE_PREFIX)))
    codes = np.frombuffer(b"".join(key[len(CODE_PREFIX) :] for key, _ in entries), ">u4").astype(np.uint32)
    return codes, [place for _, place in entries]


def own_keys(codes: npt.NDArray[np.uint32], places: Sequence[bytes]) -> list[bytes]:
    """The keys of both entries of each location, ascending; `places`: locations as stored."""
    return [*map(_code_key, sorted(codes.tolist())), *(PLACE_PREFIX + place for place in sorted(places))]


_COPIES_PREFIX = b"\x00t"
_PLACE_CODE = struct.Struct(">I")

Entry = tuple[bytes, bytes]


def copies_entry(skey: bytes, codes: Iterable[int]) -> Entry:
    """The entry of a key that is also at these locations. Without any: it had other locations and has none now."""
    return _COPIES_PREFIX + skey, b"".join(map(_PLACE_CODE.pack, sorted(set(codes))))


def copies_of(skeys: Sequence[bytes], get: MultiGet) -> list[tuple[int, ...]]:
    """Codes of the other locations of each key."""
    return [_place_codes(value) for value in get([_COPIES_PREFIX + skey for skey in skeys])] if skeys else []


def all_copies(store: RocksStore) -> Iterator[tuple[bytes, tuple[int, ...]]]:
    """Every key with other locations, and their codes."""
    for key, value in store.items(_COPIES_PREFIX):
        if not key.startswith(_COPIES_PREFIX):
            return
        if value:
            yield key[len(_COPIES_PREFIX) :], _place_codes(value)


def _place_codes(value: bytes | None) -> tuple[int, ...]:
    return tuple(code for (code,) in _PLACE_CODE.iter_unpack(value or b""))


_LOCATION = itemgetter(slice(codec.LOCATION_BYTES))
_CHUNK = 32_768  # 11 MB as Python objects; a larger piece is not faster


def records_of(store: RocksStore, layout: StateLayout) -> Iterator[tuple[list[bytes], Records]]:
    """All keys of a store with their location records, in key order, in bounded pieces."""
    items = iter(store.items())
    while chunk := list(islice(items, _CHUNK)):
        # Two passes: `zip(*chunk)` makes an iterator per record, and takes twice as long.
        yield [key for key, _ in chunk], codec.decode([value for _, value in chunk], layout.ordering)


def locations_of(store: RocksStore) -> Iterator[npt.NDArray[np.uint32]]:
    """Only the location codes of all records, NO_LOCATION for a tombstone. Takes half the time of `records_of`."""
    values = store.values()
    while raw := b"".join(map(_LOCATION, islice(values, _CHUNK))):
        yield np.frombuffer(raw, "<u4")
