"""Debezium's placeholder for a value that was not sent, as it comes in each type of column (change-formats: TOAST).

A text: itself; bytes: its bytes; an array of texts: itself alone; an array of whole numbers or dates: its bytes as
numbers; an array of uuids: the uuid made of it. Only PostgreSQL sends it, for values stored out of line that did not change.
"""

from __future__ import annotations

import hashlib
import uuid
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.columns import mask_of

DEFAULT = "__debezium_unavailable_value"
Mask = npt.NDArray[np.bool_]


class Placeholder:
    """Finds the placeholder in columns."""

    def __init__(self, text: str = DEFAULT) -> None:
        self._text = text
        raw = text.encode()
        self._raw = raw
        digest = bytearray(hashlib.md5(raw, usedforsecurity=False).digest())
        digest[6], digest[8] = (
            digest[6] & 0x0F | 0x30,
            digest[8] & 0x3F | 0x80,
        )  # a uuid of version 3, as Java names bytes
        self._texts = (text, str(uuid.UUID(bytes=bytes(digest))))

    def can_be_in(self, kind: pa.DataType) -> bool:
        """Whether a column of this type can hold it."""
        t = pa.types
        if t.is_list(kind):
            inner = kind.value_type
            return bool(t.is_string(inner) or t.is_binary(inner) or t.is_integer(inner) or t.is_date32(inner))
        return bool(t.is_string(kind) or t.is_binary(kind))

    def find(self, column: pa.Array) -> Mask:
        """The mask of the rows that have it; all false for a type that cannot."""
        t = pa.types
        if t.is_string(column.type):
            return mask_of(pc.equal(column, self._text))
        if t.is_binary(column.type):
            return mask_of(pc.equal(column, self._raw))
        if t.is_list(column.type) and self.can_be_in(column.type):
            return self._in_lists(column)
        return np.zeros(len(column), np.bool_)

    def _in_lists(self, column: pa.Array) -> Mask:
        found = np.zeros(len(column), np.bool_)
        inner = column.type.value_type
        numbers = pa.types.is_integer(inner) or pa.types.is_date32(inner)
        wanted = len(self._raw) if numbers else 1
        length = pc.fill_null(pc.list_value_length(column), -1).to_numpy()
        candidates = np.flatnonzero(length == wanted)
        if not len(candidates):
            return found
        values = pc.list_flatten(column.take(pa.array(candidates)))
        if pa.types.is_date32(inner):
            values = values.view(pa.int32())
        if numbers:
            data = pc.fill_null(values.cast(pa.int64()), -1).to_numpy().reshape(-1, wanted)
            same = (data == np.frombuffer(self._raw, np.uint8)).all(axis=1)
        else:
            accepted: Any = [self._raw] if pa.types.is_binary(inner) else list(self._texts)
            same = mask_of(pc.is_in(values, value_set=pa.array(accepted, inner)))
        found[candidates] = same
        return found
