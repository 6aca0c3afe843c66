"""Columns that a table had before and dropped: their values are in files that were not rewritten since.

Readers go by names. A column that comes again with another type would be read out of those files in the new type, which
fails, or gives other values. So do nested ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from tagstream.table.schema.widen import widened

_Path = tuple[str, ...]
_ITEM = "[]"


@dataclass(frozen=True)
class Clash:
    """A new column, or a new member of a nested one, by its path; the type that it had before, and has now."""

    name: str
    was: pa.DataType
    now: pa.DataType


def clash(own: pa.Schema, made: pa.Schema, former: Iterable[pa.Schema]) -> Clash | None:
    """The first thing that ``made`` has and ``own`` lacks, and that files of a ``former`` schema have in another type, whose
    values its type does not hold; None where there is none. ``former`` is asked only where something is new.
    """
    known = dict(_leaves(own))
    new = {path: kind for path, kind in _leaves(made) if path not in known}
    if not new:
        return None
    for schema in former:
        for path, was in _leaves(schema):
            for place, now in new.items():
                if place == path and not _holds(now, was):
                    return Clash(_told(place), was, now)
                if place != path and _is_above(place, path, known):
                    return Clash(_told(place), was, now)
    return None


def _holds(now: pa.DataType, was: pa.DataType) -> bool:
    kind = widened(was, now)
    return kind is not None and kind.equals(now)


def _is_above(place: _Path, path: _Path, known: dict[_Path, pa.DataType]) -> bool:
    """Whether one of the two is a plain column where the other one is nested."""
    short, long = sorted((place, path), key=len)
    return long[: len(short)] == short and short not in known


def _leaves(schema: pa.Schema) -> Iterator[tuple[_Path, pa.DataType]]:
    """Every plain column with its path, those inside of nested ones too."""
    for field in schema:
        yield from _below((field.name,), field.type)


def _below(path: _Path, kind: pa.DataType) -> Iterator[tuple[_Path, pa.DataType]]:
    t = pa.types
    if t.is_struct(kind):
        for member in kind:
            yield from _below((*path, member.name), member.type)
    elif t.is_list(kind) or t.is_large_list(kind):
        yield from _below((*path, _ITEM), kind.value_type)
    elif t.is_map(kind):
        yield from _below((*path, _ITEM, "value"), kind.item_type)
    else:
        yield path, kind


def _told(path: _Path) -> str:
    return ".".join(path).replace(f".{_ITEM}", _ITEM)
