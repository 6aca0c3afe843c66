"""Rows that stay in the file of a task: they come back as they were, and are removed with their batch."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.errors import TaskFileError
from tagstream.streaming.source.packed import empty_rows, pack, unpack
from tagstream.streaming.source.task_files import TaskFile, TaskFiles, is_place, read_place, task_file

ROWS = pa.table({"n": pa.array(range(1000), pa.int64()), "word": [f"{'ü' * (i % 5)}" for i in range(1000)]})


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    file = TaskFile(str(tmp_path / "a" / "b"))
    places = [place for start in (0, 10, 700) for place in pack(ROWS.slice(start, 200), file)]
    assert list(pack(ROWS.slice(0, 0), file)) == []
    found = unpack([*places, None])  # before the file is closed
    file.close()
    assert found.equals(unpack(places))
    assert found.equals(pa.concat_tables([ROWS.slice(start, 200) for start in (0, 10, 700)]).combine_chunks())
    assert all(map(is_place, places))
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == stat.S_IRWXU
    assert list(map(empty_rows, places)) == [0, 0, 0]
    (tmp_path / "a" / "b").unlink()
    assert found.column("n")[0].as_py() == 0, "what was read stays"


def test_places_and_rows_may_be_mixed(tmp_path: Path) -> None:
    file = TaskFile(str(tmp_path / "file"))
    values = [*pack(ROWS.slice(0, 5), file), *pack(ROWS.slice(5, 5))]
    assert [is_place(value) for value in values] == [True, False]
    assert unpack(map(pa.py_buffer, values)).equals(ROWS.slice(0, 10).combine_chunks())


@pytest.mark.parametrize("what", ["gone", "short"])
def test_a_file_that_another_program_has_changed(what: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    file = TaskFile(str(path))
    (place,) = pack(ROWS, file)
    file.close()
    if what == "gone":
        path.unlink()
    else:
        os.truncate(path, 100)
    with pytest.raises(TaskFileError, match=r"file: the rows of a task at byte 0 .*index.local.dir"):
        read_place(place)


def test_without_files_the_rows_go_through_the_shuffle() -> None:
    with task_file(None, "keys") as file:
        assert file is None


def test_the_folders_of_batches(tmp_path: Path) -> None:
    files = TaskFiles.below(str(tmp_path))
    for batch in (3, 4):
        (tmp_path / "exchange" / str(batch)).mkdir(parents=True)
    files.forget(3)
    files.forget(9)
    assert os.listdir(files.folder) == ["4"]
    files.clear()
    assert os.listdir(tmp_path) == []
    files.clear()


@pytest.mark.spark
def test_each_attempt_of_a_task_has_a_file(spark: SparkSession, tmp_path: Path) -> None:
    files = TaskFiles.below(str(tmp_path))

    def write(batches: object) -> object:
        for _ in batches:  # type: ignore[attr-defined]
            with files.of_task("keys") as file:
                yield pa.RecordBatch.from_pydict({"place": pa.array([file.keep(ROWS.slice(0, 3))], pa.binary())})

    places = [row.place for row in spark.range(4, numPartitions=4).mapInArrow(write, "place binary").collect()]  # type: ignore[arg-type]
    assert len(list(Path(files.folder).rglob("keys-*"))) == 4
    assert [read_place(bytes(place)).num_rows for place in places] == [3] * 4
