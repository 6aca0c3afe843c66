"""Which messages are events of the stream's rows: not those of other tables, and not those without a row.

A topic may have events of several tables, and a row of one must not be used as a row of another. Every change-stream
format names the table of an event: Debezium in ``source``, Maxwell and Canal outside of the row. A stream reads the
tables that its options name, or the first table that it sees.

Debezium's messages without a row are recognized by their form. They are counted and skipped. Source: Debezium's
documentation. Transaction metadata ("Transaction metadata"): ``status`` BEGIN or END, ``id``, ``event_count``,
``data_collections``. Heartbeats ("heartbeat.interval.ms"): only ``ts_ms``. Schema changes ("Schema change topic"):
``ddl`` or ``tableChanges`` with ``databaseName``. Signals ("Sending signals"): rows of the signaling table, whose
columns are ``id``, ``type`` and ``data``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.columns import mask_of, nulls_of
from tagstream.streaming.source.decode.json_decoder import JsonDecoder
from tagstream.streaming.source.decode.record_decoder import Path
from tagstream.streaming.source.decode.record_format import STRICT, Mask
from tagstream.table.chunks import flat

# Columns in addition to the row's. In a flattened record each may be at two places.
DATABASE, SCHEMA, TABLE = "@database", "@schema", "@table"
NAMES = (DATABASE, SCHEMA, TABLE)
Decode = Callable[[pa.Array], tuple[pa.Table, pa.Array]]
_MANY = 0.02  # with a greater share of skipped messages, their names are read first
_SEEN = re.compile(r'the stream reads table ("(?:[^"\\]|\\.)*")')


@dataclass(frozen=True)
class SourceTables:
    """``patterns``: regular expressions of the tables whose events are read; events of other tables are skipped.
    ``pinned``: without patterns the one table; an event of another table is bad. None: the first table that is seen.
    """

    patterns: tuple[str, ...] = ()
    pinned: str | None = None


def name_fields(*paths: Path) -> tuple[list[pa.Field], dict[str, Path]]:
    """The columns for a table's name, which are read in addition to the row. ``paths``: of database, schema and table;
    empty for a part that does not exist.
    """
    found = {name: path for name, path in zip(NAMES, paths, strict=True) if path}
    return [pa.field(name, pa.string()) for name in found], found


def seen_text(table: str) -> str:
    """The text with which a task reports the first table that it has seen. :func:`seen_table` parses it."""
    return f"the stream reads table {json.dumps(table)}, the table of its first record"


def seen_table(text: str) -> str | None:
    """The table that a task has reported; None where the text has none."""
    found = _SEEN.search(text)
    return None if found is None else str(json.loads(found.group(1)))


def table_name(words: Sequence[str | None]) -> str:
    """The name of a table from those of database, schema and table. None or an empty text: that part does not exist."""
    return ".".join(word for word in words if word)


class TableFilter:
    """Separates events of the stream's tables from events of other tables."""

    def __init__(self, wanted: SourceTables) -> None:
        self._wanted = wanted
        self._patterns = [re.compile(pattern) for pattern in wanted.patterns]
        self._judged: dict[str, bool] = {}
        self._first: str | None = None

    @property
    def skips(self) -> bool:
        """Whether events of other tables are skipped; otherwise they are bad."""
        return bool(self._patterns)

    @property
    def is_open(self) -> bool:
        """Whether the stream has no table yet. It will use the first table that is seen."""
        return not self._patterns and self._wanted.pinned is None

    def take_first(self) -> str | None:
        """The first table that was seen since the last call, while the stream has none."""
        found, self._first = self._first, None
        return found

    def foreign(self, rows: pa.Table) -> Mask:
        """Mask of events of other tables. An event that names no table counts as the stream's."""
        names, codes = _named(rows)
        if not names:
            return np.zeros(rows.num_rows, np.bool_)
        if self.is_open and self._first is None:
            first = codes[codes >= 0]
            self._first = names[int(first[0])] if len(first) else None
        verdicts = np.array([*(not self.is_own(name) for name in names), False])  # the last: code -1
        found: Mask = verdicts[codes]
        return found

    def reasons(self, rows: pa.Table, foreign: Mask) -> pa.Array:
        """Why the events of other tables are bad; null for others, and where they are skipped."""
        if self.skips or not foreign.any():
            return pa.nulls(rows.num_rows, pa.string())
        names, codes = _named(rows)
        told = pa.array(names, pa.string()).take(pa.array(np.where(foreign, codes, 0)))
        text = pc.binary_join_element_wise(
            "an event of table ", told, f", but the stream reads {self._wanted.pinned} (tagstream.source.tables)", ""
        )
        return pc.if_else(pa.array(foreign), text, pa.scalar(None, pa.string()))

    def has_own(self, rows: pa.Table) -> bool:
        """Whether one of the events is of the stream's tables, so that the schema of the events counts.

        False while the stream has no table yet: then the batch is read again later.
        """
        if self.is_open and _named(rows)[0]:
            return False
        return bool((~self.foreign(rows)).any())

    def is_own(self, name: str) -> bool:
        """Whether a table is one of the stream's. While the stream has none yet, every table is."""
        if name not in self._judged:
            self._judged[name] = self._judge(name)
        return self._judged[name]

    def _judge(self, name: str) -> bool:
        if not self._patterns:
            return self._wanted.pinned in (None, name)
        below = name.split(".", 1)[-1]  # for PostgreSQL, Debezium's lists have schema.table
        return any(pattern.fullmatch(text) for pattern in self._patterns for text in (name, below))


def _named(rows: pa.Table) -> tuple[list[str], np.ndarray]:
    """The names of the tables (``database.schema.table`` without missing parts), and for each row its number in them;
    -1 where it names none.
    """
    if not rows.num_rows or TABLE not in rows.column_names:
        return [], np.zeros(0, np.int64)
    columns = [flat(rows.column(name)) for name in NAMES if name in rows.column_names]
    if columns[-1].null_count == rows.num_rows:
        return [], np.zeros(0, np.int64)
    if all(_is_one_value(column) for column in columns):  # a topic of one table, the usual case
        return [table_name([column[0].as_py() for column in columns])], np.zeros(rows.num_rows, np.int64)
    parts = [column.dictionary_encode() for column in columns]
    sizes = [len(part.dictionary) + 1 for part in parts]
    numbered = zip(parts, sizes, strict=True)
    places = [pc.fill_null(part.indices, size - 1).to_numpy().astype(np.int64) for part, size in numbered]
    mixed = reduce(lambda one, two: one * two[1] + two[0], zip(places[1:], sizes[1:], strict=True), places[0])
    distinct, codes = np.unique(mixed, return_inverse=True)
    names: list[str] = []
    numbers = np.full(len(distinct), -1, np.int64)
    for i, at in enumerate(distinct.tolist()):  # a loop over tables
        words: list[str | None] = []
        for part, size in zip(reversed(parts), reversed(sizes), strict=True):
            at, place = divmod(at, size)
            words.append(part.dictionary[place].as_py() if place < size - 1 else None)
        if words[0] is not None:
            numbers[i] = len(names)
            names.append(table_name(words[::-1]))
    return names, numbers[codes]


def _is_one_value(column: pa.Array) -> bool:
    if column.null_count:
        return bool(column.null_count == len(column))
    return bool(pc.all(pc.equal(column, column[0])).as_py())


class NameReader:
    """Reads only the tables' names of JSON messages: for messages whose rows cannot be decoded, and for all messages
    where many are skipped.

    ``places``: where database, schema and table may be; an empty path: nowhere.
    """

    def __init__(self, gate: TableFilter, places: Sequence[tuple[Path, Path, Path]]) -> None:
        self._gate = gate
        self._places = [dict(zip(NAMES, place, strict=True)) for place in places]
        paths = {f"{name}{i}": path for i, place in enumerate(self._places) for name, path in place.items() if path}
        self._decoder = JsonDecoder(pa.schema([pa.field(name, pa.string()) for name in paths]), None, STRICT, paths)
        self._share = 0.0

    def decode(self, values: pa.Array, decode: Decode) -> tuple[pa.Table, pa.Array, Mask]:
        """The rows with their tables' names, why others are bad, and a mask of those that were skipped without
        decoding.

        ``values``: messages without nulls.
        """
        values, sifted = self._sift(values)
        rows, reason = decode(values)
        return self._fill(rows, reason, values), reason, sifted

    def foreign(self, rows: pa.Table, sifted: Mask) -> Mask:
        """Mask of events of other tables (``TableFilter.foreign``), including those that were skipped without decoding."""
        found: Mask = self._gate.foreign(rows) | sifted
        self._share = float(found.mean()) if len(found) else self._share
        return found

    def _sift(self, values: pa.Array) -> tuple[pa.Array, Mask]:
        """The messages, and a mask of the skipped ones. Where many were skipped before, these are replaced by an empty
        object.
        """
        nothing = np.zeros(len(values), np.bool_)
        if not self._gate.skips or self._share < _MANY:
            return values, nothing
        foreign = self._gate.foreign(self._names(values))
        kept = pc.if_else(pa.array(foreign), pa.scalar(b"{}", values.type), values) if foreign.any() else values
        return kept, foreign

    def _fill(self, rows: pa.Table, reason: pa.Array, values: pa.Array) -> pa.Table:
        """The rows, with the table names of those that could not be decoded."""
        at = np.flatnonzero(~nulls_of(reason) & nulls_of(rows.column(TABLE)))
        if not len(at):
            return rows
        found = self._names(values.take(pa.array(at)))
        place = np.full(rows.num_rows, -1, np.int64)
        place[at] = np.arange(len(at))
        take = pa.array(place, mask=place < 0)
        for name in NAMES:
            i = rows.schema.get_field_index(name)
            if i >= 0:
                both = pc.coalesce(flat(rows.column(i)), found.column(name).combine_chunks().take(take))
                rows = rows.set_column(i, rows.schema.field(i), both)
        return rows

    def _names(self, values: pa.Array) -> pa.Table:
        read, _ = self._decoder.decode(values)
        nothing = pa.nulls(len(values), pa.string())
        columns = {}
        for name in NAMES:
            parts = [flat(read.column(f"{name}{i}")) for i, place in enumerate(self._places) if place[name]]
            columns[name] = pc.coalesce(*parts) if parts else nothing
        return pa.table(columns)


TRUNCATE = (
    "the source truncated the table (TRUNCATE), and tagstream.debezium.truncate=fail stops the job: set it to delete to "
    "remove all rows of this table, too, or to ignore to keep them"
)
NO_ROW = "a message without a row"  # used instead of a reason: the message is skipped
_SHAPES = (
    (r'"status"\s*:\s*"(BEGIN|END)"', r'"event_count"\s*:', r'"data_collections"\s*:'),
    (r'^\s*(\{\s*"schema"\s*:\s*\{.*,\s*"payload"\s*:\s*)?\{\s*"ts_ms"\s*:\s*[0-9]+\s*\}\s*\}?\s*$',),
    (r'"databaseName"\s*:', r'"(ddl|tableChanges)"\s*:'),
)
_SIGNALS = (
    "log|schema-changes|execute-snapshot|stop-snapshot|pause-snapshot|resume-snapshot|snapshot-window-open|"
    "snapshot-window-close"
)
_SIGNAL = rf'"(before|after)"\s*:\s*\{{\s*"id"\s*:\s*"[^"]*"\s*,\s*"type"\s*:\s*"({_SIGNALS})"\s*,\s*"data"\s*:'
_SIGNAL_FIELDS = {"id", "type", "data"}
_FIELDS = (
    {"status", "id", "event_count", "data_collections"},
    {"databaseName", "ddl"},
    {"databaseName", "tableChanges"},
)


def without_row(values: pa.Array, asked: Mask) -> Mask:
    """Mask of the JSON messages that have no row. ``asked``: mask of the messages to check, which are not events."""
    found = np.zeros(len(values), np.bool_)
    at = np.flatnonzero(asked)
    if not len(at):
        return found
    mine = pc.fill_null(values.take(pa.array(at)), b"")
    hits = np.zeros(len(at), np.bool_)
    for shape in _SHAPES:
        here = np.ones(len(at), np.bool_)
        for pattern in shape:
            here &= mask_of(pc.match_substring_regex(mine, f"(?s){pattern}"))
        hits |= here
    found[at] = hits
    return found


def signals(values: pa.Array, asked: Mask) -> Mask:
    """Mask of the JSON messages that are rows of Debezium's signaling table. ``asked``: mask of the messages to check."""
    found = np.zeros(len(values), np.bool_)
    at = np.flatnonzero(asked)
    if len(at):
        found[at] = mask_of(pc.match_substring_regex(pc.fill_null(values.take(pa.array(at)), b""), _SIGNAL))
    return found


def is_of_signals(row: Mapping[str, Any]) -> bool:
    """Whether an Avro row schema is that of the signaling table."""
    return {f["name"] for f in row.get("fields") or () if isinstance(f, dict) and "name" in f} == _SIGNAL_FIELDS


def is_rowless(schema: Mapping[str, Any]) -> bool:
    """Whether records of an Avro schema have no row."""
    names = {field["name"] for field in schema.get("fields") or () if isinstance(field, dict) and "name" in field}
    return names == {"ts_ms"} or ("op" not in names and any(shape <= names for shape in _FIELDS))
