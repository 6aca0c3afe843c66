"""Change a table's version: 6, 8 or 9, upwards or downwards.

1. What an earlier change has left is removed (``upgrade_layouts.remove_leftovers``).
2. The metadata table is dropped, its partitions first from the properties: it has a timeline and a version of its
   own, and the next writer that keeps one builds it again. (Hudi converts it, or drops it where it lags behind.)
3. Failed writes are rolled back. Where the layout changes, pending compactions are carried out, and for a
   downgrade all of the table is compacted (``upgrade_checks``). What prevents that is named before anything is
   changed.
4. Index definitions are changed. Each has a version: V1 is what table version 8 knows, V2 what version 9 makes,
   and one without a version is V1.
5. Where the layout changes, the whole timeline and its archive are written in the other layout, next to the old
   ones.
6. If the timeline is what it was before 5, ``hoodie.properties`` is replaced. **This one step is the change**:
   before it readers see the old table whole, after it the new one.
7. The old layout's files are removed.

Every step can be cut off, and the same call does the rest: until 6 what was written in the other layout is removed
and written again; after 6 a call for the version that the table has removes what 7 has not. The caller holds the
table's writer lease; a writer of another kind that works on the table meanwhile is found in 6, unless it commits
in that very moment.

Version 8 names the merge mode and the kind of key generator, and keeps the classes that version 6 has; version 9
has ``ordering.fields`` where the others have ``precombine.field`` and remembers the payload class as a legacy one.
The properties differ from those of Hudi 1.2 here:

- A merge-on-read table whose payload class is OverwriteWithLatestAvroPayload stays with commit-time order, and one
  of EventTimeAvroPayload with event-time order. Hudi makes event time of the first wherever there is an ordering
  field, and commit time of the second where the table is copy-on-write: rows would merge otherwise than before.
- A downgrade to 6 also removes the keys that only versions from 8 on know. Hudi means to (its handlers unset the
  initial version and the key generator's type) but the keys come back when the file is written.
- A downgrade to 6 names ``archived`` as the archive's folder, where the archive then is. Hudi writes there, too,
  but leaves the property, which is ``history`` in tables that 1.x made: their archive is lost to readers.
- A downgrade to 8 names the merge strategy that a new table of version 8 has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tagstream.table.errors import CorruptFileError, ForeignCommitError, UnsupportedTableError
from tagstream.table.file_group.names import instant_from_ms
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.properties import COMMIT_TIME_STRATEGY, recover_properties, replace_properties
from tagstream.table.meta_client.table_config import (
    COMMIT_TIME_PAYLOAD,
    DEFAULT_MERGE_STRATEGY,
    EVENT_TIME_PAYLOAD,
    PAYLOAD_KEY,
    MergeMode,
    TableConfig,
    key_generator_type,
)
from tagstream.table.metadata.index_definitions import INDEX_DEFINITIONS
from tagstream.table.services.compaction import Execute, one_by_one
from tagstream.table.services.upgrade_checks import (
    changes_layout,
    check_logs,
    check_nobody_writes,
    check_pending,
    check_savepoints,
    check_settings,
    compact_logs,
    settle,
)
from tagstream.table.services.upgrade_layouts import (
    Converted,
    count_archived,
    leftovers,
    place_of,
    remove_leftovers,
    write_other,
)

VERSION = "hoodie.table.version"
LAYOUT = "hoodie.timeline.layout.version"
INITIAL_VERSION = "hoodie.table.initial.version"
TIMELINE_PATH = "hoodie.timeline.path"
HISTORY_PATH = "hoodie.timeline.history.path"
ARCHIVE_FOLDER = "hoodie.archivelog.folder"
MERGE_MODE = "hoodie.record.merge.mode"
MERGE_STRATEGY = "hoodie.record.merge.strategy.id"
LEGACY_PAYLOAD = "hoodie.table.legacy.payload.class"
KEYGEN_CLASS = "hoodie.table.keygenerator.class"
KEYGEN_TYPE = "hoodie.table.keygenerator.type"
PARTITION_FIELDS = "hoodie.table.partition.fields"
ORDERING = "hoodie.table.ordering.fields"
PRECOMBINE = "hoodie.table.precombine.field"
# Only versions from 8 on know them.
_ONLY_LAYOUT_2 = (
    INITIAL_VERSION, TIMELINE_PATH, HISTORY_PATH, MERGE_MODE, MERGE_STRATEGY, KEYGEN_TYPE, "hoodie.table.format",
)  # fmt: skip
_MERGE_PROPERTIES = "hoodie.record.merge.property."


def properties_of_version(properties: Mapping[str, str], to: int) -> dict[str, str]:
    """The properties of a table as it is in version ``to``, step by step from the version it has."""
    found = dict(properties)
    steps = {(6, 8): _from_6_to_8, (8, 9): _from_8_to_9, (9, 8): _from_9_to_8, (8, 6): _from_8_to_6}
    order = (6, 8, 9)
    at, end = order.index(int(found[VERSION])), order.index(to)
    step = 1 if end > at else -1
    for here in range(at, end, step):
        found = steps[order[here], order[here + step]](found, TableConfig.from_properties(found))
    return found


def _from_6_to_8(found: dict[str, str], config: TableConfig) -> dict[str, str]:
    event_time = config.merge_mode is MergeMode.EVENT_TIME or found.get(PAYLOAD_KEY) == EVENT_TIME_PAYLOAD
    return found | {
        VERSION: "8",
        LAYOUT: "2",
        INITIAL_VERSION: found.get(INITIAL_VERSION) or "6",
        TIMELINE_PATH: "timeline",
        MERGE_MODE: _mode(event_time),
        MERGE_STRATEGY: _strategy(event_time),
        PAYLOAD_KEY: _payload(event_time),
        KEYGEN_CLASS: config.key_generator,
        KEYGEN_TYPE: key_generator_type(config.key_generator),
    }


def _from_8_to_9(found: dict[str, str], config: TableConfig) -> dict[str, str]:
    payload = found.pop(PAYLOAD_KEY, "")
    found.pop(MERGE_STRATEGY, None)
    if payload:
        found[LEGACY_PAYLOAD] = payload
    _rename(found, PRECOMBINE, ORDERING)
    return found | {VERSION: "9", MERGE_MODE: _mode(config.merge_mode is MergeMode.EVENT_TIME)}


def _from_9_to_8(found: dict[str, str], config: TableConfig) -> dict[str, str]:
    event_time = config.merge_mode is MergeMode.EVENT_TIME
    found = {key: value for key, value in found.items() if not key.startswith(_MERGE_PROPERTIES)}
    found.pop("hoodie.table.partial.update.mode", None)
    _rename(found, ORDERING, PRECOMBINE)
    payload = found.pop(LEGACY_PAYLOAD, "") or _payload(event_time)
    return found | {VERSION: "8", PAYLOAD_KEY: payload, MERGE_STRATEGY: _strategy(event_time)}


def _from_8_to_6(found: dict[str, str], config: TableConfig) -> dict[str, str]:
    event_time = config.merge_mode is MergeMode.EVENT_TIME
    fields = ",".join(config.partition_fields)  # version 6 has no kinds behind them
    kept = {key: value for key, value in found.items() if key not in _ONLY_LAYOUT_2}
    kept |= {VERSION: "6", LAYOUT: "1", ARCHIVE_FOLDER: "archived", KEYGEN_CLASS: config.key_generator}
    kept[PAYLOAD_KEY] = found.get(PAYLOAD_KEY) or _payload(event_time)
    return kept | ({PARTITION_FIELDS: fields} if fields else {})


def _rename(found: dict[str, str], old: str, new: str) -> None:
    value = found.pop(old, None)
    if value is not None and not found.get(new):
        found[new] = value


def _mode(event_time: bool) -> str:
    return (MergeMode.EVENT_TIME if event_time else MergeMode.COMMIT_TIME).value


def _strategy(event_time: bool) -> str:
    return DEFAULT_MERGE_STRATEGY if event_time else COMMIT_TIME_STRATEGY


def _payload(event_time: bool) -> str:
    return EVENT_TIME_PAYLOAD if event_time else COMMIT_TIME_PAYLOAD


_DEFINITIONS = "indexDefinitions"


def bring_index_definitions(table: HoodieTable, to: int) -> tuple[str, ...]:
    """Upwards: give each definition its version. Downwards: remove those that version ``to`` does not know; their names."""
    content = _read(table)
    if content is None:
        return ()
    definitions = content[_DEFINITIONS]
    if to >= table.config.version:
        kept = {name: {**each, "version": each.get("version") or "V1"} for name, each in definitions.items()}
    else:
        kept = {name: each for name, each in definitions.items() if (each.get("version") or "V1") == "V1"}
    if kept != definitions:
        table.storage.replace(INDEX_DEFINITIONS, json.dumps({**content, _DEFINITIONS: kept}, indent=2).encode())
    return tuple(sorted(definitions.keys() - kept.keys()))


def _read(table: HoodieTable) -> dict[str, Any] | None:
    try:
        data = table.storage.read(INDEX_DEFINITIONS)
    except FileNotFoundError:
        return None
    try:
        content = json.loads(data)
        definitions = content[_DEFINITIONS]
        if all(isinstance(each, dict) for each in definitions.values()) and isinstance(content, dict):
            return content
        problem = "a definition is no object"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        problem = repr(error)
    raise CorruptFileError(
        f"{table.storage.where(INDEX_DEFINITIONS)} holds no index definitions ({problem}): restore the file"
    )


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
