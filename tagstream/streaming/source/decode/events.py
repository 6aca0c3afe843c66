"""What a format makes of raw records: the interface that every format of a source has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
