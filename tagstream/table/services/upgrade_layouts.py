"""The timeline and its archive written in the other layout, for a change of a table's version.

Nothing here changes what a reader sees: it follows the version in ``hoodie.properties``, and looks at one of the
two places.

| | layout 1 (version 6) | layout 2 (versions 8, 9) |
|---|---|---|
| active timeline | ``.hoodie/`` | ``.hoodie/timeline/`` |
| archive | log files in ``.hoodie/archived/`` | ``.hoodie/timeline/history/`` |

A timeline of layout 1 does not record when actions were completed, and layout 2 needs it (``completion_times``).
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


def completion_times(wanted: Mapping[_Action, str | None], begun: Iterable[str], now: str) -> dict[_Action, str]:
    """The completion time of each completed action by (time, action), as 17 digits.

    ``wanted``: when its file was written by the store's clock, which is what Hudi takes; ``begun``: the times of all
    actions.

    A file's time is no more than a hint: a table that was copied has that of the copy. From version 8 on a log file
    belongs to the newest base file that was begun before the log's action was completed. So an action is completed after
    it was begun and before the next one was begun, whatever its file says: the slices are then those that the names say.
    (Two writers at once that overtook each other are put in the order they began in, which is the one that version 6
    knows.) A savepoint has the time of its commit and changes no slice: only its file tells when it was made.
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
    """17 digits; a 14-digit instant of an old table stands for the last millisecond of its second."""
    return (instant + "999")[:17]


def _shift(instant: str, millis: int) -> str:
    if not instant.isdigit():
        return instant
    try:
        moment = datetime.strptime(instant[:14], _FORMAT) + timedelta(milliseconds=int(instant[14:]) + millis)
    except ValueError:  # no date (the first instants of a metadata table): the digits are all there is
        return f"{int(instant) + millis:017d}"
    return f"{moment:{_FORMAT}}{moment.microsecond // 1000:03d}"


TIMELINE_FOLDER = f"{META_FOLDER}/timeline"
ARCHIVE_FOLDER = f"{META_FOLDER}/archived"
# There while a change of ours is under way: what lies in the other layout is ours then, and no move of another tool.
CHANGE_FILE = f"{META_FOLDER}/tagstream_version_change.json"
# How much is held in memory at once, and is one file of an archive.
_BATCH_ACTIONS = 1000
_BATCH_BYTES = 64 << 20


@dataclass(frozen=True)
class Converted:
    """How many actions were written in the other layout."""

    active: int
    archived: int


def place_of(table: HoodieTable) -> TimelinePlace:
    """The timeline of the layout that is in force."""
    return table.timeline_place()


def other_place(table: HoodieTable) -> TimelinePlace:
    """Where the timeline is written in the other layout."""
    utc = table.config.timezone_utc
    if table.config.table_version.layout == 2:
        return TimelinePlace(table.storage, 1, META_FOLDER, ARCHIVE_FOLDER, utc)
    return TimelinePlace(table.storage, 2, TIMELINE_FOLDER, f"{TIMELINE_FOLDER}/history", utc)


def write_other(table: HoodieTable, now: str) -> Converted:
    """Write the whole timeline in the other layout. What is there of an earlier try is written over."""
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
    """How many actions are archived."""
    if place.layout == 2:
        return int(History(place.storage, place.archived).read(["instantTime"]).num_rows)
    return sum(1 for _ in read_archive(place.storage, place.archived))


def leftovers(table: HoodieTable) -> tuple[str, ...]:
    """Files of the other layout: of a change of version that was cut off before its end, or behind it."""
    storage, target = table.storage, other_place(table)
    begun = (CHANGE_FILE,) if storage.exists(CHANGE_FILE) else ()
    if target.layout == 2:
        return (*(sorted(storage.walk_files(target.active)) if storage.exists(target.active) else ()), *begun)
    folders = {target.archived, f"{META_FOLDER}/{table.config.raw.get('hoodie.archivelog.folder') or 'archived'}"}
    active = (f"{target.active}/{name}" for name in storage.names(target.active) if parse_instant(name) is not None)
    archived = (f"{folder}/{name}" for folder in sorted(folders) for name in _of_archive(storage, folder))
    return tuple(chain(active, archived, begun))


def _of_archive(storage: Storage, folder: str) -> list[str]:
    """The files of an archive of layout 1, and notes of merges that were under way."""
    names = storage.names(folder)
    return [*archive_files(storage, folder, names), *(name for name in names if name in (NOTE_FILE, PLAN_FILE))]


def remove_leftovers(table: HoodieTable, guard: Callable[[], None]) -> tuple[str, ...]:
    """Remove these files, and say which. ``guard`` raises where another process has the table's lease by now.

    ForeignCommitError when no change of ours has left them, and one is of an action that the timeline in force lacks. Tools
    that move the timeline file by file (Hudi) leave such when they are cut off, and then it must be finished by them.
    """
    found = leftovers(table)
    lost = _lost_actions(table) if found and CHANGE_FILE not in found else ()
    if lost:
        time, action = lost[0]
        raise ForeignCommitError(
            f"{action} {time} of {table.base_path} is in {other_place(table).active} and not on the timeline of version "
            f"{table.config.version} ({len(lost)} such actions): another tool's change of the table's version was cut off; "
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
    """Remove the files that were found, one by one: a process that was paused in here may wake when another one has brought
    the table back to this layout. It then finds the lease taken, after the one file at most that it is at.
    """
    gone = [rel for rel in found if rel != CHANGE_FILE]
    # The requested files first, as everywhere: half of an action never looks pending to who looks here.
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
        storage.delete(CHANGE_FILE)  # last: until then the files are known as ours
