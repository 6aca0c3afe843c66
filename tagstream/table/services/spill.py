"""A slice's log rows: in memory up to a limit, beyond it in a temporary file that is mapped into memory."""

from __future__ import annotations

import os
import tempfile
from types import TracebackType
from typing import Self

import pyarrow as pa


class RowKeeper:
    """Keeps tables as they come and gives each back, from memory or from a file of this machine that has no name.

    What lies in the file is read page by page when rows are taken from it, and the system may forget the pages. The keys and
    ordering values that a merge needs at all times are the caller's.
    """

    def __init__(self, limit: int) -> None:
        """``limit``: bytes of rows that stay in memory."""
        self._limit = limit
        self._held = 0
        self.spilled = 0
        self._files: list[pa.MemoryMappedFile] = []

    def keep(self, rows: pa.Table) -> pa.Table:
        """The same rows, to be used until this keeper is closed."""
        if self._held + rows.nbytes <= self._limit:
            self._held += rows.nbytes
            return rows
        self.spilled += rows.nbytes
        handle, path = tempfile.mkstemp(prefix="tagstream-rows-", suffix=".arrow")
        try:
            with os.fdopen(handle, "wb") as out, pa.ipc.new_file(out, rows.schema) as writer:
                writer.write_table(rows)
            source = pa.memory_map(path)
        finally:
            os.unlink(path)  # it is open: nothing is left behind, whatever kills the process
        self._files.append(source)
        return pa.ipc.open_file(source).read_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()
