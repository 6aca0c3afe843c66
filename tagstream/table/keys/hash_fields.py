"""The values of the hash fields in record keys, which both engines of the bucket index hash.

The values are parsed from the text of the record key. Hudi's releases parse it differently
(``KeyGenUtils.extractRecordKeysByFields`` of 0.15.0 and 1.2.0), with different results for keys whose values have a
comma or a colon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

NULL, EMPTY = "__null__", "__empty__"
RELEASES = ("0.x", "1.x")
_Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class HashFields:
    """The hash fields of a bucketed table (``hoodie.bucket.index.hash.field``).

    ``record_key_fields``: the table's. ``fields``: a subset of them. ``release``: the Hudi releases whose parsing of
    keys applies, one of :data:`RELEASES`. ValueError for fields or a release that cannot be.
    """

    record_key_fields: tuple[str, ...]
    fields: tuple[str, ...]
    release: str = "1.x"

    def __post_init__(self) -> None:
        unknown = [name for name in self.fields if name not in self.record_key_fields]
        if unknown or not self.fields:
            raise ValueError(
                f"hash fields {', '.join(self.fields) or '(none)'} must be among the record key fields "
                f"{', '.join(self.record_key_fields)}"
            )
        if self.release not in RELEASES:
            raise ValueError(f"release {self.release!r} is not one of {', '.join(RELEASES)}")

    def values(self, keys: pa.Array) -> Iterator[tuple[_Rows, list[pa.Array]]]:
        """The values of the hash fields of record keys (strings without nulls), in groups of keys with as many values.

        Yields (row numbers of the keys, a string column for each value in the order of the key; none for Java's empty
        list). A null is the value ``__null__``. Every row is in one group.
        """
        keys = keys.cast(pa.string())
        plain = self._is_plain(keys)
        if plain.any():
            mine = keys.filter(pa.array(plain))
            yield np.flatnonzero(plain), [mine] if not self._has_names else self._values(mine)
        odd = np.flatnonzero(~plain)
        if len(odd):
            # Few keys have values with separators, so these are parsed one by one.
            lists = [self._take_apart(key) for key in keys.take(pa.array(odd)).to_pylist()]
            for size in sorted({len(values) for values in lists}):
                rows = [i for i, values in enumerate(lists) if len(values) == size]
                yield odd[rows], [pa.array([lists[i][n] for i in rows], pa.string()) for n in range(size)]

    @property
    def _has_names(self) -> bool:
        """Whether keys are ``field:value,field:value``. The key of one field is the value alone."""
        return len(self.record_key_fields) > 1

    def _is_plain(self, keys: pa.Array) -> npt.NDArray[np.bool_]:
        """Whether both releases parse a key in the same way."""
        colons, commas = pc.count_substring(keys, ":"), pc.count_substring(keys, ",")
        n = len(self.record_key_fields) if self._has_names else 0
        plain = pc.equal(colons, n) if n else pc.equal(colons, 0)
        if n:
            plain = pc.and_(plain, pc.equal(commas, n - 1))
            plain = pc.and_(plain, pc.match_substring_regex(keys, ",".join("[^,:]+:[^,:]*" for _ in range(n)) + "$"))
        mask: npt.NDArray[np.bool_] = plain.to_numpy(zero_copy_only=False)
        return mask

    def _values(self, keys: pa.Array) -> list[pa.Array]:
        """Values of the hash fields of plain keys, in their order in the key."""
        parts = pc.split_pattern(keys, ",")
        out = []
        for i, name in enumerate(self.record_key_fields):
            if name not in self.fields:
                continue
            value = pc.list_element(pc.split_pattern(pc.list_element(parts, i), ":", max_splits=1), 1)
            value = pc.if_else(pc.equal(value, NULL), pa.scalar(None, pa.string()), value)
            out.append(pc.if_else(pc.equal(value, EMPTY), "", value))
        return out

    def _take_apart(self, key: str) -> list[str | None]:
        apart: Callable[[str, Sequence[str]], list[str | None]] = _old if self.release == "0.x" else _new
        return apart(key, self.fields)


def _old(key: str, fields: Sequence[str]) -> list[str | None]:
    """0.15.0: without a colon the key is the value. Else split at every comma, and each part at its first colon."""
    if ":" not in key:
        return [key]
    # Java's split drops empty parts at the end.
    pairs = [part.split(":", 1) for part in key.rstrip(",").split(",")]
    return [_value(pair[-1]) if len(pair) > 1 else pair[0] for pair in pairs if len(pair) == 1 or pair[0] in fields]


def _new(key: str, fields: Sequence[str]) -> list[str | None]:
    """1.2.0: a value ends at the last comma before the next name. Without a comma or a colon the key is the value."""
    if "," not in key or ":" not in key:
        return [key]
    values: list[str | None] = []
    rest: str | None = key
    while rest:
        name, colon, text = rest.partition(":")
        if not colon:
            break
        end = _end_of_value(text)
        if name in fields:
            values.append(_value(text if end is None else text[:end]))
        rest = None if end is None else text[end + 1 :]
    return values or [key]


def _end_of_value(text: str) -> int | None:
    """Position of the comma that ends a value: the last one before the first colon that follows a comma."""
    first = text.find(",")
    if first < 0:
        return None
    colon = text.find(":", first)
    return None if colon < 0 else text.rindex(",", 0, colon)


def _value(text: str) -> str | None:
    return {NULL: None, EMPTY: ""}.get(text, text)
