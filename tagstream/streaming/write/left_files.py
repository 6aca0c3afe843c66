"""Small Arrow files that one batch leaves for later ones, in a folder of the checkpoint: ``<instant>-<task>.arrow``.

A file appears whole or not at all; a second attempt of a task writes the same again, and what an attempt at a batch has left
that was taken back is what the next one leaves.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tagstream.table.storage.storage import Storage

_SUFFIX = ".arrow"


def write_file(folder: Storage, instant: str, task: int, table: pa.Table) -> None:
    """Leave what one write task of a batch has."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as out:
        out.write_table(table)
    folder.replace(f"{instant}-{task:05d}{_SUFFIX}", sink.getvalue().to_pybytes())


def newest_first(folder: Storage, before: str) -> Iterator[tuple[str, pa.Table]]:
    """(instant, table) of the batches before an instant; a file is read when it is asked for."""
    for name in sorted(_names(folder), reverse=True):
        instant = name.partition("-")[0]
        if instant < before:
            yield instant, pa.ipc.open_file(pa.py_buffer(folder.read(name))).read_all()


def forget_files(folder: Storage, before_ms: int) -> int:
    """Remove the files that were written before a time (epoch milliseconds); how many these were."""
    old = [entry.name for entry in folder.list("") if entry.name.endswith(_SUFFIX) and entry.mtime_ms < before_ms]
    folder.delete_many(old)
    return len(old)


def _names(folder: Storage) -> list[str]:
    return [name for name in folder.names("") if name.endswith(_SUFFIX)]
