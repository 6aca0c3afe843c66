"""Packing: nothing is lost, changed or put out of order, and one file group stays together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.state.layout import key_group
from tagstream.streaming.source.packed import PACKED_BYTES, file_group_codes, pack, split, unpack
from tagstream.streaming.source.source import in_blocks, pack_by_group

ROW = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])


def rows(n: int) -> pa.Table:
    values = [None if i % 7 == 3 else {"a": i, "b": [str(i)] * (i % 3)} for i in range(n)]
    return pa.table({"n": pa.array(range(n), pa.int64()), "row": pa.array(values, ROW)})


def test_packed_rows_come_back_as_they_were() -> None:
    table = rows(1000)
    assert unpack(pack(table.slice(10, 700))).equals(table.slice(10, 700).combine_chunks())
    assert list(pack(table.slice(0, 0))) == []
    with pytest.raises(ValueError, match="no packed value"):
        unpack([])


def test_what_is_packed_has_a_bounded_size() -> None:
    big = pa.table({"v": pa.array([bytes([i % 256]) * 10_000 for i in range(500)])})
    packed = list(pack(big))
    assert len(packed) > 5
    assert max(map(len, packed)) < 1.1 * PACKED_BYTES
    assert unpack(packed).equals(big)
    huge = pa.table({"v": pa.array([b"x" * 3 * PACKED_BYTES] * 3)})
    assert len(list(pack(huge))) == 3  # one record may be larger


@given(st.lists(st.integers(0, 5), max_size=60))
def test_split_keeps_the_order_within_a_code(codes: list[int]) -> None:
    found = {c: mine.column("n").to_pylist() for c, mine in split(rows(len(codes)), np.array(codes, np.int64))}
    assert found == {c: [i for i, code in enumerate(codes) if code == c] for c in sorted(set(codes))}


def test_each_file_group_has_a_code() -> None:
    parts, files = pa.array(["p1", "p2", "p1", "", "p1"]), pa.array(["f", "f", "g", "#3", "f"])
    code, names = file_group_codes(parts, files)
    assert [names[c] for c in code.tolist()] == list(zip(parts.to_pylist(), files.to_pylist(), strict=True))


def test_records_go_to_their_key_groups() -> None:
    keys = [b"a", b"bb", b"", "ü".encode(), b"x" * 300, *(b"key%d" % i for i in range(200))]
    skeys = [b"\x01" + key for key in keys]
    labels = (7, 11, 13)
    n = len(keys) + 2
    keyed = pa.table(
        {
            "skey": pa.array([*skeys, None, b"message key"], pa.binary()),
            "flags": pa.array([0] * len(keys) + [8, 8], pa.int8()),
            "pos_lo": pa.array(range(n), pa.int64()),
        }
    )
    out = pack_by_group(keyed, labels)
    found = {
        row["pos_lo"]: label
        for label, value in zip(out.column("kg").to_pylist(), out.column("rows").to_pylist(), strict=True)
        for row in unpack([value]).to_pylist()
    }
    wanted = {i: labels[key_group(key, 3)] for i, key in enumerate(keys)}
    assert found == wanted | {i: labels[i % 3] for i in (n - 2, n - 1)}


def test_small_batches_are_put_together() -> None:
    batches = [rows(10).to_batches()[0] for _ in range(30)]
    (block,) = in_blocks(batches)
    assert block.num_rows == 300
    assert list(in_blocks([])) == []
    big = pa.RecordBatch.from_pydict({"v": pa.array([b"x" * (1 << 20)] * 20)})
    assert [b.num_rows for b in in_blocks([big] * 5)] == [20] * 5
