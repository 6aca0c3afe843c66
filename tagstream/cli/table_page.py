"""``tagstream table page``: a table as one HTML file that needs no other file.

It shows the timeline, the commits, the files by partition, and the differences between the table and the index of a
checkpoint.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tagstream.bootstrap.plan import plan_bootstrap
from tagstream.cli.command import Clock, Command, add_table
from tagstream.cli.index_reader import existing_checkpoint, open_index
from tagstream.cli.index_verify import KINDS, Comparison, committed_manifests
from tagstream.cli.output import AdminError, Fact, Output
from tagstream.cli.table_health import readable
from tagstream.streaming.monitor.snapshot import CommitLine, GroupSize, PartitionLine, commit_line, largest
from tagstream.streaming.monitor.templates import render
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import listed_by_metadata
from tagstream.table.services.health import SMALL_FILE_BYTES, FileSizes, sizes_of, total_sizes
from tagstream.table.timeline.instant import Instant
from tagstream.table.timeline.timeline import Timeline

COMMITS, PARTITIONS, DIFFERENCES, PENDING = 200, 200, 50, 50
# Classes of file slices by their number of log files: a name, and the greatest number.
_DEPTHS: tuple[tuple[str, int | None], ...] = (
    ("no log file", 0),
    ("1 log file", 1),
    ("2 to 5", 5),
    ("6 to 20", 20),
    ("more", None),
)
_PACKAGE = "tagstream.cli"
GROUPS_SHOWN = 64


@dataclass(frozen=True)
class TimelineFacts:
    """Completed actions by kind, the pending ones, and the newest commits (newest first)."""

    actions: dict[str, int]
    pending: tuple[Instant, ...]
    pending_total: int
    first: str | None
    newest: str | None
    commits_total: int
    commits: tuple[CommitLine, ...]


@dataclass(frozen=True)
class FileFacts:
    """Files by partition, the largest first, and by how many log files their slices have."""

    partitions: int
    total: FileSizes
    largest: tuple[PartitionLine, ...]
    log_depths: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class IndexFacts:
    """The index of a checkpoint compared with the table. ``differences``: the first few, as ``index verify`` lists them."""

    checkpoint: str
    batch_id: int | None
    instant: str | None
    groups: tuple[GroupSize, ...]
    keys: int
    tombstones: int
    bytes: int
    table_keys: int
    difference_count: int
    by_kind: tuple[tuple[str, int], ...]
    differences: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class TableFacts:
    """The whole content of the page. ``index`` None: no checkpoint was given."""

    table: HoodieTable
    as_of: str | None
    settings: tuple[tuple[str, str], ...]
    timeline: TimelineFacts
    files: FileFacts
    index: IndexFacts | None


def table_facts(arguments: argparse.Namespace, out: Output) -> TableFacts:
    """Read the table, and the index if a checkpoint was given. Nothing is locked or changed."""
    table = listed_by_metadata(readable(HoodieTable.open(arguments.target_base_path), out))
    timeline = table.timeline()
    index = None
    if arguments.checkpoint_dir is not None:
        index = _index(table, arguments.checkpoint_dir, out.progress)
    return TableFacts(
        table=table,
        as_of=timeline.newest_completed,
        settings=_settings(table),
        timeline=_timeline(table, timeline),
        files=_files(table, timeline, out.progress),
        index=index,
    )


def _settings(table: HoodieTable) -> tuple[tuple[str, str], ...]:
    config = table.config
    return (
        ("type", f"{config.table_type}, version {config.version}"),
        ("record key", ", ".join(config.record_key_fields) or "none"),
        ("partitioned by", ", ".join(config.partition_fields) or "nothing"),
        ("ordered by", ", ".join(config.deciding_fields) or "commit time"),
        ("metadata table", ", ".join(config.metadata_partitions) or "none"),
    )


def _timeline(table: HoodieTable, timeline: Timeline) -> TimelineFacts:
    done = timeline.completed_writes
    newest = [commit_line(i, timeline.metadata(table.storage, i)) for i in done[::-1][:COMMITS]]
    return TimelineFacts(
        actions=dict(sorted(Counter(i.action for i in timeline.instants if i.is_completed).items())),
        pending=timeline.pending[-PENDING:][::-1],
        pending_total=len(timeline.pending),
        first=done[0].time if done else None,
        newest=done[-1].time if done else None,
        commits_total=len(done),
        commits=tuple(newest),
    )


def _files(table: HoodieTable, timeline: Timeline, progress: Callable[[str], None]) -> FileFacts:
    view = table.view(timeline)
    found: dict[str, FileSizes] = {}
    depths: Counter[str] = Counter()
    for partition in view.partitions():
        progress(f"partition {partition!r}")
        slices = view.latest_merged_slices(partition)
        depths.update(_depth(len(file_slice.log_files)) for file_slice in slices)
        sizes = sizes_of(slices, SMALL_FILE_BYTES)
        if sizes.file_groups:
            found[partition] = sizes
    by_depth = tuple((name, depths[name]) for name, _ in _DEPTHS)
    return FileFacts(len(found), total_sizes(found.values()), largest(found, PARTITIONS), by_depth)


def _depth(logs: int) -> str:
    return next(name for name, most in _DEPTHS if most is None or logs <= most)


def _index(table: HoodieTable, checkpoint_dir: str, progress: Callable[[str], None]) -> IndexFacts:
    """Compare every live row of the table with the index, as ``index verify`` does."""
    plan = plan_bootstrap(table)
    checkpoint = existing_checkpoint(checkpoint_dir)
    with open_index(checkpoint, committed_manifests(table, plan.timeline, checkpoint)) as index:
        groups = []
        for label in index.labels:  # a step per key group, of which there are few
            counts = index.counts(label)
            groups.append(GroupSize(label, counts.live, counts.tombstones, sum(index.sizes(label))))
        comparison = Comparison(index, plan, progress)
        listed = tuple(comparison.differences(DIFFERENCES))
    return IndexFacts(
        checkpoint=index.checkpoint,
        batch_id=index.heads.batch_id,
        instant=index.heads.instant,
        groups=tuple(sorted(groups, key=lambda g: (-g.keys, g.label))),
        keys=sum(g.keys for g in groups),
        tombstones=sum(g.tombstones for g in groups),
        bytes=sum(g.bytes for g in groups),
        table_keys=comparison.table_keys,
        difference_count=sum(comparison.found.values()),
        by_kind=tuple((text, comparison.found[kind]) for kind, text in KINDS.items()),
        differences=listed,
    )


def run_page(arguments: argparse.Namespace, out: Output, clock_ms: Clock) -> int:
    """Write the page. Exit code 1 when index and table differ."""
    path = os.path.abspath(arguments.out)
    found = table_facts(arguments, out)
    content = table_page(found, clock_ms())
    _write(path, content)
    out.facts(
        [
            Fact("table", "table", found.table.config.name),
            Fact("base_path", "path", found.table.base_path),
            Fact("as_of", "as of", found.as_of),
            Fact("out", "page", path),
            Fact("page_bytes", "its size", len(content), "bytes"),
        ]
    )
    if found.index is None:
        return 0
    out.facts([Fact("difference_count", "differences", found.index.difference_count, "count")])
    return 1 if found.index.difference_count else 0


def table_page(found: TableFacts, at_ms: int) -> bytes:
    """The page as UTF-8. ``at_ms``: present time in milliseconds since 1970."""
    groups = found.index.groups if found.index is not None else ()
    most = max((group.keys for group in groups), default=0)
    shown = [(group, group.keys / most if most else 0.0) for group in groups[:GROUPS_SHOWN]]
    slices = max(1, found.files.total.file_groups)
    return render(
        _PACKAGE,
        "table.html.j2",
        {
            "f": found,
            "at_ms": at_ms,
            "groups": shown,
            "groups_more": max(0, len(groups) - GROUPS_SHOWN),
            "depths": [(name, count, count / slices) for name, count in found.files.log_depths],
            "inserts": [(n, line.inserts + line.updates) for n, line in enumerate(reversed(found.timeline.commits))],
            "written": [(n, line.bytes) for n, line in enumerate(reversed(found.timeline.commits))],
        },
    )


def _write(path: str, content: bytes) -> None:
    """Write the file atomically. An existing one is replaced."""
    hidden = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{os.getpid()}.tmp")
    try:
        with open(hidden, "wb") as file:
            file.write(content)
        os.replace(hidden, path)
    except OSError as e:
        with suppress(OSError):
            os.unlink(hidden)
        raise AdminError(f"{path} cannot be written ({e.strerror}); give another --out") from None


def _add_flags(out: argparse.ArgumentParser) -> None:
    add_table(out)
    out.add_argument("--out", metavar="FILE", required=True, help="HTML file to write; an existing one is replaced")
    out.add_argument(
        "--checkpoint-dir",
        metavar="PATH",
        help="checkpoint of a stream, whose index is compared with the table; exit code 1 when they differ",
    )


COMMANDS = (
    Command(
        "table",
        "page",
        "write a page about the table: timeline, files, and its index; one HTML file",
        _add_flags,
        run_page,
    ),
)
