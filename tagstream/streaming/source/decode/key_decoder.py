"""Decode a record: what the index needs (key, partition, ordering value, delete or not), the row, and whether it is
good.

After the tag step no record may be dropped, so all reasons for a bad record are found here. A record is parsed once.

A state key identifies a row for the index: ``GLOBAL_KEY + key`` or ``PARTITIONED_KEY + partition + NUL + key``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.state.layout import has_bytes
from tagstream.state.ordering import ordering_codes, ordering_kind
from tagstream.state.tag_batch import (
    FLAG_DELETE,
    FLAG_NO_ORDERING,
    FLAG_NO_PARTITION,
    GLOBAL_KEY,
    PARTITIONED_KEY,
    Flag,
)
from tagstream.streaming.source.decode.columns import header_texts, mask_of, nulls_of, only_where, text_where
from tagstream.streaming.source.decode.plain_json import PlainJson, with_delete_mark
from tagstream.streaming.source.decode.record_format import (
    STRICT,
    DecodeRules,
    Events,
    Facts,
    NamesTables,
    RecordFormat,
    Watch,
)
from tagstream.table.chunks import flat
from tagstream.table.errors import ConfigError
from tagstream.table.fields import column_of, has_field, ordering_column, ordering_type, type_of
from tagstream.table.file_group.ordering_wrapper import DECIMAL_DIGITS, beyond
from tagstream.table.keys.keys import DEFAULT_PARTITION, KeyGenerator, check_partition_path


def state_keys(keys: pa.Array, partitions: pa.Array, *, global_index: bool) -> pa.Array:
    """State keys (binary) of record keys in their partitions. A global index ignores the partitions."""
    if global_index:
        return pc.binary_join_element_wise(GLOBAL_KEY, keys.cast(pa.binary()), b"")
    prefix = pc.binary_join_element_wise(PARTITIONED_KEY, partitions.cast(pa.binary()), b"")
    return pc.binary_join_element_wise(prefix, keys.cast(pa.binary()), b"\x00")


def record_keys(skeys: pa.Array) -> pa.Array:
    """Record keys (string) of state keys, null for a null: the text after the first byte, or after the NUL that ends
    the partition path.
    """
    flat = skeys.cast(pa.string())
    first = pc.first(flat).as_py()  # the first one that is not null
    if first is not None and first[:1] != GLOBAL_KEY.decode():
        return pc.list_element(pc.split_pattern(flat, "\0", max_splits=1), 1)
    # binary_slice of Arrow 26 fails on binary values ("Negative buffer resize"); the text form does not
    return pc.utf8_slice_codeunits(flat, 1)


FLAG_BAD = Flag.BAD.value
FLAG_SKIPPED = Flag.SKIPPED.value
FLAG_IMAGE = Flag.IMAGE.value
FLAG_TRUNCATE = Flag.TRUNCATE.value

HEADERS = "headers"

Mask = npt.NDArray[np.bool_]


class KeyDecoder:
    """Decodes records of one schema. ``facts``: what its Avro form says beyond the types. ``rules``: how strict it is.

    ``merge_on_read``: deletes go to log files, whose blocks cannot store every decimal. ``refuse_collisions``: a
    composite key that other values would also make is bad. ``record_format``: how events are read. The default is plain
    JSON, where ``partial`` means that a field which a record lacks was not sent. ``watch``: gets the schemas of
    records. ``longest_key``: the most bytes of a record key; a longer one is bad. ``partition_in_path_alone``: rows do
    not store the partition columns, so a record whose path does not give their values back is bad. ``operation``: the
    column of plain JSON whose ``D`` marks deletes. ``deletes_all``: every record deletes its key, whatever it says and
    whenever it happened (Hudi's operation DELETE).
    """

    def __init__(
        self,
        schema: pa.Schema,
        key_generator: KeyGenerator,
        ordering_fields: tuple[str, ...],
        global_index: bool,
        facts: Mapping[str, Facts] | None = None,
        *,
        rules: DecodeRules = STRICT,
        merge_on_read: bool = False,
        refuse_collisions: bool = False,
        record_format: RecordFormat | None = None,
        watch: Watch | None = None,
        partial: bool = False,
        longest_key: int | None = None,
        partition_in_path_alone: bool = False,
        operation: str | None = None,
        deletes_all: bool = False,
    ) -> None:
        key_generator.check(schema, digits=True)  # for a new table the start has checked it
        self._deletes_all = deletes_all
        self._longest_key = longest_key
        self._in_path_alone = partition_in_path_alone
        self.watch = watch
        self._generator = key_generator
        self._ordering = _RowOrder(schema, ordering_fields, merge_on_read=merge_on_read) if ordering_fields else None
        self._global = global_index
        self._refuse_collisions = refuse_collisions
        self._format = record_format or PlainJson(
            with_delete_mark(schema),
            facts,
            rules,
            key_fields=key_generator.record_key_fields,
            key_types=[type_of(schema, name) for name in key_generator.record_key_fields],
            names_partition=not global_index and bool(key_generator.partition_fields),
            refuse_collisions=refuse_collisions,
            partition_fields=key_generator.partition_fields,
            partial=partial,
            columns=len(schema),
            delete_fields=_heads(key_generator, ordering_fields),
            operation=operation,
        )
        self._names = schema.names

    @property
    def wants_table(self) -> bool:
        """Whether the stream's records name tables, and the stream has no table yet."""
        return isinstance(self._format, NamesTables) and self._format.wants_table

    def first_table(self) -> str | None:
        """The first table that was seen since the last call, for a stream that has none yet."""
        return self._format.first_table() if isinstance(self._format, NamesTables) else None

    def keys(self, batch: pa.RecordBatch, partition_depth: int | None = None) -> pa.RecordBatch:
        """One row per event of ``batch`` (``key, value, src, pos_hi, pos_lo``), without the blank lines of files.
        Columns:

        - ``skey``: the state's key; the message key of a bad record
        - ``part``: partition path
        - ``ord``: order-preserving int64, binary for a text; 0 or empty where unknown
        - ``flags``: 1 delete, 2 no ordering value, 4 no partition (of an upsert: none was sent), 8 bad, 16 skipped,
          64 truncate
        - ``src, pos_hi, pos_lo``: as given
        - ``row``: struct of the schema's fields, all nullable; undefined for a bad record
        - ``value``: the bytes of a bad record, and of one that lacks columns, else null
        - ``reason``: why the record is bad, else null
        - ``absent``, ``old``, ``new``, for a format whose records may lack columns: ``Events.absent``; the state key of the
          row that has the lacking values, or of a delete's own row if a later record needs it; the state key of that record
        - ``headers``, for messages with headers: as JSON (``header_texts``), where ``value`` is set

        ``partition_depth``: depth of the table's partitions, where known; a path with another depth is bad.
        """
        events = self._format.read(batch)
        if self._deletes_all:
            events = _deletes(events)
        batch, rows, deleted = events.batch, events.rows, events.deleted
        made = np.zeros(batch.num_rows, np.bool_) if events.keys is None else ~nulls_of(events.keys)
        of_row = ~made & ~events.skipped
        reason = pc.coalesce(events.reason, only_where(of_row, self._generator.key_errors(rows)))
        if self._refuse_collisions:
            reason = pc.coalesce(reason, only_where(of_row, self._generator.collisions(rows)))
        keys, parts = self._generator.record_keys(rows), self._generator.partition_paths(rows)
        if events.keys is not None:
            keys = pc.coalesce(events.keys, keys)
        reason = pc.coalesce(reason, only_where(~events.skipped, self._too_long(keys)))
        no_part = self._no_partition(rows, parts, deleted, events.by_key)
        stays = np.zeros(batch.num_rows, np.bool_) if events.keeps_place is None else events.keeps_place
        faults = check_partition_path(parts, partition_depth, self._generator.least_depth)
        if self._generator.time_fields:
            faults = pc.coalesce(self._generator.partition_errors(rows), faults)
        if self._in_path_alone:
            faults = pc.coalesce(faults, self._generator.lost_values(rows, parts))
        reason = pc.coalesce(reason, only_where(~no_part & ~stays & ~events.skipped, faults))
        no_order, ordering = self._order(events)
        reason = pc.coalesce(reason, self._order_faults(events))
        bad = ~nulls_of(reason)
        flags = deleted * FLAG_DELETE + no_order * FLAG_NO_ORDERING + (no_part | stays) * FLAG_NO_PARTITION
        flags = np.where(events.skipped, FLAG_SKIPPED, flags)
        if events.truncates is not None:
            flags = np.where(events.truncates, FLAG_SKIPPED | FLAG_TRUNCATE, flags)
        aside = bad | events.skipped
        skey = state_keys(keys, parts, global_index=self._global)
        if aside.any():
            skey = pc.if_else(pa.array(aside), batch.column("key").cast(pa.binary()), skey)
        columns = {
            "skey": skey,
            "part": only_where(~(no_part | aside), parts),
            "ord": ordering,
            "flags": pa.array(np.where(bad, FLAG_BAD, flags).astype(np.int8)),
            "src": batch.column("src"),
            "pos_hi": batch.column("pos_hi"),
            "pos_lo": batch.column("pos_lo"),
            "row": _struct(rows.select(self._names)),
            "value": only_where(bad, batch.column("value")) if events.lines is None else events.lines(bad),
            "reason": reason,
        }
        if self._format.may_lack:
            columns |= self._values_in_other_rows(events, ~aside, skey)
            # a record whose lacking values are found nowhere becomes bad later
            bad = bad | ~nulls_of(columns["absent"])
            columns["value"] = only_where(bad, batch.column("value"))
        if HEADERS in batch.schema.names:
            columns[HEADERS] = header_texts(batch.column(HEADERS), bad)
        return pa.RecordBatch.from_pydict(columns)

    def _too_long(self, keys: pa.Array) -> pa.Array:
        """Why an index cannot store a record key; null where it can."""
        if self._longest_key is None:
            return pa.nulls(len(keys), pa.string())
        lengths = pc.fill_null(pc.binary_length(keys), 0)
        great = mask_of(pc.greater(lengths, self._longest_key))
        return text_where(
            great, f"the record key is longer than the {self._longest_key} bytes that the index can store"
        )

    def _no_partition(self, rows: pa.Table, parts: pa.Array, deleted: Mask, by_key: Mask) -> Mask:
        """Deletes that get their partition from the index, because a partition field is null. Only possible with a
        global index.
        """
        if not self._generator.partition_fields or not deleted.any():
            return np.zeros(len(parts), np.bool_)
        if not self._global:
            return np.zeros(len(parts), np.bool_)
        unknown = mask_of(pc.match_substring(parts, DEFAULT_PARTITION))
        if self._generator.time_fields:
            unknown = unknown | mask_of(self._generator.lacks_partition(rows))
        return by_key | (deleted & unknown)

    def _order(self, events: Events) -> tuple[Mask, pa.Array]:
        """(mask of events without an ordering value, the encoded values)."""
        rows, count = events.rows, events.rows.num_rows
        if self._deletes_all and self._ordering is not None:
            return np.ones(count, np.bool_), self._ordering.unknown(count)
        if events.ordering is not None:
            empty = pa.scalar(b"" if pa.types.is_binary(events.ordering.type) else 0, events.ordering.type)
            return nulls_of(events.ordering), pc.fill_null(events.ordering, empty)
        if self._ordering is None:
            return events.by_key.copy() if events.keys is not None else np.zeros(count, np.bool_), _zeros(count)
        return self._ordering.read(rows)

    def _order_faults(self, events: Events) -> pa.Array:
        """Why a record's ordering value cannot be used; null where it can, or where none is needed."""
        if self._ordering is None or events.ordering is not None or self._deletes_all:
            return pa.nulls(events.rows.num_rows, pa.string())
        free = events.deleted | events.skipped
        if events.unordered is not None:
            free = free | events.unordered
        return self._ordering.faults(events.rows, ~free)

    def _values_in_other_rows(self, events: Events, good: Mask, skey: pa.Array) -> dict[str, pa.Array]:
        """The columns ``absent``, ``old`` and ``new``."""
        nothing = pa.nulls(len(good), pa.binary())
        absent = nothing if events.absent is None else only_where(good, events.absent)
        parts = pa.nulls(len(good), pa.string())
        old = new = nothing
        if events.old_keys is not None:
            old = only_where(~nulls_of(absent), state_keys(events.old_keys, parts, global_index=True))
        if events.key_changed is not None and self._global:
            old = pc.if_else(pa.array(events.key_changed & good), skey, old)
            if events.new_keys is not None:
                new = only_where(good, state_keys(events.new_keys, parts, global_index=True))
        return {"absent": absent, "old": old, "new": new}


class _RowOrder:
    """The order of a schema's rows by its ordering fields. ``merge_on_read``: deletes go to log files."""

    def __init__(self, schema: pa.Schema, fields: Sequence[str], *, merge_on_read: bool) -> None:
        for name in fields:
            if not has_field(schema, name):
                raise ConfigError(
                    f"ordering field {name} is not in the schema ({', '.join(schema.names)}); "
                    "correct hoodie.table.ordering.fields"
                )
        self._fields = tuple(fields)
        self._merge_on_read = merge_on_read
        self._kind = ordering_kind(ordering_type(schema, fields))  # raises for a type that can't be ordered
        self._floats = [name for name in fields if pa.types.is_floating(type_of(schema, name))]

    def read(self, rows: pa.Table) -> tuple[Mask, pa.Array]:
        """(mask of rows without an ordering value, the encoded values; 0 or empty where there is none)."""
        values = ordering_column(rows, self._fields)
        if values is None:
            return np.zeros(rows.num_rows, np.bool_), pa.array(np.zeros(rows.num_rows, np.int64))
        return nulls_of(values), ordering_codes(values)

    def unknown(self, count: int) -> pa.Array:
        """The encoded values of so many events without an ordering value."""
        return pa.array([b""] * count, pa.binary()) if has_bytes(self._kind) else _zeros(count)

    def faults(self, rows: pa.Table, needed: Mask) -> pa.Array:
        """Why a row's ordering value cannot be used; null where it can. ``needed``: rows that must have one."""
        reason = pa.nulls(rows.num_rows, pa.string())
        for name in self._fields:
            column = column_of(rows, name)
            if column.null_count:
                reason = pc.coalesce(reason, text_where(nulls_of(column) & needed, f"ordering field {name} is null"))
        for name in self._floats:
            nan = mask_of(pc.is_nan(column_of(rows, name)))
            reason = pc.coalesce(reason, text_where(nan, f"ordering field {name} is NaN, which has no order"))
        for name in self._fields if self._merge_on_read else ():
            great = beyond(column_of(rows, name))
            if great is not None:
                text = (
                    f"ordering field {name} has more than {DECIMAL_DIGITS} digits before the point, which the deletes of "
                    "a merge-on-read table cannot store"
                )
                reason = pc.coalesce(reason, text_where(great, text))
        return reason


def _deletes(events: Events) -> Events:
    """The same events as deletes of their keys. A skipped one changes no row, and a truncate is skipped."""
    return Events(
        events.batch, events.rows, events.reason, ~events.skipped, events.by_key, events.skipped, events.keys,
        lines=events.lines,
    )  # fmt: skip


def _heads(generator: KeyGenerator, ordering_fields: Sequence[str]) -> list[str]:
    """The columns that a delete needs, with the struct columns of nested fields."""
    fields = (*generator.record_key_fields, *generator.partition_fields, *ordering_fields)
    return [part for name in fields for part in (name, name.split(".")[0])]


def _struct(rows: pa.Table) -> pa.StructArray:
    return pa.StructArray.from_arrays([flat(column) for column in rows.columns], fields=list(rows.schema))


def _zeros(count: int) -> pa.Array:
    return pa.array(np.zeros(count, np.int64))
