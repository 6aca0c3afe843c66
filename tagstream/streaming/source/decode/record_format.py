"""The interface of a record format: the events that it makes of raw records, and the facts and rules that it uses.

``DecodeRules`` say how strict a decoder is: by default it rejects a value if its column would lose a part of it.
``Facts`` are what an Avro schema says about fields beyond their Arrow types, at every depth: defaults, the symbols of
enums, uuids.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from operator import eq
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tagstream.table.config import Kind
from tagstream.table.option_fields import option
from tagstream.table.schema.record_schema import default_of

Mask = npt.NDArray[np.bool_]
# The end of a message about a missing partition: why it is needed.
BY_PARTITION = "identifies a row together with its key (index.global.enabled=false, or an index that is not global)"


@dataclass(frozen=True)
class Events:
    """Decoded records. All columns are aligned with ``batch`` (``key, value, src, pos_hi, pos_lo`` of each event).

    - ``rows``: the schema's columns, all nullable
    - ``reason``: why a record is bad, else null
    - ``deleted``: deletes
    - ``by_key``: only the row's key counts, as for a delete whose row image is not reliable
    - ``skipped``: the record changes no row
    - ``keys``: record keys that are not made from ``rows``; null where they are
    - ``ordering``: ordering values for a table without an ordering field; null: unknown
    - ``unordered``: upserts that may have no ordering value
    - ``absent``: the columns of the row that were not sent, as bits (``columns.pack_absent``); null: all were sent
    - ``old_keys``: record keys of the rows that have the values that were not sent, where these are rows of another key
    - ``key_changed``: deletes of keys whose rows continue with another key; its records may lack the row's values
    - ``new_keys``: these other record keys, where known
    - ``keeps_place``: upserts whose partition was not sent: an existing row stays in its partition, and a new row goes to
      that of ``rows``
    - ``lines``: returns the bytes of bad records (by a mask), for a format whose records have no ``value``
    - ``truncates``: the skipped events that truncated the table, by their ordering
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
    truncates: Mask | None = None


@dataclass(frozen=True)
class Noticed:
    """A schema of records that would change the table's.

    ``avro_json``: the writer's schema. ``source``: its name in messages. ``rank``: older schemas come first.
    """

    rank: int
    source: str
    avro_json: str


class Watch(Protocol):
    """Gets the schemas of records, and returns those that would change the table's (``record_schemas.SchemaWatch``)."""

    def saw_avro(self, number: int, schema: Mapping[str, Any]) -> None: ...
    def saw_connect(self, key: bytes, fields: Mapping[str, Mapping[str, Any]]) -> None: ...
    def saw_file(self, key: bytes, rank: int, source: str, avro_json: Callable[[], str]) -> None: ...
    def take(self) -> list[Noticed]: ...


@runtime_checkable
class NamesTables(Protocol):
    """A format whose records name their table."""

    @property
    def wants_table(self) -> bool:
        """Whether the stream has no table yet. It will use the first table that it sees."""
        ...

    def first_table(self) -> str | None:
        """The first table that was seen since the last call, for a stream that has none yet."""
        ...


class RecordFormat(Protocol):
    """A record format. ``may_lack``: its upserts may lack columns (``Events.absent``)."""

    may_lack: bool

    def read(self, batch: pa.RecordBatch) -> Events:
        """Decode ``key, value, src, pos_hi, pos_lo`` and, where the source has it, ``old_key``.

        The events have the order of the records. A record may have no event or several.
        """
        ...


FAULT = "fault"  # a column of raw records: why a record cannot be read, else null
ITEM = "item"  # the elements of an array, the values of a map


@dataclass(frozen=True)
class Facts:
    """Facts of a field. ``default``: JSON default other than null. ``children``: of a record by name, of an array or
    map its ``ITEM``.

    ``aliases``: other names of the column in records.
    """

    default: Any = None
    symbols: tuple[str, ...] | None = None
    is_uuid: bool = False
    children: Mapping[str, Facts] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()

    @property
    def restricts(self) -> bool:
        """Whether some texts do not fit."""
        return self.symbols is not None or self.is_uuid


NO_FACTS = Facts()


def avro_facts(avro_json: str) -> dict[str, Facts]:
    """The facts of a record schema's fields, by name."""
    record = json.loads(avro_json)
    aliases = {f["name"]: tuple(f.get("aliases") or ()) for f in record["fields"]}
    found = _of(record, {}, "", None).children
    return {name: replace(known, aliases=aliases[name]) for name, known in found.items()}


def _of(kind: Any, named: dict[str, Any], space: str, default: Any) -> Facts:
    """Facts of a schema. ``named``: the named types that were defined before it, by full name."""
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
    """Which values are accepted although the column cannot store all of them, and which forms of values are accepted.

    ``round_numbers``: digits that a float, a double or a decimal cannot store are rounded. ``truncate_times``: digits
    after the column's last one are cut off, and so is the time of day of a date. ``bare_nan``: NaN, Infinity and
    -Infinity without quotes, which is not valid JSON, are accepted for floats and doubles. ``latin1_bytes``: a text for
    bytes has one byte per character (Avro's JSON form), instead of being UTF-8. ``check_texts``: the texts of an enum
    must be its symbols, and those of a uuid must be uuids. ``drop_utc``: a Z after a date, a time or a local timestamp,
    as Debezium writes them in ISO form, is ignored.
    """

    round_numbers: bool = option(
        "tagstream.decode.numbers",
        Kind.CHOICE,
        "Digits that do not fit a float, double or decimal make a record bad (`strict`), or are "
        "rounded (`round`; decimals: half away from zero). A number that is too large is always bad, "
        "and so is a fraction in a column of whole numbers.",
        default="strict",
        values={"STRICT": "strict", "ROUND": "round"},
        convert=partial(eq, "round"),
    )
    truncate_times: bool = option(
        "tagstream.decode.times",
        Kind.CHOICE,
        "Digits of a second that do not fit the column, and the time of day of a date, make a record "
        "bad (`strict`), or are cut off (`truncate`).",
        default="strict",
        values={"STRICT": "strict", "TRUNCATE": "truncate"},
        convert=partial(eq, "truncate"),
    )
    bare_nan: bool = option(
        "tagstream.decode.nan",
        Kind.CHOICE,
        "The form of NaN, Infinity and -Infinity in float and double columns: quoted, as Jackson and "
        "Spark write them (`quoted`), or also without quotes (`bare`), which is not valid JSON.",
        default="quoted",
        values={"QUOTED": "quoted", "BARE": "bare"},
        convert=partial(eq, "bare"),
    )
    latin1_bytes: bool = option(
        "tagstream.decode.bytes",
        Kind.CHOICE,
        "How a string in a column of bytes or fixed is decoded: as UTF-8 (`utf-8`), or one byte per "
        "character, U+0000 to U+00FF, as in Avro's JSON encoding (`iso-8859-1`); in formats of "
        "Debezium as `base64` or `hex`, as in the connector's `binary.handling.mode`. Change it only "
        "for a new table: existing rows are not changed.",
        default_note="utf-8; base64 in formats of Debezium",
        values={
            "UTF-8": "utf-8",
            "UTF8": "utf-8",
            "ISO-8859-1": "iso-8859-1",
            "LATIN1": "iso-8859-1",
            "BASE64": "base64",
            "HEX": "hex",
        },
        convert=partial(eq, "iso-8859-1"),
        unread=False,
    )
    check_texts: bool = option(
        "tagstream.decode.texts",
        Kind.CHOICE,
        "A string that is not a symbol of its enum, or not a UUID where the schema requires one, makes "
        "a record bad (`strict`), or is stored unchanged (`any`).",
        default="strict",
        values={"STRICT": "strict", "ANY": "any"},
        convert=partial(eq, "strict"),
    )
    drop_utc: bool = False


STRICT = DecodeRules()
