"""What changes in ``hoodie.properties`` from one table version to the next, as Hudi 1.2 changes it.

Version 8 names the merge mode and the kind of key generator, and keeps the classes that version 6 has; version 9 has
``ordering.fields`` where the others have ``precombine.field`` and remembers the payload class as a legacy one.

Where this differs from Hudi 1.2, and why:

- A merge-on-read table whose payload class is OverwriteWithLatestAvroPayload stays with commit-time order, and one of
  EventTimeAvroPayload with event-time order. Hudi makes event time of the first wherever there is an ordering field, and
  commit time of the second where the table is copy-on-write: rows would merge otherwise than before.
- A downgrade to 6 also removes the keys that only versions from 8 on know. Hudi means to (its handlers unset the initial
  version and the key generator's type) but the keys come back when the file is written.
- A downgrade to 6 names ``archived`` as the archive's folder, where the archive then is. Hudi writes there, too, but
  leaves the property, which is ``history`` in tables that 1.x made: their archive is lost to readers.
- A downgrade to 8 names the merge strategy that a new table of version 8 has.
"""

from __future__ import annotations

from collections.abc import Mapping

from tagstream.table.meta_client.new_properties import COMMIT_TIME_STRATEGY
from tagstream.table.meta_client.table_config import (
    COMMIT_TIME_PAYLOAD,
    DEFAULT_MERGE_STRATEGY,
    EVENT_TIME_PAYLOAD,
    PAYLOAD_KEY,
    MergeMode,
    TableConfig,
    key_generator_type,
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
