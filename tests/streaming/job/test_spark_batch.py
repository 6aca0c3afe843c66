"""The Spark batch of a DataFrame: the offsets of all its sources, as Spark logged them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tagstream.streaming.batch.spark_checkpoint import read_spark_batch, source_offsets
from tagstream.streaming.errors import CheckpointError
from tagstream.table.storage.posix import PosixStorage


def checkpoint(folder: Path, *batches: str) -> PosixStorage:
    (folder / "offsets").mkdir()
    (folder / "metadata").write_text(json.dumps({"id": "q"}))
    for number, lines in enumerate(batches):
        (folder / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{lines}')
    return PosixStorage(str(folder))


def test_offsets_of_any_kind_are_kept_as_they_are(tmp_path: Path) -> None:
    query_folder = checkpoint(tmp_path, "7\n-\nnot json", '9\n{"t":{"0":5}}\nstill not')
    assert source_offsets(query_folder, 0) == [7, None, "not json"]
    first, second = (read_spark_batch(query_folder, n, files=False, rows=True) for n in range(2))
    assert (first.start_offsets, first.end_offsets) == ({}, {"sources": [7, None, "not json"]})
    assert second.start_offsets == first.end_offsets
    assert second.end_offsets == {"sources": [9, {"t": {"0": 5}}, "still not"]}
    assert source_offsets(query_folder, 2) is None
    with pytest.raises(CheckpointError, match="batch 2 is not in"):
        read_spark_batch(query_folder, 2, files=False, rows=True)


@pytest.mark.parametrize("rows", [False, True])
def test_what_the_epoch_before_tells_is_not_read_again(rows: bool, tmp_path: Path) -> None:
    query_folder = checkpoint(tmp_path, '{"t":{"0":5}}', '{"t":{"0":9}}', '{"t":{"0":12}}')
    fresh = [read_spark_batch(query_folder, number, files=False, rows=rows) for number in range(3)]
    (tmp_path / "metadata").unlink()
    (tmp_path / "offsets" / "0").unlink()
    assert read_spark_batch(query_folder, 1, files=False, rows=rows, before=fresh[0]) == fresh[1]
    with pytest.raises(CheckpointError, match="batch 2 is not in"):  # not the one before: all is read
        read_spark_batch(query_folder, 2, files=False, rows=rows, before=fresh[0])


def test_a_cut_off_file_is_named(tmp_path: Path) -> None:
    query_folder = checkpoint(tmp_path, "")
    with pytest.raises(CheckpointError, match=r"offsets/0 has 2 lines"):
        read_spark_batch(query_folder, 0, files=False, rows=True)
