"""A record decoded: what the index needs of it (key, partition, ordering, delete or not), its row, and whether it is good.

After the tag step no record may be dropped, so everything that makes one bad is found here. A record is parsed once.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.state.ordering import encode_ordering, ordering_kind
from tagstream.state.tag_batch import FLAG_DELETE, FLAG_NO_ORDERING, FLAG_NO_PARTITION
from tagstream.streaming.source.decode.facts import Facts
from tagstream.streaming.source.decode.json_decoder import JsonDecoder
from tagstream.streaming.source.decode.rules import STRICT, DecodeRules
from tagstream.streaming.source.decode.state_keys import state_keys
from tagstream.table.errors import ConfigError, InvalidKeyError
from tagstream.table.file_group.log.ordering_wrapper import DECIMAL_DIGITS, greatest_decimal
from tagstream.table.keys.keys import KeyGenerator, check_partition_path, record_key_from_message
from tagstream.table.keys.partition_path import DEFAULT_PARTITION

FLAG_BAD = 8
DELETED = "_hoodie_is_deleted"

_TEXT = pa.string()


class KeyDecoder:
    """Decodes records of one schema; ``facts``: what its Avro form says beyond the types; ``rules``: how strictly.

    ``merge_on_read``: deletes go to log files, whose blocks do not hold every decimal. ``refuse_collisions``: a composite
    key that other values would make, too, is bad.
    """

    def __init__(
        self,
        schema: pa.Schema,
        key_generator: KeyGenerator,
        ordering_field: str | None,
        global_index: bool,
        facts: Mapping[str, Facts] | None = None,
        *,
        rules: DecodeRules = STRICT,
        merge_on_read: bool = False,
        refuse_collisions: bool = False,
    ) -> None:
        key_generator.check(schema)
        if ordering_field is not None and ordering_field not in schema.names:
            raise ConfigError(
                f"ordering field {ordering_field} is not in the schema ({', '.join(schema.names)}); "
                "correct hoodie.table.ordering.fields"
            )
        with_delete = schema
        if DELETED not in schema.names:
            # A delete must not become an upsert only because the table has no column for the mark.
            with_delete = schema.append(pa.field(DELETED, pa.bool_()))
        elif not pa.types.is_boolean(schema.field(DELETED).type):
            raise ConfigError(f"field {DELETED} is {schema.field(DELETED).type}; it marks deletes and must be boolean")
        self._generator = key_generator
        self._ordering = ordering_field
        self._global = global_index
        self._refuse_collisions = refuse_collisions
        self._key_types = [_type_at(schema, name) for name in key_generator.record_key_fields]
        self._keys = JsonDecoder(with_delete, facts, rules)
        self._names = schema.names
        ordering_type = None if ordering_field is None else schema.field(ordering_field).type
        self._float_ordering = ordering_type is not None and pa.types.is_floating(ordering_type)
        self._text_ordering = ordering_kind(ordering_type) == "bytes"
        self._greatest = greatest_decimal(ordering_type) if merge_on_read and ordering_type is not None else None

    def keys(self, batch: pa.RecordBatch, partition_depth: int | None = None) -> pa.RecordBatch:
        """One row per record of ``batch`` (``key, value, src, pos_hi, pos_lo``), without the blank lines of files.

        Columns: ``skey`` (the state's key; the message key of a bad record), ``part``, ``ord`` (order-preserving int64,
        binary for a text; 0 or empty where unknown), ``flags`` (1 delete, 2 no ordering, 4 no partition, 8 bad),
        ``src, pos_hi, pos_lo`` as given, ``row`` (struct of the schema's fields, all nullable; of no use where bad),
        ``value`` (the bytes of a bad record, else null), ``reason`` (why bad, else null). ``partition_depth``: of the
        table's partitions, where it is known; a path of another one is bad.
        """
        batch = _without_blank_lines(batch)
        rows, reason = self._keys.decode(batch.column("value"))
        reason = pc.coalesce(reason, self._generator.key_errors(rows))
        if self._refuse_collisions:
            reason = pc.coalesce(reason, self._generator.collisions(rows))
        keys, parts = self._generator.record_keys(rows), self._generator.partition_paths(rows)
        deleted = _mask(rows.column(DELETED))
        no_part = self._no_partition(parts, deleted)
        no_order, ordering = self._order(rows)
        path_faults = check_partition_path(parts, partition_depth, len(self._generator.partition_fields))
        reason = pc.coalesce(reason, pc.if_else(pa.array(no_part), pa.scalar(None, _TEXT), path_faults))
        if self._ordering is not None:
            missing = pc.if_else(
                pa.array(no_order & ~deleted), f"ordering field {self._ordering} is null", pa.scalar(None, _TEXT)
            )
            reason = pc.coalesce(reason, missing)
            if self._float_ordering:
                reason = pc.coalesce(reason, self._no_number(rows))
        if self._greatest is not None:
            reason = pc.coalesce(reason, self._too_great(ordering))
        tombstone = batch.column("value").is_null().to_numpy(zero_copy_only=False)
        if tombstone.any():
            keys, reason = self._tombstones(batch.column("key"), np.flatnonzero(tombstone), keys, reason)
            deleted, no_order = deleted | tombstone, no_order | tombstone
            if self._generator.partition_fields:
                no_part = no_part | tombstone
        bad = reason.is_valid().to_numpy(zero_copy_only=False)
        flags = deleted * FLAG_DELETE + no_order * FLAG_NO_ORDERING + no_part * FLAG_NO_PARTITION
        skey = state_keys(keys, parts, global_index=self._global)
        if bad.any():
            skey = pc.if_else(pa.array(bad), batch.column("key").cast(pa.binary()), skey)
        no_part_now = pa.array(no_part | bad)
        return pa.RecordBatch.from_pydict(
            {
                "skey": skey,
                "part": pc.if_else(no_part_now, pa.scalar(None, _TEXT), parts),
                "ord": ordering,
                "flags": pa.array(np.where(bad, FLAG_BAD, flags).astype(np.int8)),
                "src": batch.column("src"),
                "pos_hi": batch.column("pos_hi"),
                "pos_lo": batch.column("pos_lo"),
                "row": _struct(rows.select(self._names)),
                "value": pc.if_else(pa.array(bad), batch.column("value"), pa.scalar(None, pa.binary())),
                "reason": reason,
            }
        )

    def _no_partition(self, parts: pa.Array, deleted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Deletes that take their partition from the index: a partition field is null. Only a global index can."""
        if not self._global or not deleted.any():
            return np.zeros(len(parts), np.bool_)
        return deleted & _mask(pc.match_substring(parts, DEFAULT_PARTITION))

    def _order(self, rows: pa.Table) -> tuple[npt.NDArray[np.bool_], pa.Array]:
        if self._ordering is None:
            return np.zeros(rows.num_rows, np.bool_), pa.array(np.zeros(rows.num_rows, np.int64))
        column = _flat(rows.column(self._ordering))
        unknown = column.is_null().to_numpy(zero_copy_only=False)
        if self._text_ordering:
            return unknown, pc.fill_null(column.cast(pa.binary()), b"")
        return unknown, pa.array(encode_ordering(column), pa.int64())

    def _no_number(self, rows: pa.Table) -> pa.Array:
        """Why a NaN could not order anything; null where the value is a number."""
        nan = pc.fill_null(pc.is_nan(_flat(rows.column(self._ordering))), False)
        return pc.if_else(nan, f"ordering field {self._ordering} is NaN, which has no order", pa.scalar(None, _TEXT))

    def _too_great(self, ordering: pa.Array) -> pa.Array:
        """Why an ordering value could not be written to a delete block; null where it can be."""
        text = (
            f"ordering field {self._ordering} has more than {DECIMAL_DIGITS} digits before the point, which the deletes of "
            "a merge-on-read table cannot hold"
        )
        codes, greatest = ordering.to_numpy(), self._greatest
        assert greatest is not None, "asked only where there is a limit"
        return pc.if_else(pa.array((codes > greatest) | (codes < -greatest)), text, pa.scalar(None, _TEXT))

    def _tombstones(
        self, message_keys: pa.Array, where: npt.NDArray[np.int64], keys: pa.Array, reason: pa.Array
    ) -> tuple[pa.Array, pa.Array]:
        """Record keys and reasons with those of the Kafka tombstones. A loop: each message key is parsed for itself."""
        new_keys, new_reasons = keys.to_pylist(), reason.to_pylist()
        for i in where.tolist():
            try:
                new_keys[i], new_reasons[i] = self._tombstone(message_keys[i].as_py()), None
            except InvalidKeyError as e:
                new_reasons[i] = f"tombstone: {e}"
        return pa.array(new_keys, _TEXT), pa.array(new_reasons, _TEXT)

    def _tombstone(self, message_key: bytes | None) -> str:
        if not self._global and self._generator.partition_fields:
            raise InvalidKeyError("it names no partition, which identifies a row when index.global.enabled=false")
        if message_key is None:
            raise InvalidKeyError("the message has no key, so nothing says which record is deleted")
        try:
            text = message_key.decode("utf-8")
        except UnicodeDecodeError:
            raise InvalidKeyError("the message key is not UTF-8") from None
        fields, refuse = self._generator.record_key_fields, self._refuse_collisions
        return record_key_from_message(fields, text, self._key_types, refuse_collisions=refuse)


def _struct(rows: pa.Table) -> pa.StructArray:
    return pa.StructArray.from_arrays([_flat(column) for column in rows.columns], fields=list(rows.schema))


def _without_blank_lines(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Lines of files that hold blanks only carry nothing; Kafka messages (no ``src``) stay, they have a key."""
    if batch.column("src").null_count == batch.num_rows:
        return batch
    value, from_file = batch.column("value"), pc.is_valid(batch.column("src"))
    # The cheap look first: a record begins with a brace.
    if pc.all(pc.starts_with(value, "{"), min_count=0).as_py():
        return batch
    blank = pc.fill_null(pc.match_substring_regex(value, r"^[ \t\r\n]*$"), False)
    return batch.filter(pc.invert(pc.and_(blank, from_file)))


def _mask(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = _flat(pc.fill_null(values, False)).to_numpy(zero_copy_only=False)
    return mask


def _flat(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _type_at(schema: pa.Schema, name: str) -> pa.DataType:
    """Type of a field, or of a struct's field by its dotted path."""
    head, *path = [name] if name in schema.names else name.split(".")
    kind = schema.field(head).type
    for step in path:
        kind = kind.field(step).type
    return kind
