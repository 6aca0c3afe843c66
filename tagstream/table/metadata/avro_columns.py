"""Avro records of one schema decoded side by side into columns, in NumPy: 2 us a record of a record index.

For schemas of records, unions and plain values; the records of a column are read at once, each at its own place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tagstream.table.file_group.log.varint import read_zigzags, slices

_Int64s = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]

_LONGEST: Final = 10  # bytes of a number
_WIDTHS: Final = {"boolean": 1, "float": 4, "double": 8}


@dataclass
class Column:
    """Values of a number, or (for a text) its bytes' places; ``present`` where the record has the field at all."""

    present: _Bools
    numbers: _Int64s
    lengths: _Int64s


class AvroColumns:
    """Decoded records. Raises ValueError where the values are no such records, or are not read to their ends."""

    def __init__(self, values: pa.Array, avro: Any) -> None:
        """``values``: binary without nulls, a record each; ``avro``: the parsed JSON of their schema."""
        values = values.cast(pa.large_binary())
        offsets = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values) + 1]
        buffer = values.buffers()[2]
        body = (
            np.frombuffer(buffer, np.uint8)[offsets[0] : offsets[-1]] if buffer is not None else np.zeros(0, np.uint8)
        )
        self._data = np.concatenate([body, np.zeros(_LONGEST, np.uint8)])
        self._at = offsets[:-1] - offsets[0]
        self._ends = offsets[1:] - offsets[0]
        self._columns: dict[str, Column] = {}
        self._read(avro, np.arange(len(values)), "")
        if (self._at != self._ends).any():
            raise ValueError("a record does not end where its value does")

    def numbers(self, path: str, missing: int = 0) -> _Int64s:
        """A field of whole numbers, by its path (``outer.inner``); ``missing`` where a record has none."""
        column = self._columns.get(path)
        if column is None:
            return np.full(len(self._at), missing, np.int64)
        return np.where(column.present, column.numbers, missing)

    def texts(self, path: str) -> pa.Array:
        """A field of texts; empty where a record has none. ArrowInvalid where one is no UTF-8."""
        column = self._columns.get(path)
        if column is None:
            return pa.array([""] * len(self._at), pa.string())
        lengths = np.where(column.present, column.lengths, 0)
        return slices(self._data, column.numbers, lengths).cast(pa.string())

    def _read(self, avro: Any, rows: _Int64s, path: str) -> None:
        if not len(rows):
            return
        if isinstance(avro, list):
            branches = self._longs(rows)
            for branch in np.unique(branches).tolist():
                if not 0 <= branch < len(avro):
                    raise ValueError(f"{path} is of the branch {branch} of {len(avro)}")
                self._read(avro[branch], rows[branches == branch], path)
        elif isinstance(avro, dict):
            if avro.get("type") == "record":
                for field in avro["fields"]:
                    self._read(field["type"], rows, f"{path}.{field['name']}".removeprefix("."))
            else:
                self._read(avro.get("type"), rows, path)
        elif avro in ("int", "long"):
            self._keep(path, rows, self._longs(rows), None)
        elif avro in ("string", "bytes"):
            lengths = self._longs(rows)
            self._keep(path, rows, self._at[rows], lengths)
            self._advance(rows, lengths)
        elif avro in _WIDTHS:
            self._advance(rows, np.full(len(rows), _WIDTHS[avro]))
        elif avro != "null":
            raise ValueError(f"{path} is {avro!r}, which is not read here")

    def _keep(self, path: str, rows: _Int64s, numbers: _Int64s, lengths: _Int64s | None) -> None:
        column = self._columns.get(path)
        if column is None:
            size = len(self._at)
            column = Column(np.zeros(size, np.bool_), np.zeros(size, np.int64), np.zeros(size, np.int64))
            self._columns[path] = column
        column.present[rows] = True
        column.numbers[rows] = numbers
        if lengths is not None:
            column.lengths[rows] = lengths

    def _longs(self, rows: _Int64s) -> _Int64s:
        """One zigzag number of each row."""
        at = self._at[rows]
        numbers, ends = read_zigzags(self._data, at)
        self._advance(rows, ends - at)
        return numbers

    def _advance(self, rows: _Int64s, sizes: _Int64s) -> None:
        behind = self._at[rows] + sizes
        if (sizes < 0).any() or (behind > self._ends[rows]).any():
            raise ValueError("a record ends within a field")
        self._at[rows] = behind
