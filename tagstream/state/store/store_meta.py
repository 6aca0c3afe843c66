"""The store's own meta entry: which format and lineage it has, and the counters of the key group."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from tagstream.state.errors import StateError
from tagstream.state.pointer import ROOT_CHAIN
from tagstream.state.store.codec import FORMAT_VERSION


@dataclass(frozen=True)
class StoreMeta:
    """`chain`: the delta the store stands at. `next_code`: first free location code. Counts are of whole keys.

    `copies`: keys with other places (``state/store/copies.py``); written where there are some.
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
        """Parse the entry; a store without one is empty. StateError for another format."""
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
