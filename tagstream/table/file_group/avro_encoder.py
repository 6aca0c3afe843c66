"""Avro binary of Arrow columns, without a Python object for a value: each column is encoded as a whole, then joined.

The bytes are those of Java's encoder: an array or a map is one block of all items, and nothing else if it is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import UnsupportedTableError
from tagstream.table.file_group.log_format import binary_array, prefixed, zigzag, zigzags
from tagstream.table.schema.schema import full_name

_CHUNK_BYTES = 64 << 20  # a binary array of Arrow has at most 2 GiB
_DECIMAL_BYTES = 16

Names = dict[str, Mapping[str, Any]]


def encode_records(rows: pa.Table, avro: Mapping[str, Any]) -> Iterator[pa.Array]:
    """Binary arrays with the rows, in their order, as records of an Avro schema.

    ``avro``: a parsed record schema, whose fields are columns of ``rows`` with the Arrow types of
    ``schema.avro_to_arrow``. UnsupportedTableError names a field whose type or value does not fit.
    """
    step = max(1, rows.num_rows * _CHUNK_BYTES // max(rows.nbytes, 1))
    for start in range(0, rows.num_rows, step):
        part = rows.slice(start, step)
        columns = [_flat(part.column(field["name"])) for field in avro["fields"]]
        names: Names = {}
        _register(avro, "", names)
        inner = full_name(avro, "")[0]
        yield _joined_fields(columns, avro, inner, names, part.num_rows, "")


def _flat(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    if isinstance(found, pa.ChunkedArray):  # older releases of pyarrow, for a column without chunks
        found = pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], column.type)
    return found.dictionary_decode() if pa.types.is_dictionary(found.type) else found


def _joined_fields(
    columns: list[pa.Array], avro: Mapping[str, Any], namespace: str, names: Names, count: int, path: str
) -> pa.Array:
    parts = []
    for field, column in zip(avro["fields"], columns, strict=True):
        parts.append(_encoded(column, field["type"], namespace, names, f"{path}{field['name']}"))
    return _join(parts, count)


def _join(parts: list[pa.Array], count: int) -> pa.Array:
    if not parts:
        return pa.array([b""] * count, pa.binary())
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, b"")


def _encoded(values: pa.Array, avro: Any, namespace: str, names: Names, path: str) -> pa.Array:
    """Binary array of the values; ``avro`` is their type, ``path`` their name in messages."""
    if isinstance(avro, list):
        return _union(values, avro, namespace, names, path)
    if isinstance(avro, str) and avro in _PLAIN:
        return _plain(values, avro, path)
    record = _named(avro, namespace, names) if isinstance(avro, str) else avro
    if record is None:
        raise _unfit(path, f"the type {avro!r}, which its schema does not define")
    kind = record["type"]
    if not isinstance(kind, str):
        return _encoded(values, kind, namespace, names, path)
    if kind in _PLAIN and record.get("logicalType") != "decimal":
        return _plain(values, kind, path)
    if values.null_count:
        raise _unfit(path, "a null, and its schema allows none")
    inner = _register(record, namespace, names)
    if record.get("logicalType") == "decimal":
        return _decimals(values, record, path)
    if kind == "record":
        columns = [_member(values, field["name"], path) for field in record["fields"]]
        return _joined_fields(columns, record, inner, names, len(values), f"{path}.")
    if kind == "array":
        return _blocks(values, _encoded(values.flatten(), record["items"], namespace, names, f"{path}.element"))
    if kind == "map":
        entries = pa.ListArray.from_arrays(
            _offsets(values), pa.StructArray.from_arrays([values.keys, values.items], ["k", "v"])
        )
        entries = entries.flatten()
        keys, items = entries.field(0), _encoded(entries.field(1), record["values"], namespace, names, f"{path}.value")
        return _blocks(values, _join([prefixed(keys), items], len(keys)))
    if kind == "enum":
        return _symbols(values, record["symbols"], path)
    if kind == "fixed":
        if not pa.types.is_fixed_size_binary(values.type) or values.type.byte_width != record["size"]:
            raise _unfit(path, f"{values.type} for a fixed of {record['size']} bytes")
        return values.cast(pa.binary())
    raise _unfit(path, f"the Avro type {kind!r}, which this version does not write")


def _union(values: pa.Array, branches: list[Any], namespace: str, names: Names, path: str) -> pa.Array:
    others = [number for number, branch in enumerate(branches) if branch != "null"]
    if len(others) != 1 or len(branches) > 2:
        raise _unfit(path, f"a union of {len(branches)} types; only a type and null can be a column")
    chosen = others[0]
    there = _encoded(values.drop_null(), branches[chosen], namespace, names, path)
    if len(branches) == 1 or not values.null_count:
        return pc.binary_join_element_wise(zigzag(chosen), there, b"")
    rest = pc.binary_join_element_wise(zigzag(chosen), there, b"")
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    at = np.where(valid, np.cumsum(valid), 0)
    return pa.concat_arrays([pa.array([zigzag(branches.index("null"))], pa.binary()), rest]).take(pa.array(at))


_PLAIN = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


def _plain(values: pa.Array, kind: str, path: str) -> pa.Array:
    if kind == "null":
        if values.null_count != len(values):
            raise _unfit(path, f"values of {values.type} for the Avro type null")
        return pa.array([b""] * len(values), pa.binary())
    if values.null_count:
        raise _unfit(path, "a null, and its schema allows none")
    if kind in ("bytes", "string"):
        try:
            return prefixed(values)
        except pa.ArrowException as error:
            raise _unfit(path, f"{values.type} for the Avro type {kind} ({error})") from error
    if kind == "boolean":
        data = values.cast(pa.uint8()).to_numpy(zero_copy_only=False)
        return binary_array(data, np.ones(len(values), np.int64))
    if kind in ("float", "double"):
        width = np.dtype("<f4" if kind == "float" else "<f8")
        numbers = values.to_numpy(zero_copy_only=False).astype(width)
        return binary_array(numbers.view(np.uint8), np.full(len(values), width.itemsize, np.int64))
    return zigzags(_integers(values, path))


def _integers(values: pa.Array, path: str) -> npt.NDArray[np.int64]:
    kind = values.type
    if pa.types.is_temporal(kind):
        values = values.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif not pa.types.is_integer(kind):
        raise _unfit(path, f"{kind} for an Avro int or long")
    found: npt.NDArray[np.int64] = values.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return found


def _decimals(values: pa.Array, avro: Mapping[str, Any], path: str) -> pa.Array:
    """Big-endian two's complement: of a fixed's size, or of type bytes the shortest one."""
    if not pa.types.is_decimal128(values.type):
        raise _unfit(path, f"{values.type} for an Avro decimal")
    data = np.frombuffer(values.buffers()[1], np.uint8)
    data = data[values.offset * _DECIMAL_BYTES : (values.offset + len(values)) * _DECIMAL_BYTES]
    data = data.reshape(-1, _DECIMAL_BYTES)[:, ::-1]
    if avro["type"] == "fixed":
        size = avro["size"]
        filled = np.repeat((data[:, :1] >> 7) * np.uint8(0xFF), max(0, size - _DECIMAL_BYTES), axis=1)
        whole = np.concatenate([filled, data[:, max(0, _DECIMAL_BYTES - size) :]], axis=1)
        return binary_array(whole.reshape(-1), np.full(len(values), size, np.int64))
    # A byte is superfluous if it and the next one's first bit are all of the sign, and so are all bytes before it.
    signs = (data[:, :1] >> 7) * np.uint8(0xFF)
    spare = (data[:, :-1] == signs) & ((data[:, 1:] >> 7) == (signs & 1))
    leading = np.cumprod(spare, axis=1).sum(axis=1)
    lengths = _DECIMAL_BYTES - leading
    kept = np.arange(_DECIMAL_BYTES) >= leading[:, None]
    return prefixed(binary_array(data[kept], lengths))


def _symbols(values: pa.Array, symbols: list[str], path: str) -> pa.Array:
    found = pc.index_in(values, value_set=pa.array(symbols, values.type))
    if found.null_count:
        lost = values.filter(pc.is_null(found))[0]
        raise _unfit(path, f"the text {str(lost)!r}, which is not one of its enum's symbols")
    return zigzags(found.to_numpy(zero_copy_only=False).astype(np.int64))


def _member(values: pa.Array, name: str, path: str) -> pa.Array:
    at = values.type.get_field_index(name)
    if at < 0:
        raise _unfit(f"{path}.{name}", "no values: the rows lack the field")
    # flatten applies the struct's own slice, which field() does not
    return _flat(pa.chunked_array([values.flatten()[at]]))


def _offsets(values: pa.Array) -> pa.Array:
    return values.offsets if len(values) else pa.array([0], pa.int32())


def _blocks(values: pa.Array, items: pa.Array) -> pa.Array:
    """Arrays or maps of encoded items: the number of items, the items, and 0; only 0 if there are none.

    ``items``: those of ``values``, which has no nulls, in their order.
    """
    ends = np.asarray(_offsets(values)).astype(np.int64)
    counts, ends = np.diff(ends), ends - ends[0]
    lengths = pc.binary_length(items).to_numpy(zero_copy_only=False).astype(np.int64)
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])[ends]
    offsets = np.frombuffer(items.buffers()[1], np.int32) if len(items) else np.zeros(1, np.int32)
    begin = int(offsets[items.offset]) if len(items) else 0
    data = items.buffers()[2] if len(items) else None
    joined = pa.Array.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer((bounds + begin).astype(np.int32)), data or pa.py_buffer(b"")]
    )
    whole = pc.binary_join_element_wise(zigzags(counts), joined, b"\0", b"")
    return pc.if_else(pa.array(counts > 0), whole, pa.scalar(b"\0", pa.binary()))


def _register(avro: Mapping[str, Any], namespace: str, names: Names) -> str:
    if "name" not in avro:
        return namespace
    inner, full = full_name(avro, namespace)
    names[full] = {**avro, "namespace": inner, "name": full.rpartition(".")[2]}
    return inner


def _named(name: str, namespace: str, names: Names) -> Mapping[str, Any] | None:
    return names.get(name if "." in name or not namespace else f"{namespace}.{name}")


def _unfit(path: str, what: str) -> UnsupportedTableError:
    return UnsupportedTableError(f"column {path!r} has {what}; it cannot be written as Avro")
