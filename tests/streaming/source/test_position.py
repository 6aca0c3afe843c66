"""Positions of lines: they grow through a file, across its blocks and across Arrow batches."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tagstream.streaming.source.source import LinePositions


def blocks_of(lines: list[bytes], size: int) -> list[tuple[int, list[bytes]]]:
    """The lines as Hadoop's reader gives them: block k has the lines that start in (start, end], block 0 also at 0."""
    out: list[tuple[int, list[bytes]]] = []
    total = sum(len(x) + 1 for x in lines)
    for start in range(0, total, size):
        at, mine = 0, []
        for line in lines:
            if (start < at <= start + size) or (start == 0 and at == 0):
                mine.append(line)
            at += len(line) + 1
        if mine:
            out.append((start, mine))
    return out


@given(
    lines=st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"")), min_size=1, max_size=40),
    size=st.integers(1, 30),
    cut=st.integers(1, 5),
)
def test_positions_grow_strictly_through_the_file(lines: list[bytes], size: int, cut: int) -> None:
    blocks = blocks_of(lines, size)
    assert sum(len(b) for _, b in blocks) == len(lines)
    seen: list[int] = []
    for start, mine in blocks:  # each block is a task of its own
        positions = LinePositions()
        for i in range(0, len(mine), cut):
            part = pa.array(mine[i : i + cut], pa.binary())
            n = len(part)
            seen += positions.assign(pa.array(["f"] * n), pa.array([start] * n, pa.int64()), part).to_pylist()
    assert all(a < b for a, b in pairwise(seen))


def test_the_first_block_gives_byte_offsets_and_files_in_one_task_start_anew() -> None:
    positions = LinePositions()
    values = pa.array([b"ab", b"", b"cde", b"x"], pa.binary())
    paths = pa.array(["a", "a", "a", "b"])
    assert positions.assign(paths, pa.array([0, 0, 0, 0], pa.int64()), values).to_pylist() == [0, 3, 4, 0]
    assert positions.assign(pa.array(["b"]), pa.array([0], pa.int64()), pa.array([b"y"])).to_pylist() == [2]
    assert (
        positions.assign(pa.array([], pa.string()), pa.array([], pa.int64()), pa.array([], pa.binary())).to_pylist()
        == []
    )
