"""Messages of Debezium that are of no row, known by their shape: they are counted and passed over.

Facts: Debezium's documentation. Transaction metadata ("Transaction metadata"): ``status`` BEGIN or END, ``id``,
``event_count``, ``data_collections``. Heartbeats ("heartbeat.interval.ms"): ``ts_ms`` alone. Schema changes ("Schema change
topic"): ``ddl`` or ``tableChanges`` with ``databaseName``. Signals ("Sending signals"): rows of the signaling table, whose
columns are ``id``, ``type`` and ``data``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.columns import mask_of
from tagstream.streaming.source.decode.events import Mask

EMPTIED = (
    "the table was emptied at its source (TRUNCATE), where tagstream.debezium.truncate=fail stops: empty this table, too "
    "(delete), or go on with its rows (ignore)"
)
NO_ROW = "a message of no row"  # in place of a reason: the message is passed over
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
    """Which of the JSON messages that are asked for are of no row; ``asked``: those that are no event."""
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
    """Which of the JSON messages that are asked for are rows of Debezium's signaling table."""
    found = np.zeros(len(values), np.bool_)
    at = np.flatnonzero(asked)
    if len(at):
        found[at] = mask_of(pc.match_substring_regex(pc.fill_null(values.take(pa.array(at)), b""), _SIGNAL))
    return found


def is_of_signals(row: Mapping[str, Any]) -> bool:
    """Whether the Avro schema of rows is that of the signaling table."""
    return {f["name"] for f in row.get("fields") or () if isinstance(f, dict) and "name" in f} == _SIGNAL_FIELDS


def is_rowless(schema: Mapping[str, Any]) -> bool:
    """Whether records of an Avro schema are of no row."""
    names = {field["name"] for field in schema.get("fields") or () if isinstance(field, dict) and "name" in field}
    return names == {"ts_ms"} or ("op" not in names and any(shape <= names for shape in _FIELDS))
