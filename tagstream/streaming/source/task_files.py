"""Packed rows that stay in a file of the task that made them. Only their place goes through Spark's shuffle.

The shuffle would copy the bytes from Python to the JVM, into its file, and back: with a master on this host all tasks can
read one file. ``<local folder>/exchange/<batch>/`` has a file for each attempt of a task, so that no two attempts write
to one file. A reader gets the place from Spark, which takes that of the attempt that counts. Files of a batch are removed
after its commit, and those of a run that was killed when the next query starts. They hold what the shuffle's files would
hold, for as long.

A place is a text that begins with :data:`_MARK`. An Arrow stream never does.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext

from tagstream.streaming.errors import TaskFileError

_MARK = b"tagstream:place "
_ALIGNMENT = 64  # of Arrow's buffers, which are used where they are in the file
FOLDER = "exchange"


@dataclass(frozen=True)
class TaskFiles:
    """The files of a query's tasks. ``folder``: on a disk of this host."""

    folder: str

    @staticmethod
    def below(local_dir: str) -> TaskFiles:
        """Those of the query whose local stores are in ``local_dir``."""
        return TaskFiles(os.path.join(local_dir, FOLDER))

    def clear(self) -> None:
        """Remove the files of earlier queries. No task may run."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def forget(self, batch_id: int) -> None:
        """Remove the files of a batch that is committed."""
        shutil.rmtree(os.path.join(self.folder, str(batch_id)), ignore_errors=True)

    @contextmanager
    def of_task(self, name: str) -> Iterator[TaskFile]:
        """The file of this attempt of a task. ``name``: the step, and what is unique within the task."""
        context = TaskContext.get()
        assert context is not None, "only tasks have files"
        batch = context.getLocalProperty("streaming.sql.batchId") or "-1"
        file = TaskFile(os.path.join(self.folder, batch, f"{name}-{context.taskAttemptId()}"))
        try:
            yield file
        finally:
            file.close()


@contextmanager
def task_file(files: TaskFiles | None, name: str) -> Iterator[TaskFile | None]:
    """The file of this attempt of a task; None without ``files``: then the rows go through the shuffle."""
    if files is None:
        yield None
        return
    with files.of_task(name) as file:
        yield file


class TaskFile:
    """The file of one attempt of a task. It is made with the first rows, in a folder for this user only."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._out: pa.OSFile | None = None

    def keep(self, rows: pa.Table) -> bytes:
        """Append rows and return their place. OSError when the disk is full."""
        if self._out is None:
            os.makedirs(os.path.dirname(self._path), mode=stat.S_IRWXU, exist_ok=True)
            self._out = pa.OSFile(self._path, "wb")
        out = self._out
        out.write(bytes(-out.tell() % _ALIGNMENT))
        start = out.tell()
        with pa.ipc.new_stream(out, rows.schema) as writer:
            writer.write_table(rows)
        return _MARK + json.dumps([start, out.tell() - start, self._path]).encode()

    def close(self) -> None:
        """Close the file. Readers may have read it before."""
        if self._out is not None:
            self._out.close()


def is_place(value: bytes | pa.Buffer) -> bool:
    """Whether a packed value is only the place of rows."""
    return memoryview(value)[: len(_MARK)] == _MARK


def read_place(value: bytes | pa.Buffer) -> pa.Table:
    """The rows at a place, without a copy. TaskFileError when the file is gone or too short."""
    start, size, path = json.loads(bytes(memoryview(value)[len(_MARK) :]))
    try:
        with pa.memory_map(path) as file:
            return pa.ipc.open_stream(file.read_at(size, start)).read_all()
    except (OSError, ValueError) as error:  # pyarrow's ArrowInvalid is a ValueError
        raise TaskFileError(
            f"{path}: the rows of a task at byte {start:,} cannot be read ({error}). The folder is needed while a batch "
            "runs: keep other programs from cleaning it, and start again. index.local.dir sets where it is"
        ) from error
