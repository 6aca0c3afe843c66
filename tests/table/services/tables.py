"""Tables of the cleaning's tests, and what is on their disks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

from tagstream.table.file_group.names import parse_base_file_name, parse_log_file_name
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tests.table.writer import START_MS, Row, Writer, row

NOW = START_MS + 3_600_000
COLUMNS = ("id", "part", "ver", "name", "amount")


def clock(start: int = NOW) -> Callable[[], int]:
    times = itertools.count(start, 7)
    return lambda: next(times)


def rounds(writer: Writer, count: int, keys: int = 4) -> list[str]:
    """So many commits, each with the same keys; their instants."""
    first = max((found["ver"] for found in writer.live.values()), default=0) + 1
    return [writer.write([row(key, f"p{key % 2}", first + n) for key in range(keys)]) for n in range(count)]


def data_files(table: HoodieTable) -> dict[str, set[str]]:
    """Names of the data files by partition, as they are on disk."""
    root = Path(table.base_path)
    return {
        p.relative_to(root).as_posix(): {
            f.name for f in p.iterdir() if parse_base_file_name(f.name) or parse_log_file_name(f.name)
        }
        for p in root.iterdir()
        if p.is_dir() and p.name != ".hoodie"
    }


def rows(table: HoodieTable, as_of: str | None = None) -> list[Row]:
    found = read_snapshot(table.reload(), as_of=as_of).select(list(COLUMNS)).to_pylist()
    return sorted(found, key=lambda r: (str(r["id"]), str(r["part"])))


def live(writer: Writer) -> list[Row]:
    return sorted(writer.live.values(), key=lambda r: (str(r["id"]), str(r["part"])))
