"""Tables that tests compact, and what must be the same of them before and after."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import MERGE_ON_READ
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.schema.schema import FILE_NAME
from tagstream.table.services.compaction import CompactionResult, compact
from tagstream.table.services.compaction_plan import schedule_compaction
from tagstream.table.services.options import CompactionOptions, Strategy
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tagstream.table.timeline.instant import COMPACTION, Instant
from tests.support.table_version import table_version
from tests.table.metadata.case import Case
from tests.table.writer import Writer, row

ALL = CompactionOptions(strategy=Strategy.UNBOUNDED)


def clock(writer: Writer) -> Callable[[], int]:
    """A clock beside the writer's, which it never stays behind."""

    def tick() -> int:
        writer.now_ms += 7
        return writer.now_ms

    return tick


def free_clock(start_ms: int = 1_800_000_000_000) -> Callable[[], int]:
    times = itertools.count(start_ms, 7)
    return lambda: next(times)


def made(folder: Path, metadata: bool = False, **options: Any) -> Writer:
    """An empty merge-on-read table, with a metadata table of every partition of its version or without one."""
    if metadata:
        return Case.create(folder, MERGE_ON_READ, table_version(), **options).writer
    return Writer.without_metadata(folder, MERGE_ON_READ, **options)


def fill(writer: Writer) -> Writer:
    """Inserts, updates, deletes, moves, keys that come back; some groups have base files, some logs alone."""
    writer.with_options(inserts_to_base_files=True)
    writer.write([row(key, f"p{key % 2}", 1) for key in range(24)])
    writer.with_options(inserts_to_base_files=False)
    writer.write([row(key, f"p{key % 2}", 2, "updated") for key in range(0, 24, 3)])
    writer.write([row(key, "p2", 3) for key in range(20, 30)], ["k1", "k6"])
    writer.write([row(1, "p1", 4, "back"), row(7, "p1", 4)], ["k22"], {"k22": 5})
    return writer


def rows(table: HoodieTable) -> list[dict[str, Any]]:
    """All rows with their meta columns but the file's name, which a compaction changes."""
    found = read_snapshot(table.reload()).drop_columns([FILE_NAME])
    listed: list[dict[str, Any]] = found.sort_by("id").to_pylist()
    return listed


def groups(table: HoodieTable) -> dict[str, tuple[str, str]]:
    """Partition and file group by record key."""
    found: pa.Table = read_snapshot(table.reload())
    return {
        r["_hoodie_record_key"]: (r["_hoodie_partition_path"], r[FILE_NAME].split("_")[0]) for r in found.to_pylist()
    }


def slices_with_logs(table: HoodieTable) -> list[tuple[str, str]]:
    view = table.reload().view()
    return [(p, s.file_id) for p in view.partitions() for s in view.latest_merged_slices(p) if s.log_files]


def plans(table: HoodieTable) -> Sequence[Instant]:
    return [i for i in table.timeline().pending if i.action == COMPACTION]


def plan_and_compact(writer: Writer, options: CompactionOptions = ALL) -> CompactionResult:
    tick = clock(writer)
    instant = schedule_compaction(writer.table, options, tick, force=True)
    assert instant is not None
    return compact(writer.table, instant, tick, options=options)


def sound(writer: Writer) -> None:
    """The oracle's rows are there, no file is too much, and the metadata table agrees."""
    table = writer.table.reload()
    assert [{name: r[name] for name in writer.schema.names} for r in rows(table)] == [
        writer.live[key] for key in sorted(writer.live)
    ]
    assert validate(table) == []
    assert validate_metadata(table) == []
