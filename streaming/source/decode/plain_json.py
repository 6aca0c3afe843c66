"""Plain JSON: a record is a row, a Kafka message without a value deletes the row that its key names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.columns import flat, mask_of
from tagstream.streaming.source.decode.events import Events, Mask
from tagstream.streaming.source.decode.facts import Facts
from tagstream.streaming.source.decode.json_decoder import JsonDecoder
from tagstream.streaming.source.decode.rules import STRICT, DecodeRules
from tagstream.table.errors import InvalidKeyError
from tagstream.table.keys.keys import record_key_from_message

DELETED = "_hoodie_is_deleted"
_TEXT = pa.string()


class PlainJson:
    """``schema`` has :data:`DELETED`; ``key_fields`` with their types; ``names_partition``: keys alone identify no row."""

    may_lack = False

    def __init__(
        self,
        schema: pa.Schema,
        facts: Mapping[str, Facts] | None,
        rules: DecodeRules = STRICT,
        *,
        key_fields: Sequence[str],
        key_types: Sequence[pa.DataType],
        names_partition: bool,
        refuse_collisions: bool,
    ) -> None:
        self._decoder = JsonDecoder(schema, facts, rules)
        self._key_fields = key_fields
        self._key_types = key_types
        self._names_partition = names_partition
        self._refuse_collisions = refuse_collisions

    def read(self, batch: pa.RecordBatch) -> Events:
        """The records, without the blank lines of files."""
        batch = without_blank_lines(batch)
        rows, reason = self._decoder.decode(batch.column("value"))
        deleted = mask_of(rows.column(DELETED))
        tombstone = batch.column("value").is_null().to_numpy(zero_copy_only=False)
        keys = None
        if tombstone.any():
            keys, reason = self._tombstones(batch.column("key"), tombstone, reason)
        nothing = np.zeros(batch.num_rows, np.bool_)
        return Events(batch, rows, reason, deleted | tombstone, tombstone, nothing, keys)

    def _tombstones(self, message_keys: pa.Array, tombstone: Mask, reason: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Record keys of the Kafka tombstones, and all reasons. A loop: each message key is parsed for itself."""
        keys: list[str | None] = [None] * len(message_keys)
        reasons = reason.to_pylist()
        for i in np.flatnonzero(tombstone).tolist():
            try:
                keys[i], reasons[i] = self._tombstone(message_keys[i].as_py()), None
            except InvalidKeyError as e:
                reasons[i] = f"tombstone: {e}"
        return pa.array(keys, _TEXT), pa.array(reasons, _TEXT)

    def _tombstone(self, message_key: bytes | None) -> str:
        if self._names_partition:
            raise InvalidKeyError("it names no partition, which identifies a row when index.global.enabled=false")
        if message_key is None:
            raise InvalidKeyError("the message has no key, so nothing says which record is deleted")
        try:
            text = message_key.decode("utf-8")
        except UnicodeDecodeError:
            raise InvalidKeyError("the message key is not UTF-8") from None
        refuse = self._refuse_collisions
        return record_key_from_message(self._key_fields, text, self._key_types, refuse_collisions=refuse)


def without_blank_lines(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Lines of files that hold blanks only carry nothing; Kafka messages (no ``src``) stay, they have a key."""
    if batch.column("src").null_count == batch.num_rows:
        return batch
    value, from_file = flat(batch.column("value")), pc.is_valid(batch.column("src"))
    # The cheap look first: a record begins with a brace.
    if pc.all(pc.starts_with(value, "{"), min_count=0).as_py():
        return batch
    blank = pc.fill_null(pc.match_substring_regex(value, r"^[ \t\r\n]*$"), False)
    return batch.filter(pc.invert(pc.and_(blank, from_file)))
