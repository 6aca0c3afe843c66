"""What planning the table services costs, with up to 100,000 file groups: `python -m bench.services_scale`.

One process, no Spark, a simulated table (bench/inputs/driver_table.py): partitions, file names and the timeline are real,
data files are holes. Each service plans once over the whole table, as after months without it. Then, for each number of file
groups, a compaction and a batch rewrite and append to this many, some more batches follow, and all services plan again. A
plan is worth its cost if the second figures depend on the file groups that changed, and not on the whole table.

Prints for each plan: seconds (median of the runs), folders listed and files read, and its size.
"""

from __future__ import annotations

import argparse
import gc
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.inputs import driver_table as sim
from bench.inputs.lines import append_lines
from tagstream.table.file_group.names import base_file_name, instant_from_ms
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.archiving import archive_table, plan_archive
from tagstream.table.services.cleaning import clean
from tagstream.table.services.cleaning_plan import plan_table
from tagstream.table.services.clustering_options import ClusteringOptions
from tagstream.table.services.clustering_plan import Memory, schedule_clustering
from tagstream.table.services.compaction_plan import schedule_compaction
from tagstream.table.services.options import ArchiveOptions, CleanOptions, CompactionOptions
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.storage.storage import FileEntry
from tagstream.table.timeline.commit_metadata import CommitMetadata, FileKind, WriteStat, WriteStatus
from tagstream.table.timeline.instant import COMMIT, COMPACTION, DELTA_COMMIT, Instant, State

RETAINED = (
    10  # commits, the cleaner's default: this many small batches follow, so that the clean reaches the changed groups
)
SMALL_BATCH = 10  # file groups
# No file of the simulated table is this small: all are checked, none is merged.
CLUSTERING = ClusteringOptions(max_commits=1, small_file_limit=1)
BY_ONE_PLAN = CompactionOptions(target_io_mb=10**9)  # one plan includes all
_TOKEN = "0-3-3"


@dataclass(frozen=True)
class Counting(PosixStorage):
    """Counts folders listed and files read."""

    counts: dict[str, int] = field(default_factory=lambda: {"listed": 0, "read": 0})

    def list(self, rel: str, prefixes: tuple[str, ...] = ("",)) -> list[FileEntry]:
        """Count and list."""
        self.counts["listed"] += 1
        return super().list(rel, prefixes)

    def names(self, rel: str) -> tuple[str, ...]:
        """Count and list."""
        self.counts["listed"] += 1
        return super().names(rel)

    def read(self, rel: str) -> bytes:
        """Count and read."""
        self.counts["read"] += 1
        return super().read(rel)


@dataclass
class Case:
    """One simulated table: its present groups, and its clock."""

    made: sim.Simulated
    table: HoodieTable
    minute: int
    memory: Memory = field(default_factory=Memory)
    lines: list[dict[str, Any]] = field(default_factory=list)

    def clock_ms(self) -> int:
        """Milliseconds. Each call is a minute later."""
        self.minute += 1
        return sim.START_MS + 60_000 * self.minute

    def instant(self) -> str:
        """A new instant time."""
        return instant_from_ms(self.clock_ms(), self.table.config.timezone_utc)

    def measure(self, service: str, changed: int | None, work: Callable[[], Any], holds: Callable[[Any], int]) -> Any:
        """Time one plan."""
        storage = self.table.storage
        assert isinstance(storage, Counting)
        storage.counts.update(listed=0, read=0)
        gc.collect()
        started = time.perf_counter()
        found = work()
        seconds = time.perf_counter() - started
        line = {"kind": "services", "service": service, "groups": len(self.made.groups), "changed": changed}
        self.lines.append({**line, "seconds": round(seconds, 5), **storage.counts, "holds": holds(found)})
        return found


def main() -> None:
    """Make the tables, plan, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, nargs="+", default=[1_000, 10_000, 100_000], help="file groups")
    parser.add_argument("--changed", type=int, nargs="+", default=[10, 1_000, 10_000], help="file groups that change")
    parser.add_argument("--per-partition", type=int, default=10, help="file groups of a partition")
    parser.add_argument("--runs", type=int, default=3, help="plans after a change, each after another change")
    parser.add_argument("--folder", type=Path, help="where to make the tables; a temporary folder by default")
    parser.add_argument("--json", type=Path, help="add the figures to this file of JSON lines")
    args = parser.parse_args()
    lines: list[dict[str, Any]] = []
    for groups in args.groups:
        folder = Path(tempfile.mkdtemp(prefix="services-scale-", dir=args.folder))
        try:
            lines += measure_table(folder, groups, args)
        finally:
            shutil.rmtree(folder)
    append_lines(args.json, lines)
    Console(width=None if sys.stdout.isatty() else 130).print(as_table(lines))


def measure_table(folder: Path, groups: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    """All lines of one table."""
    made = sim.make_table(folder, groups, max(1, groups // args.per_partition), 1, 30, 1 / args.per_partition, 30)
    table = HoodieTable.open(Counting(str(folder), sync=False))
    case = Case(made, table, minute=1_000)
    all_services(case, None)
    first = list(case.lines)
    change(case, SMALL_BATCH)  # the first compaction has rewritten everything, and its effects are not realistic
    all_services(case, SMALL_BATCH)
    case.lines = first
    for changed in (n for n in args.changed if n <= groups):
        for _ in range(args.runs):
            change(case, changed)
            all_services(case, changed)
    return case.lines


def all_services(case: Case, changed: int | None) -> None:
    """Plan each service. All but clustering are also executed, which finds nothing and stores this result."""
    table = case.table
    whole = changed is None
    plan_cluster = lambda: schedule_clustering(  # noqa: E731
        table, CLUSTERING, case.clock_ms, look_at_all=whole, memory=case.memory
    )
    case.measure("clustering", changed, plan_cluster, lambda found: 0 if found is None else 1)
    plan_clean = lambda: plan_table(table, CleanOptions(), case.clock_ms())  # noqa: E731
    count = lambda plan: 0 if plan is None else sum(map(len, plan.files.values()))  # noqa: E731
    case.measure("cleaning", changed, plan_clean, count)
    clean(table, CleanOptions(), case.clock_ms)
    archive = lambda: plan_archive(table, ArchiveOptions(), CleanOptions(), case.clock_ms)  # noqa: E731
    case.measure("archiving", changed, archive, len)
    archive_table(table, ArchiveOptions(), CleanOptions(), case.clock_ms)
    plan_compact = lambda: schedule_compaction(  # noqa: E731
        table, BY_ONE_PLAN, case.clock_ms, force=True, look_at_all=whole
    )
    instant = case.measure("compaction", changed, plan_compact, lambda at: len(operations(table, at)))
    if instant is not None:
        compacted(case, instant)


def operations(table: HoodieTable, instant: str | None) -> Sequence[tuple[str, str]]:
    """(partition path, file id) of the file groups in a plan."""
    return sorted(table.timeline().pending_compactions) if instant is not None else ()


def compacted(case: Case, instant: str) -> None:
    """Complete a compaction for its readers: base files that are holes, and the commit that names them."""
    table, statuses, now = case.table, [], {}
    for partition, file_id in operations(table, instant):
        now[file_id] = name = base_file_name(file_id, _TOKEN, instant)
        with open(table.storage.where(f"{partition}/{name}"), "wb") as f:
            f.truncate(sim.FULL_BYTES)
        stat = WriteStat(file_id, f"{partition}/{name}", partition, file_size=sim.FULL_BYTES)
        statuses.append(WriteStatus(stat, FileKind.MERGE, new_group=False))
    complete(case, instant, COMMIT, statuses, COMPACTION)
    groups = [replace(g, base_instant=instant, logs=0) if g.file_id in now else g for g in case.made.groups]
    case.made = replace(case.made, groups=groups)


def change(case: Case, changed: int) -> None:
    """Append log files to this many file groups, and then add the batches for which a clean waits."""
    for count in (changed, *[SMALL_BATCH] * RETAINED):
        instant = case.instant()
        statuses = list(appended(case, instant, count))
        complete(case, instant, DELTA_COMMIT, statuses, DELTA_COMMIT)


def appended(case: Case, instant: str, count: int) -> Iterator[WriteStatus]:
    """One more log file in each of the first ``count`` file groups."""
    block = sim.log_block(instant)
    for status in sim.touched(case.made, count):
        Path(case.table.storage.where(status.stat.path)).write_bytes(block)
        yield status
    groups = [replace(g, logs=g.logs + 1) if n < count else g for n, g in enumerate(case.made.groups)]
    case.made = replace(case.made, groups=groups)


def complete(case: Case, instant: str, action: str, statuses: list[WriteStatus], pending: str) -> None:
    """Write the files of a completed action."""
    table = case.table
    content = CommitMetadata.build(statuses, {}, sim.AVRO).to_bytes(table.config.version)
    folder = Path(table.storage.where(table.config.timeline_folder))
    for at in (Instant(instant, pending, State.REQUESTED), Instant(instant, pending, State.INFLIGHT)):
        (folder / at.file_name()).touch()
    (folder / Instant(instant, action, State.COMPLETED).file_name()).write_bytes(content)


def as_table(lines: list[dict[str, Any]]) -> Table:
    """A row per service and size: the median of the runs."""
    table = Table(
        "service", "file groups", "of them changed", "s (median)", "least", "greatest", "folders listed", "files read",
        "the plan holds",
    )  # fmt: skip
    rows: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for line in lines:
        rows.setdefault((line["service"], line["groups"], line["changed"]), []).append(line)
    for service, groups, changed in sorted(rows, key=lambda row: (row[0], row[2] or 10**9, row[1])):
        found = rows[service, groups, changed]
        seconds = [line["seconds"] for line in found]
        last = found[-1]
        table.add_row(
            service, f"{groups:,}", "all, the first time" if changed is None else f"{changed:,}",
            f"{statistics.median(seconds):.4f}", f"{min(seconds):.4f}", f"{max(seconds):.4f}",
            f"{last['listed']:,}", f"{last['read']:,}", f"{last['holds']:,}",
        )  # fmt: skip
    return table


if __name__ == "__main__":
    main()
