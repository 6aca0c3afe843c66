"""Avro datums of one schema into Arrow columns, many at a time.

Single datums have no reader for whole columns, container files have: so the datums are joined to one block of a container
file, each followed by its number as eight bytes. Numbers that do not come back as they were show a datum that was longer or
shorter than its schema says. What the fast reader refuses, or is not sure of, is decided one by one by fastavro.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import ConfigError
from tagstream.table.file_group.log.varint import zigzag

_SYNC = b"tagstream-datums"
_MARK = 8
_FEW = 16
_MOST_TYPES = 2_000
Rows = npt.NDArray[np.int64]


class Datums:
    """Decodes datums of one writer's schema. Logical types are left out: what a column means is decided by its name."""

    def __init__(self, schema: dict[str, Any]) -> None:
        plain = _plain(schema)
        self._schema = fastavro.parse_schema(json.loads(json.dumps(plain)))
        mark = {"type": "fixed", "name": "tagstream_mark", "size": _MARK}
        fields = [{"name": "v", "type": plain}, {"name": "at", "type": mark}]
        self._header = _header({"type": "record", "name": "tagstream_datum", "fields": fields})
        self._read = _reader()
        self._kind = _small_type(self._read(io.BytesIO(self._header)).schema.field("v").type)

    def decode(self, datums: pa.Array) -> tuple[pa.Array, pa.Array]:
        """(struct array of the records, why one is none), both as long as ``datums`` (binary, without nulls)."""
        found: list[tuple[Rows, pa.Array]] = []
        odd: list[int] = []
        self._take(datums, np.arange(len(datums)), found, odd)
        reasons: list[str | None] = [None] * len(datums)
        self._one_by_one(datums, odd, found, reasons)
        if not found:
            return pa.nulls(len(datums), self._kind), pa.array(reasons, pa.string())
        place = np.full(len(datums), -1, np.int64)
        at = np.concatenate([rows for rows, _ in found])
        place[at] = np.arange(len(at))
        values = pa.concat_arrays([array for _, array in found])
        return values.take(pa.array(place, mask=place < 0)), pa.array(reasons, pa.string())

    def _take(self, datums: pa.Array, rows: Rows, found: list[tuple[Rows, pa.Array]], odd: list[int]) -> None:
        """Decode ``rows`` as one block; where that fails in halves, and few one by one."""
        if not len(rows):
            return
        array = self._block(datums if len(rows) == len(datums) else datums.take(pa.array(rows)))
        if array is not None:
            found.append((rows, array))
        elif len(rows) <= _FEW:
            odd += rows.tolist()
        else:
            for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
                self._take(datums, half, found, odd)

    def _block(self, datums: pa.Array) -> pa.Array | None:
        n = len(datums)
        numbers = np.arange(n, dtype=">u8").tobytes()
        marks = pa.Array.from_buffers(pa.binary(_MARK), n, [None, pa.py_buffer(numbers)])
        joined = pc.binary_join_element_wise(datums.cast(pa.binary()), marks.cast(pa.binary()), b"")
        data = joined.buffers()[2].to_pybytes()
        content = self._header + zigzag(n) + zigzag(len(data)) + data + _SYNC
        try:
            table = self._read(io.BytesIO(content))
        except Exception:
            return None
        if table.num_rows != n:
            return None
        same = pc.equal(table.column("at").combine_chunks().cast(pa.binary(_MARK)), marks)
        if not pc.all(same, min_count=0).as_py():
            return None
        return _small(table.column("v"))

    def _one_by_one(
        self, datums: pa.Array, odd: list[int], found: list[tuple[Rows, pa.Array]], reasons: list[str | None]
    ) -> None:
        """The datums that no block took. A loop: they are few, or the stream is broken."""
        for i in odd:
            raw = datums[i].as_py()
            stream = io.BytesIO(raw)
            try:
                record = fastavro.schemaless_reader(stream, self._schema, None)
            except Exception as e:
                reasons[i] = f"no Avro datum of its schema: {type(e).__name__} {str(e)[:80]}"
                continue
            if stream.tell() != len(raw):
                reasons[i] = f"{len(raw) - stream.tell()} bytes are left behind the Avro datum"
                continue
            try:
                found.append((np.array([i]), pa.array([record], self._kind)))
            except (pa.ArrowInvalid, pa.ArrowTypeError) as e:
                reasons[i] = f"an Avro datum that has no form in columns: {str(e)[:80]}"


def check_reader() -> None:
    """ConfigError where what reads Avro is not installed."""
    _reader()


def _reader() -> Callable[[io.BytesIO], pa.Table]:
    try:
        from polars_avro import read_avro
    except ImportError:
        raise ConfigError("reading Avro needs polars-avro: pip install 'tagstream[avro]'") from None

    def read(content: io.BytesIO) -> pa.Table:
        table: pa.Table = read_avro(content).to_arrow()
        return table

    return read


def _header(schema: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), [], sync_marker=_SYNC)
    return out.getvalue()


def _plain(avro: Any, space: str = "", names: dict[str, Any] | None = None, count: list[int] | None = None) -> Any:
    """A schema without logical types, namespaces and what is beside the types; a type that is named again is there again.

    (Readers do not agree on the namespace that a name without one is in.) ``names``: the types that were named before.
    """
    names = {} if names is None else names
    count = [0] if count is None else count
    if isinstance(avro, list):
        return [_plain(branch, space, names, count) for branch in avro]
    if isinstance(avro, str):
        known = names.get(avro) or names.get(f"{space}.{avro}")
        return avro if known is None else _plain(known[0], known[1], names, count)
    kind = avro["type"]
    if isinstance(kind, dict | list):
        return _plain(kind, space, names, count)
    if kind in ("array", "map"):
        part = "items" if kind == "array" else "values"
        return {"type": kind, part: _plain(avro[part], space, names, count)}
    if kind not in ("record", "error", "enum", "fixed"):
        return kind
    name = str(avro["name"])
    inner = name.rpartition(".")[0] or avro.get("namespace", space)
    names[f"{inner}.{name.rpartition('.')[2]}" if inner else name] = (avro, space)
    count[0] += 1
    if count[0] > _MOST_TYPES:
        raise ConfigError(f"the Avro schema's type {name} holds itself, which is no row of a table")
    out = {"type": "record" if kind == "error" else kind, "name": f"t{count[0]}"}
    if kind in ("enum", "fixed"):
        return out | {part: avro[part] for part in ("symbols", "size") if part in avro}
    return out | {
        "fields": [{"name": f["name"], "type": _plain(f["type"], inner, names, count)} for f in avro["fields"]]
    }


def _small(column: pa.ChunkedArray) -> pa.Array:
    """Without the large types that polars gives."""
    flat = column.combine_chunks()
    flat = flat.chunk(0) if isinstance(flat, pa.ChunkedArray) else flat
    return flat.cast(_small_type(flat.type))


def _small_type(kind: pa.DataType) -> pa.DataType:
    t = pa.types
    if t.is_large_string(kind) or t.is_string_view(kind) or t.is_dictionary(kind):
        return pa.string()
    if t.is_large_binary(kind) or t.is_binary_view(kind):
        return pa.binary()
    if t.is_struct(kind):
        return pa.struct([pa.field(f.name, _small_type(f.type)) for f in kind])
    if t.is_large_list(kind) or t.is_list(kind):
        return pa.list_(_small_type(kind.value_type))
    return kind
