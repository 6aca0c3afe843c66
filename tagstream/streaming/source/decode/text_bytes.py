"""Texts that are not UTF-8, in columns of Parquet files and of Spark: neither checks the bytes of a text.

Other readers of a table could not read such a text, so its row is a bad record.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tagstream.streaming.source.decode.columns import text_where


def only_utf8(values: pa.Array, name: str) -> tuple[pa.Array, pa.Array | None]:
    """(the column ``name``, with null where a text at any depth is not UTF-8; why, null for others, or None for no such
    text).
    """
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if not _has_texts(values.type) or _is_valid(values):
        return values, None
    mask = np.zeros(len(values), np.bool_)
    mask[_invalid(values, np.arange(len(values)))] = True
    kept = values.take(pa.array(np.arange(len(values)), mask=mask))
    return kept, text_where(mask, f"field {name}: a text is not UTF-8")


def python_values(values: pa.Array) -> list[Any]:
    """The values as Python's. Bytes that are not UTF-8 become surrogates (``surrogateescape``). For few rows."""
    try:
        found: list[Any] = values.to_pylist()
    except UnicodeDecodeError:
        found = [_escaped(value, values.type) for value in values.cast(_as_bytes(values.type)).to_pylist()]
    return found


def _is_valid(values: pa.Array) -> bool:
    if _as_one_text(values):
        return True
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _as_one_text(values: pa.Array) -> bool:
    """Whether the bytes of all texts in the array, taken together, are UTF-8, and every text begins with a character.

    Arrow checks text by text, which takes five times as long. False does not say that a text is wrong: bytes that no
    text uses may be.
    """
    kind, t = values.type, pa.types
    if t.is_struct(kind):
        return all(_as_one_text(values.field(n)) for n in range(kind.num_fields))
    if t.is_list(kind):
        return _as_one_text(values.values)
    if t.is_map(kind):
        return _as_one_text(values.keys) and _as_one_text(values.items)
    if not t.is_string(kind):
        return not _has_texts(kind)
    _, places, data = values.buffers()
    if data is None or not len(values):
        return True
    offsets = np.frombuffer(places, np.int32, len(values) + 1, values.offset * 4)
    content = np.frombuffer(data, np.uint8, int(offsets[-1]) - int(offsets[0]), int(offsets[0]))
    if not len(content) or content.max() < 0x80:
        return True
    try:
        pa.array([content.tobytes()], pa.large_binary()).cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    begins = offsets[:-1][offsets[:-1] < offsets[-1]] - offsets[0]
    return bool(((content[begins] & 0xC0) != 0x80).all())


def _invalid(values: pa.Array, at: npt.NDArray[np.int64]) -> list[int]:
    """The rows of ``at`` with an invalid text: halves without one are left out at once."""
    if not len(at) or _is_valid(values.take(pa.array(at))):
        return []
    if len(at) == 1:
        return [int(at[0])]
    return _invalid(values, at[: len(at) // 2]) + _invalid(values, at[len(at) // 2 :])


def _has_texts(kind: pa.DataType) -> bool:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return True
    return any(_has_texts(kind.field(n).type) for n in range(kind.num_fields))


def _as_bytes(kind: pa.DataType) -> pa.DataType:
    t = pa.types
    if t.is_string(kind) or t.is_large_string(kind):
        return pa.binary()
    if t.is_struct(kind):
        return pa.struct([pa.field(child.name, _as_bytes(child.type)) for child in kind])
    if t.is_list(kind):
        return pa.list_(_as_bytes(kind.value_type))
    return pa.map_(_as_bytes(kind.key_type), _as_bytes(kind.item_type)) if t.is_map(kind) else kind


def _escaped(value: Any, kind: pa.DataType) -> Any:
    t = pa.types
    if value is None:
        return None
    if t.is_string(kind) or t.is_large_string(kind):
        return value.decode("utf-8", "surrogateescape")
    if t.is_struct(kind):
        return {child.name: _escaped(value[child.name], child.type) for child in kind}
    if t.is_list(kind):
        return [_escaped(item, kind.value_type) for item in value]
    if t.is_map(kind):
        return [(_escaped(k, kind.key_type), _escaped(v, kind.item_type)) for k, v in value]
    return value
