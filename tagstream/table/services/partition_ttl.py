"""Partition TTL: the partitions that are so old that all their rows are deleted.

The strategies and keys are those of Hudi 1.2.0 (``HoodieTTLConfig``, ``KeepByTimeStrategy``). The result is a commit that
deletes partitions (``replaced_partitions``). There is one difference: Hudi takes the newest base instant of a partition for
its last write. On a merge-on-read table log files may be much newer, and Hudi deletes such rows. Here the blocks of these
logs count, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tagstream.table.config import Kind
from tagstream.table.errors import ConfigError
from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.file_group.log_file import scan_log_file
from tagstream.table.file_group.names import PARTITION_METAFILE, join
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.record_encoding import instant_ms
from tagstream.table.option_fields import option
from tagstream.table.services.replaced_partitions import delete_partitions
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.timeline import Timeline

DAY_MS = 86_400_000
TTL_KEY = "hoodie.partition.ttl.inline"
DAYS_KEY = "hoodie.partition.ttl.strategy.days.retain"
_PACKAGE = "org.apache.hudi.table.action.ttl.strategy."


class TtlType(StrEnum):
    """From when a partition's age is counted: its last write, or its creation."""

    KEEP_BY_TIME = "KEEP_BY_TIME"
    KEEP_BY_CREATION_TIME = "KEEP_BY_CREATION_TIME"


_CLASSES = {"KeepByTimeStrategy": TtlType.KEEP_BY_TIME, "KeepByCreationTimeStrategy": TtlType.KEEP_BY_CREATION_TIME}


@dataclass(frozen=True)
class TtlOptions:
    """``strategy_class``: the same as ``kind`` by the name of Hudi's class, and first. ConfigError without days."""

    kind: TtlType = option(
        "hoodie.partition.ttl.management.strategy.type",
        Kind.CHOICE,
        "From when the age of a partition is counted: its last write, or its first one.",
        default=TtlType.KEEP_BY_TIME.value,
        values={kind.value: kind.value for kind in TtlType},
        convert=TtlType,
    )
    strategy_class: TtlType | None = option(
        "hoodie.partition.ttl.strategy.class",
        Kind.CHOICE,
        "The same by the name of Hudi's class; it comes first.",
        values={f"{package}{name}".upper(): name for name in _CLASSES for package in ("", _PACKAGE)},
        convert=_CLASSES.__getitem__,
    )
    days: int | None = option(
        DAYS_KEY, Kind.INT, "Age in days after which the rows of a partition are deleted.", minimum=1
    )
    selected: tuple[str, ...] = option(
        "hoodie.partition.ttl.strategy.partition.selected",
        Kind.LIST,
        "Only these partition paths; all if it is not given.",
        default=(),
        convert=tuple,
    )
    most: int = option(
        "hoodie.partition.ttl.strategy.max.delete.partitions",
        Kind.INT,
        "The most partitions that one commit deletes; the others follow after the next batch.",
        default=1000,
        minimum=1,
    )

    def __post_init__(self) -> None:
        if self.days is None:
            raise ConfigError(f"partitions are to be deleted for their age, but {DAYS_KEY} is not given; set it")

    @property
    def by_creation(self) -> bool:
        """Whether the age is counted from the first write."""
        return (self.strategy_class or self.kind) is TtlType.KEEP_BY_CREATION_TIME

    @property
    def life_ms(self) -> int:
        """The time to live in milliseconds."""
        assert self.days is not None
        return self.days * DAY_MS


@dataclass(frozen=True)
class Expired:
    """``partitions``: with rows, expired at this time, the oldest first, at most ``TtlOptions.most``. ``next_ms``: the
    first time at which a partition may be expired that is not among them.
    """

    partitions: tuple[str, ...]
    next_ms: int


def expired_partitions(
    table: HoodieTable, options: TtlOptions, now_ms: int, timeline: Timeline | None = None
) -> Expired:
    """The partitions whose time to live has passed at ``now_ms``. ConfigError for a table without partitions.

    A partition with file groups in a pending compaction or clustering has to wait for it. One without rows is left out.
    """
    if not table.config.partition_fields:
        raise ConfigError(f"table {table.base_path} has no partitions, so none can expire; remove {TTL_KEY}")
    timeline = timeline or table.timeline()
    view = table.view(timeline)
    busy = {partition for partition, _ in (*timeline.pending_compactions, *timeline.pending_clusterings)}
    there = view.partitions()
    wanted = [path for path in options.selected if path in {*there}] if options.selected else there
    view.look_up(wanted)
    ages: list[tuple[int, str]] = []
    for partition in wanted:
        slices = view.latest_merged_slices(partition)
        if slices:
            ages.append((_reference_ms(table, options, partition, slices, now_ms), partition))
    due = sorted((since, path) for since, path in ages if since + options.life_ms < now_ms and path not in busy)
    taken = {path for _, path in due[: options.most]}
    later = [max(since + options.life_ms, now_ms) for since, path in ages if path not in taken]
    return Expired(tuple(path for _, path in due[: options.most]), min(later, default=now_ms + options.life_ms))


def _reference_ms(
    table: HoodieTable, options: TtlOptions, partition: str, slices: Sequence[FileSlice], now_ms: int
) -> int:
    """Milliseconds since 1970 from which the age of a partition counts."""
    utc = table.config.timezone_utc
    if options.by_creation:
        created = _creation_instant(table.storage, partition)
        return now_ms if created is None else instant_ms(created, utc)
    newest = max(instant_ms(each.base_instant, utc) for each in slices)
    if newest + options.life_ms >= now_ms:
        return newest
    for path in (path for each in slices for path in each.log_paths):
        for block in scan_log_file(table.storage, path):
            if block.instant is not None:
                newest = max(newest, instant_ms(block.instant, utc))
    return newest


def _creation_instant(storage: Storage, partition: str) -> str | None:
    """The instant in a partition's metafile; None where there is none (a folder whose metafile has another format)."""
    try:
        lines = storage.read(join(partition, PARTITION_METAFILE)).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return None
    found = (line.partition("=")[2].strip() for line in lines if line.startswith("commitTime="))
    return next((instant for instant in found if instant.isdigit() and len(instant) >= 14), None)


def delete_expired(
    table: HoodieTable,
    options: TtlOptions,
    clock_ms: Callable[[], int],
    check: Callable[[], None] = lambda: None,
    reach: Callable[[str], None] = lambda _: None,
    timeline: Timeline | None = None,
) -> tuple[str | None, Expired]:
    """Delete the rows of the expired partitions. Returns the instant of the commit (None if nothing is expired) and what
    was found. ``check`` and ``reach``: of ``delete_partitions``.
    """
    found = expired_partitions(table, options, clock_ms(), timeline)
    if not found.partitions:
        return None, found
    return delete_partitions(table, found.partitions, clock_ms, check, reach), found
