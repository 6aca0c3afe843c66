"""What the tag step hands on: the same rows however many chunks they came in, in frames that Spark can take."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tagstream.state.tag_batch import GLOBAL_KEY, OP_DELETE, OP_INSERT, OP_UPDATE, TagResult
from tagstream.streaming.batch.located import WriteTasks, by_write_task
from tagstream.streaming.batch.tag import located, packed_result
from tagstream.streaming.source import packed
from tagstream.streaming.source.packed import pack, unpack
from tagstream.table import chunks

ROW = pa.struct([("n", pa.int64()), ("doc", pa.string())])


def keyed(count: int, size: int) -> pa.Table:
    rows = [{"n": n, "doc": chr(97 + n % 26) * size} for n in range(count)]
    return pa.table({"skey": [GLOBAL_KEY + b"%06d" % n for n in range(count)], "row": pa.array(rows, ROW)})


def result_of(rows: pa.Table) -> TagResult:
    """Every tenth key has moved: a delete at the old place beside the row at the new one; the order is the keys' hash."""
    order = np.random.default_rng(3).permutation(rows.num_rows).astype(np.int64)
    take = np.concatenate([order, np.full(len(order) // 10, -1, np.int64)])
    n = len(take)
    op = np.where(take < 0, OP_DELETE, np.where(take % 2 == 0, OP_INSERT, OP_UPDATE)).astype(np.int8)
    names = np.array([f"{i % 7}" for i in range(n)], object)
    keys = np.array(rows["skey"].to_pylist(), object)[np.maximum(take, 0)]
    return TagResult(take, keys, names, names, op, np.zeros(n, np.int64), np.ones(n, np.bool_), b"p", None, {})


def test_located_rows_in_many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = keyed(500, 100)
    expected = located(result_of(rows), rows, "int64")
    assert expected["row"].null_count == 50
    monkeypatch.setattr(packed, "PACKED_BYTES", 1000)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 5000)
    many = unpack(pack(rows))
    assert many["row"].num_chunks > 5
    found = located(result_of(many), many, "int64")
    assert found.equals(expected)
    assert max(batch.nbytes for batch in found.to_batches()) <= 5000
    write_tasks: dict[int, list[bytes]] = {}
    for write_task, value in by_write_task(found, WriteTasks(3)):
        write_tasks.setdefault(write_task, []).append(value)
    again = pa.concat_tables([unpack(values) for values in write_tasks.values()])
    assert sorted(map(str, again.to_pylist())) == sorted(map(str, expected.to_pylist()))


def test_frames_are_small_and_a_large_value_counts_for_more_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "PACKED_BYTES", 1000)
    rows = keyed(300, 4000)  # each record is a value of its own
    frames = list(packed_result(7, located(result_of(rows), rows, "int64"), result_of(rows), WriteTasks(2)))
    assert len(frames) > 10
    assert max(map(len, frames)) <= 64
    values = [value for frame in frames for value in frame["rows"]]
    assert sum(len(v) for v in values if v is not None) <= 2 * 1000 * len(values)
    assert unpack(values).num_rows == 330
    assert [text for frame in frames for text in frame["status"] if text is not None] == [
        '{"group": 7, "delta": null, "stats": {}}'
    ]
