"""The write task: what it writes does not depend on how many chunks its rows are in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tagstream.streaming.batch.located import WriteTasks, by_write_task
from tagstream.streaming.source.packed import pack, unpack
from tagstream.table import chunks
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.validate import validate
from tests.streaming.batch.located_rows import inserts_and_updates, located_rows, write_commit
from tests.table.writer import Writer

NAME = "x" * 200


def written(folder: Path, table_type: str, *, shuffled: bool) -> pa.Table:
    """A table after a commit of inserts and one of updates and deletes, through the lanes' packed values."""
    writer = Writer.create(folder, table_type)
    for ver, known in ((1, False), (2, True)):
        work = inserts_and_updates(3, 300, ver, known=known, name=NAME)
        rows = located_rows([work[i] for i in np.random.default_rng(ver).permutation(300)] if shuffled else work)
        (write_task,) = {write_task for write_task, _ in by_write_task(rows, WriteTasks(1))}
        write_commit(writer, unpack(value for _, value in by_write_task(rows, WriteTasks(write_task + 1))))
    assert validate(writer.table) == []
    return read_snapshot(writer.table).sort_by("id")


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("shuffled", [False, True])
def test_rows_in_many_chunks(tmp_path: Path, table_type: str, shuffled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one").mkdir()
    expected = written(tmp_path / "one", table_type, shuffled=shuffled)
    assert expected.num_rows == 240
    monkeypatch.setattr("tagstream.streaming.source.packed.PACKED_BYTES", 1000)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 4000)  # a fifth of a file group's rows
    (tmp_path / "many").mkdir()
    rows = located_rows(inserts_and_updates(3, 300, 1, known=False, name=NAME))
    assert unpack(pack(rows))["row"].num_chunks > 10
    columns = ["id", "part", "ver", "name", "amount"]
    found = written(tmp_path / "many", table_type, shuffled=shuffled)
    assert found.select(columns).combine_chunks().equals(expected.select(columns).combine_chunks())
