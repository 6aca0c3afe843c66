"""Change a table's version: 6, 8 or 9, upwards or downwards.

1. Files of an earlier change are removed (``upgrade_layouts.remove_leftovers``).
2. The metadata table is dropped, its partitions first from the properties: it has its own timeline and version, and the
   next writer that uses one builds it again. (Hudi converts it, or drops it if it lags behind.)
3. Failed writes are rolled back. If the layout changes, pending compactions are executed, and for a downgrade the whole
   table is compacted (``upgrade_checks``). Anything that prevents this is an error before something is changed.
4. Index definitions are changed. Each has a version: V1 is supported by table version 8, V2 is written by version 9,
   and one without a version is V1.
5. If the layout changes, the whole timeline and its archive are written in the other layout, in other folders.
6. If the timeline has not changed since 5, ``hoodie.properties`` is replaced. **This one step is the change**:
   before it readers see the old table, after it the new one.
7. The old layout's files are removed.

Every step can be interrupted, and the same call does the rest: before 6 the files of the other layout are removed
and written again; after 6 a call for the version that the table has removes the files that 7 has not. The caller has
the table's writer lease. A writer of another kind that writes at the same time is detected in 6, unless it commits in
that very moment.

Version 8 has the merge mode and the kind of key generator, and keeps the classes of version 6; version 9
has ``ordering.fields`` instead of ``precombine.field`` and keeps the payload class as a legacy one.

The properties differ from those of Hudi 1.2 here:

- A merge-on-read table whose payload class is OverwriteWithLatestAvroPayload keeps commit-time order, and one
  of EventTimeAvroPayload event-time order. Hudi makes the first event-time whenever there is an ordering
  field, and the second commit-time if the table is copy-on-write: rows would then be merged in another way than before.
- A downgrade to 6 also removes the keys that only versions from 8 on have. Hudi intends it (its handlers unset the
  initial version and the key generator's type) but the keys are in the file again when it is written.
- A downgrade to 6 names ``archived`` as the archive's folder, where the archive then is. Hudi writes there, too,
  but keeps the property, which is ``history`` in tables that 1.x made: readers do not find their archive.
- A downgrade to 8 names the merge strategy of a new table of version 8.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tagstream.table.errors import CorruptFileError, ForeignCommitError, UnsupportedTableError
from tagstream.table.file_group.names import instant_from_ms
from tagstream.table.keys.generators import key_generator_type
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.properties import COMMIT_TIME_STRATEGY, recover_properties, replace_properties
from tagstream.table.meta_client.table_config import (
    COMMIT_TIME_PAYLOAD,
    DEFAULT_MERGE_STRATEGY,
    EVENT_TIME_PAYLOAD,
    PAYLOAD_KEY,
    MergeMode,
    TableConfig,
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
# Only versions from 8 on have them.
_ONLY_LAYOUT_2 = (
    INITIAL_VERSION, TIMELINE_PATH, HISTORY_PATH, MERGE_MODE, MERGE_STRATEGY, KEYGEN_TYPE, "hoodie.table.format",
)  # fmt: skip
_MERGE_PROPERTIES = "hoodie.record.merge.property."
_DEFINITIONS = "indexDefinitions"
METADATA_PARTITIONS = "hoodie.table.metadata.partitions"


def properties_of_version(properties: Mapping[str, str], to: int) -> dict[str, str]:
    """The properties of a table in version ``to``, changed step by step from its present version."""
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
    fields = ",".join(config.partition_fields)  # version 6 has no kinds after them
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


def convert_index_definitions(table: HoodieTable, to: int) -> tuple[str, ...]:
    """Upwards: add versions to definitions.

    Downwards: remove those that version ``to`` does not support; returns their names.
    """
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
        problem = "a definition is not an object"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        problem = repr(error)
    raise CorruptFileError(
        f"{table.storage.where(INDEX_DEFINITIONS)} has no index definitions ({problem}): restore the file"
    )


@dataclass(frozen=True)
class VersionChange:
    """A planned or completed change of version.

    ``settings``: (before, after) by key of the properties that change, None for a missing key. ``active`` and
    ``archived``: number of actions written in the other layout (0 if the layout does not change). ``metadata``:
    partitions of the dropped metadata table. ``failed``: writes that are rolled back. ``dropped_indexes``: definitions
    that the version does not support. ``removed``: removed files of the other layout, including those of an earlier
    change. ``compacted``: number of compacted slices.
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
    """Upgrade the table to version ``to``. For its present version, only files of an interrupted change are removed.

    ``guard`` (of the lease) is called before each irreversible step; an error that it raises stops the change.
    ``execute`` runs the tasks of compactions, if some are necessary. ``partition_fields``: those of a table of version
    6 with the custom key generator, each with its kind (``name:SIMPLE,day:TIMESTAMP``), which later versions need.
    UnsupportedTableError and InstantConflictError name what prevents the change.
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
    """As :func:`upgrade`, to a lower version.

    From 8 to 6 a table whose newest slices have log files is compacted. It is an error while a savepoint keeps log
    files. Older slices keep their log files, whose names mean something else in version 6: a query of a past state
    (before the compaction) misses rows until the cleaner removes these slices. Hudi's downgrade does the same.
    """
    _check_direction(table, to, up=False)
    return _change(table, to, clock_ms, guard, execute)


def plan_change(table: HoodieTable, to: int, partition_fields: str | None = None) -> VersionChange:
    """The plan of a change; nothing is written.

    Raises the errors of :func:`upgrade`, except those that a rollback solves.
    """
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
    dropped = convert_index_definitions(table, to)
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
        found |= {METADATA_PARTITIONS: "", f"{METADATA_PARTITIONS}.inflight": ""}  # as after dropping it
    return found


def _check_direction(table: HoodieTable, to: int, up: bool, partition_fields: str | None = None) -> None:
    check_settings(table, to, partition_fields)
    version = table.config.version
    if (to < version) if up else (to > version):
        raise UnsupportedTableError(
            f"table {table.config.name} at {table.base_path} has version {version}: {'downgrade' if up else 'upgrade'} it "
            f"to get to {to}"
        )


def _timeline_files(table: HoodieTable) -> frozenset[str]:
    return frozenset(name for files in place_of(table).names().values() for _, name in files)


def _check_unchanged(table: HoodieTable, names: frozenset[str]) -> None:
    changed = sorted(_timeline_files(table) ^ names)
    if changed:
        raise ForeignCommitError(
            f"another writer writes to table {table.config.name} at {table.base_path} ({changed[0]} was added or removed): "
            "stop it, then start again"
        )


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
    keys = sorted(before.keys() | after.keys())
    return {key: (before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)}
