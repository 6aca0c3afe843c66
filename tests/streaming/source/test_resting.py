"""Rows that stay where they were decoded: a write task gets the values that the records had."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tagstream.streaming.errors import TaskFileError
from tagstream.streaming.source.resting import REFERENCE, STEP, RowValues, rest
from tagstream.streaming.source.task_files import TaskFile, TaskFiles
from tagstream.table import chunks

BATCH = 7
ROW = pa.struct([pa.field("n", pa.int64(), nullable=False), ("word", pa.string()), ("list", pa.list_(pa.int32()))])
SCHEMA = pa.schema([field.with_nullable(True) for field in ROW])


def keyed(start: int, count: int) -> pa.Table:
    """Records of which every fifth is bad: it has no row."""
    rows = [
        None if n % 5 == 0 else {"n": n, "word": "ü" * (n % 3), "list": [n] * (n % 4)}
        for n in range(start, start + count)
    ]
    return pa.table({"skey": pa.array([b"%d" % n for n in range(start, start + count)]), "row": pa.array(rows, ROW)})


def task(files: TaskFiles, attempt: int) -> TaskFile:
    """The file of an attempt of a decoding task."""
    return TaskFile(str(Path(files.folder, str(BATCH), f"{STEP}-{attempt}")), attempt)


def resting(files: TaskFiles) -> tuple[pa.Table, pa.Table]:
    """Records of two tasks, three blocks, with their values and with references."""
    blocks = [keyed(0, 40), keyed(100, 7), keyed(200, 33)]
    one, other = task(files, 3), task(files, 1 << 40)
    found = [rest(block, file) for block, file in zip(blocks, (one, other, one), strict=True)]
    one.close()
    other.close()
    return pa.concat_tables(blocks), pa.concat_tables(found)


@pytest.mark.parametrize("most", [None, 200], ids=["one-piece", "in-pieces"])
def test_values_come_back_in_the_order_that_is_asked_for(
    most: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = TaskFiles.below(str(tmp_path))
    whole, references = resting(files)
    assert references.schema.field("row").type == REFERENCE
    if most is not None:
        monkeypatch.setattr(chunks, "CHUNK_BYTES", most)
    order = np.random.default_rng(5).permutation(references.num_rows)
    values = RowValues(references.take(pa.array(order))["row"], files, BATCH)
    direct = RowValues(whole.take(pa.array(order))["row"], files, BATCH)
    for rows in (np.arange(len(order)), np.array([3, 1, 70]), np.array([], np.int64)):
        got = values.take(rows, SCHEMA)
        assert got.to_pylist() == direct.take(rows, SCHEMA).to_pylist()
        assert got.schema.equals(SCHEMA)
    stored = values.in_order(np.arange(len(order)))
    assert order[stored].tolist() == [*range(40), *range(47, 80), *range(40, 47)], "as the attempts' files have them"
    assert direct.in_order(order).tolist() == order.tolist()
    assert values.bytes_a_row > 20


def test_a_delete_has_no_reference(tmp_path: Path) -> None:
    files = TaskFiles.below(str(tmp_path))
    _, references = resting(files)
    some = references.take(pa.array([None, 1, None, 78], pa.int64()))["row"]
    assert [row["n"] for row in RowValues(some, files, BATCH).take(np.array([3, 1]), SCHEMA).to_pylist()] == [231, 1]
    nothing = RowValues(some.take(pa.array([0, 2])), files, BATCH)
    assert nothing.take(np.array([], np.int64), SCHEMA).equals(SCHEMA.empty_table())


def test_records_that_may_lack_values_carry_them(tmp_path: Path) -> None:
    file = task(TaskFiles.below(str(tmp_path)), 1)
    rows = keyed(0, 10)
    assert rest(rows, None) is rows
    for name in ("absent", "old"):
        more = rows.append_column(name, pa.nulls(10, pa.binary()))
        assert rest(more, file) is more
    assert not list(tmp_path.iterdir()), "no file is made"


def test_files_of_a_batch_that_are_gone(tmp_path: Path) -> None:
    files = TaskFiles.below(str(tmp_path))
    _, references = resting(files)
    files.forget(BATCH)
    with pytest.raises(TaskFileError, match=rf"{BATCH}/{STEP}-3: the rows of a task at byte 0 .*index.local.dir"):
        RowValues(references["row"], files, BATCH)
