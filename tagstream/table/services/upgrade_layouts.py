"""Write the timeline and its archive in the other layout, for a change of a table's version.

Nothing here changes what a reader sees: readers use the version in ``hoodie.properties``, and read only one of the two
places.

| | layout 1 (version 6) | layout 2 (versions 8, 9) |
|---|---|---|
| active timeline | ``.hoodie/`` | ``.hoodie/timeline/`` |
| archive | log files in ``.hoodie/archived/`` | ``.hoodie/timeline/history/`` |

A timeline of layout 1 does not have completion times, and layout 2 needs them (``completion_times``).
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain

from tagstream.table.errors import ForeignCommitError
from tagstream.table.history.action_files import ActionFile, ArchivedAction, to_layout_1, to_layout_2
from tagstream.table.history.archive import ActionKey, TimelinePlace
from tagstream.table.history.archive_log import archive_files, entries_of, read_archive, write_archive
from tagstream.table.history.archive_merge import NOTE_FILE, PLAN_FILE
from tagstream.table.history.lsm import History
from tagstream.table.history.lsm_write import write_batch
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.storage import META_FOLDER, Storage, each
from tagstream.table.timeline.instant import SAVEPOINT, parse_instant

_Action = tuple[str, str]
_FORMAT = "%Y%m%d%H%M%S"
TIMELINE_FOLDER = f"{META_FOLDER}/timeline"
ARCHIVE_FOLDER = f"{META_FOLDER}/archived"
# Exists during a change by this project: the files in the other layout are then from this project, and not from
# another tool.
CHANGE_FILE = f"{META_FOLDER}/tagstream_version_change.json"
# Most actions and bytes in memory at a time, and in one file of an archive.
_BATCH_ACTIONS = 1000
_BATCH_BYTES = 64 << 20


def completion_times(wanted: Mapping[_Action, str | None], begun: Iterable[str], now: str) -> dict[_Action, str]:
    """The completion time of each completed action by (time, action), as 17 digits.

    ``wanted``: modification time of its file by the store's clock, which Hudi uses. ``begun``: the instant times of all
    actions. ``now``: an upper limit. The modification time is only a hint: the files of a copied table have the time of
    the copy. From version 8 on a log file belongs to the newest base file that was begun before the log's action was
    completed. So an action must be completed after it was begun and before the next one was begun, whatever its file's
    time is: then the slices are those of the names. (Two writers that overtook each other are completed in the order in
    which they began, which is the order of version 6.) A savepoint has the time of its commit and changes no slice: its
    completion time is that of its file.
    """
    order = sorted({_millis(time) for time in begun} | {_millis(time) for time, _ in wanted})
    found = {}
    for (time, action), file_time in wanted.items():
        own = _millis(time)
        least, guess = _shift(own, 1), min(_millis(file_time or own), now)
        chosen = max(guess, least)
        if action != SAVEPOINT:
            chosen = _before_next(order, own, chosen)
        found[time, action] = chosen
    return found


def _before_next(order: Sequence[str], own: str, chosen: str) -> str:
    at = bisect_right(order, own)
    return chosen if at == len(order) else max(own, min(chosen, _shift(order[at], -1)))


def _millis(instant: str) -> str:
    """The instant with 17 digits. A 14-digit instant of an old table is the last millisecond of its second."""
    return (instant + "999")[:17]


def _shift(instant: str, millis: int) -> str:
    if not instant.isdigit():
        return instant
    try:
        moment = datetime.strptime(instant[:14], _FORMAT) + timedelta(milliseconds=int(instant[14:]) + millis)
    except ValueError:  # the first instants of a metadata table are not dates: count with the digits
        return f"{int(instant) + millis:017d}"
    return f"{moment:{_FORMAT}}{moment.microsecond // 1000:03d}"


@dataclass(frozen=True)
class Converted:
    """How many actions were written in the other layout."""

    active: int
    archived: int


def place_of(table: HoodieTable) -> TimelinePlace:
    """The folders of the timeline in the present layout."""
    return table.timeline_place()


def other_place(table: HoodieTable) -> TimelinePlace:
    """The folders of the timeline in the other layout."""
    utc = table.config.timezone_utc
    if table.config.table_version.layout == 2:
        return TimelinePlace(table.storage, 1, META_FOLDER, ARCHIVE_FOLDER, utc)
    return TimelinePlace(table.storage, 2, TIMELINE_FOLDER, f"{TIMELINE_FOLDER}/history", utc)


def write_other(table: HoodieTable, now: str) -> Converted:
    """Write the whole timeline in the other layout, over files of an earlier attempt. ``now``: the present as an
    instant."""
    source, target = place_of(table), other_place(table)
    begun = {"from": table.config.version, "layout": target.layout}
    table.storage.replace(CHANGE_FILE, json.dumps(begun).encode())
    return _to_layout_2(source, target, now) if target.layout == 2 else _to_layout_1(source, target)


def _to_layout_2(source: TimelinePlace, target: TimelinePlace, now: str) -> Converted:
    names, changed = source.names(), source.changed()
    wanted = {
        key: changed.get(files[-1][1]) for key, files in names.items() if files[-1][0].is_completed
    }  # fmt: skip
    archived: dict[ActionKey, str | None] = {
        action.key: action.completion_time for action in read_archive(source.storage, source.archived)
    }
    completed = completion_times(archived | wanted, (time for time, _ in names), now)
    actions = (action for action in read_archive(source.storage, source.archived) if action.key not in wanted)
    count = 0
    for batch in _batches(actions):
        write_batch(target.storage, target.archived, [_completed(action, completed) for action in batch])
        count += len(batch)

    def bring(key: ActionKey) -> None:
        _write(target, to_layout_2(source.load(names[key]), completed.get(key)))

    each(bring, names)
    return Converted(len(names), count)


def _to_layout_1(source: TimelinePlace, target: TimelinePlace) -> Converted:
    names, count = source.names(), 0
    history = History(source.storage, source.archived)
    actions = (action for action in history.actions() if action.key not in names)
    where = source.storage.where(source.archived)
    for batch in _batches(actions):
        entries = (entries_of(action, f"{action.action} {action.time} in {where}") for action in batch)
        write_archive(target.storage, target.archived, entries)
        count += len(batch)

    def bring(key: ActionKey) -> None:
        _write(target, to_layout_1(source.load(names[key])))

    each(bring, names)
    return Converted(len(names), count)


def _write(target: TimelinePlace, files: Iterable[ActionFile]) -> None:
    for file in files:
        target.storage.replace(f"{target.active}/{file.name}", file.data)


def _completed(action: ArchivedAction, completed: dict[ActionKey, str]) -> ArchivedAction:
    time = completed[action.key]
    return ArchivedAction(action.time, action.action, time, action.metadata, action.plan, action.planned_by)


def _batches(actions: Iterable[ArchivedAction]) -> Iterator[list[ArchivedAction]]:
    batch: list[ArchivedAction] = []
    size = 0
    for action in actions:
        batch.append(action)
        size += len(action.metadata or b"") + len(action.plan or b"")
        if len(batch) == _BATCH_ACTIONS or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def count_archived(place: TimelinePlace) -> int:
    """Number of archived actions."""
    if place.layout == 2:
        return int(History(place.storage, place.archived).read(["instantTime"]).num_rows)
    return sum(1 for _ in read_archive(place.storage, place.archived))


def leftovers(table: HoodieTable) -> tuple[str, ...]:
    """Files of the other layout, from a change of version that was interrupted before or after its main step."""
    storage, target = table.storage, other_place(table)
    begun = (CHANGE_FILE,) if storage.exists(CHANGE_FILE) else ()
    if target.layout == 2:
        return (*(sorted(storage.walk_files(target.active)) if storage.exists(target.active) else ()), *begun)
    folders = {target.archived, f"{META_FOLDER}/{table.config.raw.get('hoodie.archivelog.folder') or 'archived'}"}
    active = (f"{target.active}/{name}" for name in storage.names(target.active) if parse_instant(name) is not None)
    archived = (f"{folder}/{name}" for folder in sorted(folders) for name in _of_archive(storage, folder))
    return tuple(chain(active, archived, begun))


def _of_archive(storage: Storage, folder: str) -> list[str]:
    """The files of an archive of layout 1, and notes of unfinished merges."""
    names = storage.names(folder)
    return [*archive_files(storage, folder, names), *(name for name in names if name in (NOTE_FILE, PLAN_FILE))]


def remove_leftovers(table: HoodieTable, guard: Callable[[], None]) -> tuple[str, ...]:
    """Remove the files of :func:`leftovers` and return them. ``guard`` raises when another process has the table's
    lease.

    ForeignCommitError when no change of this program has written them, and one belongs to an action that the present
    timeline lacks. Tools that move the timeline file by file (Hudi) leave such files when they are interrupted, and
    must then finish the change.
    """
    found = leftovers(table)
    lost = _lost_actions(table) if found and CHANGE_FILE not in found else ()
    if lost:
        time, action = lost[0]
        raise ForeignCommitError(
            f"{action} {time} of {table.base_path} is in {other_place(table).active} and not on the timeline of "
            f"version "
            f"{table.config.version} ({len(lost)} such actions): another tool's change of the table's version was cut "
            f"off; "
            "finish it with that tool"
        )
    _remove(table.storage, other_place(table), found, guard)
    return found


def _lost_actions(table: HoodieTable) -> tuple[ActionKey, ...]:
    source, target = place_of(table), other_place(table)
    there = target.names().keys() - source.names().keys()
    if not there:
        return ()
    if source.layout == 2:
        archived = {action.key for action in History(source.storage, source.archived).actions()}
    else:
        archived = {action.key for action in read_archive(source.storage, source.archived)}
    return tuple(sorted(there - archived))


def _remove(storage: Storage, place: TimelinePlace, found: tuple[str, ...], guard: Callable[[], None]) -> None:
    """Remove these files one by one.

    A process that is paused here may resume after another one has changed the table back to this layout. It then finds
    that it has lost the lease, after at most one file.
    """
    gone = [rel for rel in found if rel != CHANGE_FILE]
    # The requested files first, as always: then no remaining file of an action looks like a pending action.
    unfinished = sorted(rel for rel in gone if rel.endswith((".requested", ".inflight")))
    if unfinished:
        guard()
        storage.delete_many(unfinished)
    for rel in sorted(set(gone) - {*unfinished}):
        guard()
        storage.delete(rel)
    if place.layout == 2:
        storage.delete_empty(place.active)
    if CHANGE_FILE in found:
        guard()
        storage.delete(CHANGE_FILE)  # last: until then the other files belong to this program's change
