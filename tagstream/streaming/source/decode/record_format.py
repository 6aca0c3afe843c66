"""The interface of a format of records: the events that it makes of raw records, and what it is given for that.

``DecodeRules`` say how strict a decoder is: by default it refuses any value of which a column would lose
something. ``Facts`` are what an Avro schema says of fields beyond their Arrow types, at every depth: defaults, the
symbols of enums, uuids.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tagstream.table.schema.record_schema import default_of

Mask = npt.NDArray[np.bool_]
# Why a partition has to be named, behind what lacks it.
BY_PARTITION = "identifies a row together with its key (index.global.enabled=false, or an index that is not global)"


@dataclass(frozen=True)
class Events:
    """Decoded records, all columns aligned with ``batch`` (``key, value, src, pos_hi, pos_lo`` of each event).

    ``rows``: the schema's columns, all nullable. ``reason``: why a record is bad, else null. ``deleted``: deletes.
    ``by_key``: only the key of the row counts, as with a delete whose row image is not to be trusted. ``skipped``: the
    record says nothing of a row. ``keys``: record keys that are not made of ``rows``; null where they are.
    ``ordering``: what orders the events in place of the table's ordering field, which it does not have; null: unknown.
    ``unordered``: upserts that may come without an ordering value. ``absent``: which columns of the row were not sent, as
    bits (``columns.pack_absent``); null: all were. ``old_keys``: record keys of the rows that hold what was not sent, where
    that is not the row of the event's own key. ``key_changed``: deletes of keys whose rows go on under another key, whose
    records may lack what the row held; ``new_keys``: those record keys, where they are known. ``keeps_place``:
    upserts whose partition was not sent: the row stays where it is, and a new row goes where ``rows`` puts it.
    ``lines``: the bytes of bad records (where the mask is), of a format whose records have no ``value``. ``emptied``: of the
    skipped events those that emptied the whole table, by their ordering.
    """

    batch: pa.RecordBatch
    rows: pa.Table
    reason: pa.Array
    deleted: Mask
    by_key: Mask
    skipped: Mask
    keys: pa.Array | None = None
    ordering: pa.Array | None = None
    unordered: Mask | None = None
    absent: pa.Array | None = None
    old_keys: pa.Array | None = None
    key_changed: Mask | None = None
    new_keys: pa.Array | None = None
    keeps_place: Mask | None = None
    lines: Callable[[Mask], pa.Array] | None = None
    emptied: Mask | None = None


@dataclass(frozen=True)
class Noticed:
    """A schema of records that has what the table's lacks.

    ``avro_json``: the writer's schema; ``source``: what has it, in messages; ``rank``: older schemas come first.
    """

    rank: int
    source: str
    avro_json: str


class Watch(Protocol):
    """Is told of the schemas that records bring with them, and tells which of them are news (``schemas.watch``)."""

    def saw_avro(self, number: int, schema: Mapping[str, Any]) -> None: ...
    def saw_connect(self, key: bytes, fields: Mapping[str, Mapping[str, Any]]) -> None: ...
    def take(self) -> list[Noticed]: ...


@runtime_checkable
class NamesTables(Protocol):
    """A format whose records name the table that they are of."""

    @property
    def wants_table(self) -> bool:
        """Whether the stream has no table yet: it will be the first one that is seen."""
        ...

    def first_table(self) -> str | None:
        """The first one that was seen since the last call, of a stream that has none yet."""
        ...


class RecordFormat(Protocol):
    """One format of records. ``may_lack``: its upserts need not hold all columns (``Events.absent``)."""

    may_lack: bool

    def read(self, batch: pa.RecordBatch) -> Events:
        """Decode ``key, value, src, pos_hi, pos_lo`` and, where the source has it, ``old_key``.

        The events are those of the records in their order; one record may hold none or several.
        """
        ...


ITEM = "item"  # the elements of an array, the values of a map


@dataclass(frozen=True)
class Facts:
    """``default``: JSON default other than null. ``children``: of a record by name, of an array or map its ``ITEM``.

    ``aliases``: other names that a column's values may come under.
    """

    default: Any = None
    symbols: tuple[str, ...] | None = None
    is_uuid: bool = False
    children: Mapping[str, Facts] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()

    @property
    def restricts(self) -> bool:
        """Whether not every text fits."""
        return self.symbols is not None or self.is_uuid


NO_FACTS = Facts()


def avro_facts(avro_json: str) -> dict[str, Facts]:
    """The facts of a record schema's fields, by name."""
    record = json.loads(avro_json)
    aliases = {f["name"]: tuple(f.get("aliases") or ()) for f in record["fields"]}
    found = _of(record, {}, "", None).children
    return {name: replace(known, aliases=aliases[name]) for name, known in found.items()}


def _of(kind: Any, named: dict[str, Any], space: str, default: Any) -> Facts:
    """Facts of a schema; ``named``: the named types that were defined before it, by full name."""
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), "null")
    if isinstance(kind, str):
        known = named.get(kind) or named.get(f"{space}.{kind}")
        if known is None:
            return Facts(default)
        return Facts(default, known.symbols, known.is_uuid, known.children)
    what = kind["type"]
    if what in ("record", "error", "enum", "fixed"):
        name = kind["name"] if "." in kind["name"] or not kind.get("namespace", space) else None
        name = name or f"{kind.get('namespace', space)}.{kind['name']}"
        found = Facts()
        if what == "enum":
            found = Facts(None, tuple(kind["symbols"]))
        elif what != "fixed":
            inner = name.rpartition(".")[0]
            fields = {f["name"]: _of(f["type"], named, inner, default_of(f)) for f in kind["fields"]}
            found = Facts(None, children=fields)
        named[name] = found
        return Facts(default, found.symbols, found.is_uuid, found.children)
    if what in ("array", "map"):
        return Facts(default, children={ITEM: _of(kind["items" if what == "array" else "values"], named, space, None)})
    if isinstance(what, (dict, list)):
        return _of(what, named, space, default)
    return Facts(default, is_uuid=kind.get("logicalType") == "uuid" and what == "string")


@dataclass(frozen=True)
class DecodeRules:
    """What is taken although the column does not hold all of it, and in which form some values come.

    ``round_numbers``: digits that a float, a double or a decimal does not hold are rounded away. ``truncate_times``: digits
    after the column's last one are cut off, and so is the clock time of a date. ``bare_nan``: NaN, Infinity and -Infinity
    without quotes, which is no JSON, are taken for floats and doubles. ``latin1_bytes``: a text for bytes has a byte a
    character (Avro's own JSON form), not the bytes of its UTF-8. ``check_texts``: the texts of an enum must be its symbols,
    those of a uuid one. ``drop_utc``: a Z behind a date, a time or a local timestamp, as Debezium writes them in ISO, is
    left out.
    """

    round_numbers: bool = False
    truncate_times: bool = False
    bare_nan: bool = False
    latin1_bytes: bool = False
    check_texts: bool = True
    drop_utc: bool = False


STRICT = DecodeRules()
