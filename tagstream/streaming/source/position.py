"""Where a line of a file stands: a position that grows through the file, also when Spark cuts it into blocks.

A position orders records of equal ordering value. Spark names the block a line came from, not the line's offset; lines
of a block arrive in order, so the running sum of their lengths gives it. In a block that begins inside the file the
first, cut line belongs to the block before, so the true offset is at least one byte greater than the sum: the one is
added, which keeps every position of a block below those of the next.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class LinePositions:
    """Gives int64 positions to successive Arrow batches of one task's lines."""

    def __init__(self) -> None:
        self._block: tuple[str, int] | None = None
        self._next = 0

    def assign(self, paths: pa.Array, block_start: pa.Array, values: pa.Array) -> pa.Array:
        """Positions of the lines ``values`` (binary) that came from ``paths`` at ``block_start`` (bytes)."""
        n = len(values)
        if n == 0:
            return pa.array([], pa.int64())
        codes = pc.dictionary_encode(paths)
        code, start = codes.indices.to_numpy(), block_start.to_numpy()
        length = pc.fill_null(pc.binary_length(values), 0).to_numpy().astype(np.int64) + 1
        first = np.flatnonzero(np.concatenate(([True], (code[1:] != code[:-1]) | (start[1:] != start[:-1]))))
        before = np.cumsum(length) - length
        base = start[first] + (start[first] > 0) - before[first]
        here = (codes.dictionary[int(code[0])].as_py(), int(start[0]))
        if here == self._block:  # the block goes on from the batch before
            base[0] = self._next - before[0]
        position = before + np.repeat(base, np.diff(np.append(first, n)))
        self._block = (codes.dictionary[int(code[-1])].as_py(), int(start[-1]))
        self._next = int(position[-1] + length[-1])
        return pa.array(position, pa.int64())
