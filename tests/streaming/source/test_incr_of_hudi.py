"""Streams from tables that real Hudi and Flink wrote, from the position of each of their commits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tagstream.errors import CleanedPastError
from tagstream.reading import open_table
from tagstream.streaming.errors import SourceError
from tagstream.streaming.source.file_plans import PlanLog
from tagstream.streaming.source.source_file import FilePosition
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.change_stream import time_of, writes_between
from tagstream.table.storage.posix import PosixStorage
from tests.streaming.source.incr_follower import DELETED, Follower
from tests.table import reference

# Positions from which the rows follow; from the others the files are gone.
READABLE = 60


def rows_of(table: Path, keys: tuple[str, ...], as_of: str | None = None) -> dict[tuple[Any, ...], str]:
    return by_key(open_table(table).scan(as_of=as_of).to_arrow(), keys)


def by_key(rows: pa.Table, keys: tuple[str, ...]) -> dict[tuple[Any, ...], str]:
    return {tuple(row[name] for name in keys): repr(row) for row in rows.to_pylist()}


@pytest.mark.extended("a minute of tables of Hudi")
def test_the_rows_follow_from_each_commit(tmp_path: Path) -> None:
    read, gone = [], []
    for name in reference.NAMES:
        path = reference.unpack(name, tmp_path)
        table = HoodieTable.open(str(path))
        config, timeline = table.config, table.timeline()
        keys = (*config.record_key_fields, *config.partition_fields)
        wanted, stored = rows_of(path, keys), DELETED in open_table(path).schema.names
        for number, write in enumerate([None, *writes_between(timeline)]):
            where = f"{name} from {write}"
            folder = tmp_path / f"{name}-{number}"
            log = PlanLog(PosixStorage(str(folder)))
            try:
                state = {} if write is None else rows_of(path, keys, max_up_to(table, time_of(write)))
                if write is not None:
                    log.keep_positions({"": FilePosition(int(time_of(write)), config.version, 0, 0, 0)}, 1)
                follower = Follower(path, folder, identity=keys)
                follower.planner().look()
                for plan in log.numbers:
                    for _, row in follower.records(plan):
                        key = tuple(row[field] for field in keys)
                        deleted = row[DELETED] if stored else row.pop(DELETED)
                        if deleted:
                            assert state.pop(key, None) is not None, where
                        else:
                            state[key] = repr(row)
            except (SourceError, CleanedPastError):
                gone.append(where)
                continue
            assert state == wanted, where
            read.append(where)
    assert len(read) >= READABLE, (len(read), gone)


def max_up_to(table: HoodieTable, time: str) -> str:
    """The greatest instant of the writes up to a time; they were completed in the order of their instants."""
    return max(i.time for i in writes_between(table.timeline(), None, time))
