"""Files of records as people give them to a command, on this machine and in the order in which a stream reads them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from tagstream.admin.errors import AdminError
from tagstream.table.errors import ConfigError

_READ_BYTES = 4 * 1024 * 1024


def files_below(given: str, flag: str) -> list[Path]:
    """The file itself, or the visible files below the folder, in the stream's order: by time, then by path.

    ConfigError, which names the flag, where there is neither.
    """
    path = Path(given.removeprefix("file://"))
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ConfigError(f"{flag} {path}: there is no such file or folder")
    found = []
    for folder, below, names in os.walk(path):
        below[:] = [name for name in below if not name.startswith((".", "_"))]
        found += [Path(folder, name) for name in names if not name.startswith((".", "_"))]
    return sorted(found, key=lambda file: (file.stat().st_mtime_ns // 1000, str(file)))


def lines_of(file: Path) -> Iterator[list[bytes]]:
    """The lines of a file (a name that ends in .gz or .bz2 is unpacked), some MiB at a time; AdminError."""
    rest = b""
    try:
        with pa.input_stream(str(file)) as stream:
            while block := stream.read(_READ_BYTES):
                *lines, rest = (rest + block).split(b"\n")
                if lines:
                    yield lines
    except (OSError, pa.ArrowInvalid) as error:
        raise AdminError(f"{file} cannot be read ({error}); leave it out") from error
    if rest:
        yield [rest]


def raw_lines(file: Path, lines: list[bytes], before: int) -> pa.RecordBatch:
    """Lines as a decoder takes them; ``before``: how many lines of the file come before."""
    n = len(lines)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.nulls(n, pa.binary()),
            "value": pa.array(lines, pa.binary()),
            "src": pa.repeat(pa.scalar(str(file)), n),
            "pos_hi": pa.array(np.full(n, file.stat().st_mtime_ns // 1000, np.int64)),
            "pos_lo": pa.array(np.arange(before + 1, before + n + 1)),
        }
    )
