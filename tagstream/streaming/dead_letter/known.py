"""Which letters an error table has already, asked of its files: a base file never changes, so each is read once."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.dead_letter.letters import DIGEST_DIGITS
from tagstream.table.each import each
from tagstream.table.file_group.base_file import read_keys
from tagstream.table.storage.storage import Storage


class KnownLetters:
    """Keeps the digest in which each id ends, 16 bytes a letter: whole ids are read again only where one is equal."""

    def __init__(self) -> None:
        self._digests: dict[str, pa.Array] = {}

    def among(self, storage: Storage, paths: Sequence[str], ids: Sequence[str]) -> set[str]:
        """Those of ``ids`` that a base file of ``paths`` (relative to the table) has as record key."""
        new = [path for path in paths if path not in self._digests]
        here = {path: self._digests[path] for path in paths if path in self._digests}
        self._digests = {**here, **dict(zip(new, each(lambda path: _digests(_keys(storage, path)), new), strict=True))}
        asked = pa.array(ids, pa.string())
        digests = _digests(asked)
        found = [path for path, known in self._digests.items() if pc.any(pc.is_in(known, value_set=digests)).as_py()]
        known: set[str] = set()
        for keys in each(lambda path: _keys(storage, path), found):
            known.update(keys.filter(pc.is_in(keys, value_set=asked)).to_pylist())
        return known


def _keys(storage: Storage, path: str) -> pa.Array:
    return read_keys(storage, path).cast(pa.string()).combine_chunks()


def _digests(ids: pa.Array) -> pa.Array:
    return pc.utf8_slice_codeunits(ids, -DIGEST_DIGITS)
