"""Bring a table to another version: 6, 8 or 9, upwards or downwards.

1. What an earlier change has left is removed (``layouts.remove_leftovers``).
2. The metadata table is dropped, its partitions first from the properties: it has a timeline and a version of its own, and
   the next writer that keeps one builds it anew. (Hudi brings it along, or drops it where it lags behind.)
3. Failed writes are rolled back. Where the layout changes, compactions that were planned are carried out, and for a
   downgrade all of the table is compacted (``logs``). What stands in the way of that is named before anything is changed.
4. Index definitions are brought to the version.
5. Where the layout changes, the whole timeline and its archive are written in the other layout, beside the old ones.
6. If the timeline is what it was before 5, ``hoodie.properties`` is replaced. **This one step is the change**: before it
   readers see the old table whole, after it the new one.
7. The old layout's files are removed.

Every step can be cut off, and the same call does the rest: until 6 what was written in the other layout is removed and
written again; after 6 a call for the version that the table has already removes what 7 has not. The caller holds the
table's writer lease; a writer of another kind that works on the table meanwhile is found in 6, unless it commits in that
very moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tagstream.table.errors import ForeignCommitError, UnsupportedTableError
from tagstream.table.file_group.names import instant_from_ms
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.properties import recover_properties, replace_properties
from tagstream.table.services.compaction.execute import Execute, one_by_one
from tagstream.table.services.upgrade.index_defs import bring_index_definitions
from tagstream.table.services.upgrade.layouts import (
    Converted,
    count_archived,
    leftovers,
    place_of,
    remove_leftovers,
    write_other,
)
from tagstream.table.services.upgrade.logs import changes_layout, check_logs, compact_logs
from tagstream.table.services.upgrade.preconditions import (
    check_nobody_writes,
    check_pending,
    check_savepoints,
    check_settings,
    settle,
)
from tagstream.table.services.upgrade.properties import PARTITION_FIELDS, properties_of_version

METADATA_PARTITIONS = "hoodie.table.metadata.partitions"


@dataclass(frozen=True)
class VersionChange:
    """What a change of version is, or was.

    ``settings``: (before, after) by key of the properties that change, None where the key is missing; ``active`` and
    ``archived``: actions written in the other layout (0 where it stays); ``metadata``: partitions of the metadata table
    that is dropped; ``failed``: writes that are rolled back; ``dropped_indexes``: definitions the version does not know;
    ``removed``: files of the other layout that are removed, those of an earlier change among them; ``compacted``: slices
    whose logs go into new base files.
    """

    before: int
    after: int
    settings: Mapping[str, tuple[str | None, str | None]]
    active: int = 0
    archived: int = 0
    metadata: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    dropped_indexes: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    compacted: int = 0


def upgrade(
    table: HoodieTable,
    to: int,
    clock_ms: Callable[[], int],
    guard: Callable[[], None] = lambda: None,
    execute: Execute = one_by_one,
    partition_fields: str | None = None,
) -> VersionChange:
    """Bring the table up to version ``to``; the one it has removes what an upgrade that was cut off has left.

    ``guard`` is called before each step that cannot be taken back (the lease); what it raises stops the change. ``execute``:
    runs the tasks of compactions, where some are needed. ``partition_fields``: those of a table of version 6 with the custom
    key generator, each with its kind (``name:SIMPLE,day:TIMESTAMP``), which later versions must know.
    UnsupportedTableError and InstantConflictError name what is in the way.
    """
    _check_direction(table, to, up=True, partition_fields=partition_fields)
    return _change(table, to, clock_ms, guard, execute, partition_fields)


def downgrade(
    table: HoodieTable,
    to: int,
    clock_ms: Callable[[], int],
    guard: Callable[[], None] = lambda: None,
    execute: Execute = one_by_one,
) -> VersionChange:
    """As :func:`upgrade`, to a lower version. From 8 to 6 a table whose newest slices have log files is compacted. It is
    refused while a savepoint keeps log files.

    Older slices keep their log files under names that mean something else in version 6: a query of the past (before the
    table was compacted) misses rows, until the cleaner removes these slices. So it is with Hudi's downgrade.
    """
    _check_direction(table, to, up=False)
    return _change(table, to, clock_ms, guard, execute)


def plan_change(table: HoodieTable, to: int, partition_fields: str | None = None) -> VersionChange:
    """What a change would do; nothing is written. Raises what :func:`upgrade` would, but for what a rollback settles."""
    check_settings(table, to, partition_fields)
    timeline = table.timeline()
    check_pending(timeline, table.base_path)
    if table.config.version == to:
        return VersionChange(to, to, {}, removed=leftovers(table))
    check_savepoints(table, to)
    other = changes_layout(table, to)
    compacted = check_logs(table, to)
    return VersionChange(
        table.config.version,
        to,
        _differences(table.config.raw, _new_properties(table, to, partition_fields)),
        active=len(place_of(table).names()) if other else 0,
        archived=count_archived(place_of(table)) if other else 0,
        metadata=table.config.metadata_partitions,
        failed=tuple(instant.time for instant in timeline.pending_writes),
        removed=leftovers(table),
        compacted=compacted,
    )


def _change(
    table: HoodieTable,
    to: int,
    clock_ms: Callable[[], int],
    guard: Callable[[], None],
    execute: Execute,
    partition_fields: str | None = None,
) -> VersionChange:
    recover_properties(table.storage)
    table = table.reload()
    check_settings(table, to, partition_fields)
    check_pending(table.timeline(), table.base_path)
    stale = remove_leftovers(table, guard)
    if table.config.version == to:
        return VersionChange(to, to, {}, removed=stale)
    check_nobody_writes(table, clock_ms())
    check_savepoints(table, to)
    check_logs(table, to)
    properties = table.config.raw
    metadata = table.drop_metadata_table(clock_ms())
    table = table.reload()
    failed = settle(table, clock_ms)
    compacted = compact_logs(table, to, clock_ms, guard, execute)
    dropped = bring_index_definitions(table, to)
    converted = Converted(0, 0)
    names = _timeline_files(table)
    if changes_layout(table, to):
        converted = write_other(table, instant_from_ms(clock_ms(), table.config.timezone_utc))
    settings = _new_properties(table, to, partition_fields)
    _check_unchanged(table, names)
    guard()
    replace_properties(table.storage, settings, clock_ms())
    before, table = table, table.reload()
    removed = remove_leftovers(table, guard)
    return VersionChange(
        before.config.version,
        to,
        _differences(properties, settings),
        converted.active,
        converted.archived,
        metadata,
        failed,
        dropped,
        (*stale, *removed),
        compacted,
    )


def _new_properties(table: HoodieTable, to: int, partition_fields: str | None) -> dict[str, str]:
    found = properties_of_version(table.config.raw, to)
    if partition_fields is not None:
        found[PARTITION_FIELDS] = partition_fields
    if found.get(METADATA_PARTITIONS):
        found |= {METADATA_PARTITIONS: "", f"{METADATA_PARTITIONS}.inflight": ""}  # as dropping it leaves them
    return found


def _check_direction(table: HoodieTable, to: int, up: bool, partition_fields: str | None = None) -> None:
    check_settings(table, to, partition_fields)
    version = table.config.version
    if (to < version) if up else (to > version):
        raise UnsupportedTableError(
            f"table {table.config.name} at {table.base_path} has version {version}: {'downgrade' if up else 'upgrade'} it "
            f"to come to {to}"
        )


def _timeline_files(table: HoodieTable) -> frozenset[str]:
    return frozenset(name for files in place_of(table).names().values() for _, name in files)


def _check_unchanged(table: HoodieTable, names: frozenset[str]) -> None:
    changed = sorted(_timeline_files(table) ^ names)
    if changed:
        raise ForeignCommitError(
            f"another writer works on table {table.config.name} at {table.base_path} ({changed[0]} came or went): end it, "
            "then begin again"
        )


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
    keys = sorted(before.keys() | after.keys())
    return {key: (before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)}
