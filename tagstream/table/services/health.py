"""What is wrong with a table that is streamed into, and which key or command corrects it: looked at, nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.encode.locations import instant_ms
from tagstream.table.metadata.metadata_table import MetadataTable
from tagstream.table.services.file_sizes import FileSizes, partition_sizes, total_sizes
from tagstream.table.timeline.heartbeat import is_alive
from tagstream.table.timeline.instant import (
    CLEAN,
    CLUSTERING,
    COMMIT,
    COMPACTION,
    DELTA_COMMIT,
    SAVEPOINT,
    Instant,
)
from tagstream.table.timeline.savepoints import savepoints
from tagstream.table.timeline.timeline import Timeline

HOUR_MS = 3_600_000
_DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True)
class Limits:
    """Above which figures something is said. ``log_files``: of one slice; ``active``: completed writes on the timeline;
    ``pending_ms``: age of an unfinished action; ``old_share``: of the table's bytes that a clean would delete;
    ``small_share``: of the file groups, once there are ``groups`` of them and the table has ``small_bytes``;
    ``savepoint_ms``: age of a savepoint; ``metadata_deltas``: delta commits of the metadata table since its compaction."""

    log_files: int = 20
    active: int = 100
    pending_ms: int = HOUR_MS
    old_share: float = 0.3
    small_share: float = 0.5
    groups: int = 20
    small_bytes: int = 1 << 30
    savepoint_ms: int = 30 * _DAY_MS
    metadata_deltas: int = 50


@dataclass(frozen=True)
class Figures:
    """What was found. ``oldest_uncompacted_ms``: age of the oldest delta commit since the last compaction (None: there is
    none); ``old_bytes``: that a clean would delete now; ``metadata_deltas`` None: there is no metadata table."""

    sizes: FileSizes
    active: int
    pending: tuple[Instant, ...]
    oldest_uncompacted_ms: int | None
    old_bytes: int
    savepoints: int
    metadata_deltas: int | None


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong. ``remedy``: the key or command that corrects it."""

    what: str
    remedy: str


def figures_of(table: HoodieTable, timeline: Timeline, now_ms: int, old_bytes: int) -> Figures:
    """Look at the timeline and at every partition. ``old_bytes``: what a clean would delete, which the cleaner tells."""
    view = table.view(timeline)
    partitions = view.partitions()
    view.look_up(partitions)
    sizes = total_sizes(partition_sizes(view, partition) for partition in partitions)
    done = timeline.completed_writes
    compaction = max((i.time for i in done if i.action == COMMIT), default="")
    waiting = [i for i in done if i.action == DELTA_COMMIT and i.time > compaction] if sizes.log_files else []
    return Figures(
        sizes,
        len(done),
        timeline.pending,
        now_ms - instant_ms(waiting[0].time, table.config.timezone_utc) if waiting else None,
        old_bytes,
        sum(i.action == SAVEPOINT and i.is_completed for i in timeline.instants),
        _metadata_deltas(table, timeline),
    )


def findings(table: HoodieTable, timeline: Timeline, found: Figures, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """What is wrong, the worst first."""
    utc = table.config.timezone_utc
    for instant in found.pending:
        age = now_ms - instant_ms(instant.time, utc)
        if age > limits.pending_ms and not is_alive(table.storage, instant.time, now_ms):
            yield Finding(
                f"{instant.action} {instant.time} is {instant.state.lower()} for {_hours(age)}", _remedy(instant)
            )
    if found.sizes.deepest_log > limits.log_files:
        yield Finding(
            f"a file slice has {found.sizes.deepest_log:,} log files, which every reader merges",
            "hoodie.compact.inline.max.delta.commits, or `tagstream table compact`",
        )
    if found.metadata_deltas is not None and found.metadata_deltas > limits.metadata_deltas:
        yield Finding(
            f"the metadata table has {found.metadata_deltas:,} delta commits since its last compaction",
            "hoodie.metadata.compact.max.delta.commits; an unfinished action of the table holds it up",
        )
    if found.sizes.bytes and found.old_bytes > limits.old_share * (found.old_bytes + found.sizes.bytes):
        yield Finding(
            f"{found.old_bytes / 2**20:,.0f} MiB are in old slices, {found.sizes.bytes / 2**20:,.0f} MiB in the newest",
            "hoodie.clean.automatic, hoodie.clean.commits.retained, or `tagstream table clean`",
        )
    if found.active > limits.active:
        held = "; a savepoint holds them back" if found.savepoints else ""
        yield Finding(
            f"{found.active:,} completed writes are on the active timeline{held}",
            "hoodie.archive.automatic, hoodie.keep.max.commits, or `tagstream table archive`",
        )
    sizes = found.sizes
    much = sizes.file_groups >= limits.groups and sizes.bytes >= limits.small_bytes  # a small table has small files
    if much and sizes.small_files > limits.small_share * sizes.file_groups:
        yield Finding(
            f"{sizes.small_files:,} of {sizes.file_groups:,} file groups are small",
            "hoodie.parquet.small.file.limit, fewer partitions or larger batches; hoodie.clustering.inline (where old "
            "partitions are at rest hoodie.clustering.async.enabled) or `tagstream table cluster` joins them",
        )
    for saved in savepoints(table.storage, timeline):
        if now_ms - saved.made_ms > limits.savepoint_ms:
            yield Finding(
                f"savepoint {saved.time} is {(now_ms - saved.made_ms) // _DAY_MS:,} days old: nothing after it is archived",
                f"`tagstream table savepoint --delete --instant {saved.time}`",
            )


def _remedy(instant: Instant) -> str:
    known = {
        COMPACTION: f"`tagstream table compact --execute {instant.time}`, or a running job, which takes it up",
        CLEAN: "`tagstream table clean`, or a running job, which ends it",
        CLUSTERING: f"`tagstream table cluster --execute {instant.time}`, or --take-back",
    }
    return known.get(instant.action, "a start of the job that began it, which rolls it back or ends it")


def _metadata_deltas(table: HoodieTable, timeline: Timeline) -> int | None:
    metadata = MetadataTable.open(table, timeline)
    if metadata is None:
        return None
    done = [i for i in metadata.timeline.instants if i.is_completed]
    compaction = max((i.time for i in done if i.action == COMMIT), default="")
    return sum(i.action == DELTA_COMMIT and i.time > compaction for i in done)


def _hours(ms: int) -> str:
    return f"{ms / HOUR_MS:,.1f} hours" if ms < 2 * _DAY_MS else f"{ms / _DAY_MS:,.0f} days"
