"""Archive completed actions in either layout, and read archived writes from the newest on.

Actions are archived in these steps:

1. The archive is written, without actions that an earlier call has written.
2. The requested and inflight files of all actions are removed.
3. Their completed files are removed one by one, oldest first.
4. Small files of the archive are merged (in layout 1 by ``archive_merge``; in layout 2 within step 1, by
``lsm_write``).

In this order no action becomes pending again, and the active timeline never has a gap. If the process dies at any step,
the same call (or one with other actions) completes the work.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import pyarrow as pa

from tagstream.table.errors import InstantConflictError
from tagstream.table.file_group.names import instant_from_ms
from tagstream.table.history.action_files import PLANNED, ActionFile, ArchivedAction
from tagstream.table.history.archive_log import (
    action_of,
    archive_files,
    entries_of_files,
    key_of,
    listed_again,
    read_entries,
    write_archive,
)
from tagstream.table.history.archive_merge import MergeOptions, merge_archive
from tagstream.table.history.lsm import History
from tagstream.table.history.lsm_write import merge_levels, remove_old, write_batch
from tagstream.table.steps import Step
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.instant import COMPLETED_ACTION, ORDER, WRITE_ACTIONS, Instant, State, parse_instant

ActionKey = tuple[str, str]
_MERGE = MergeOptions()


@dataclass(frozen=True)
class TimelinePlace:
    """The folders of a table's timeline.

    ``layout``: 1 up to table version 7, 2 from 8 on. ``active``, ``archived``: folders of the active timeline and of
    the archive. ``utc``: whether instants are in UTC (hoodie.table.timeline.timezone).
    """

    storage: Storage
    layout: int
    active: str
    archived: str
    utc: bool

    def names(self) -> dict[ActionKey, list[tuple[Instant, str]]]:
        """The files of every action, in the order of their states, by (time, action when completed)."""
        found: dict[ActionKey, list[tuple[Instant, str]]] = {}
        for name in self.storage.names(self.active):
            instant = parse_instant(name)
            if instant is not None:
                key = instant.time, COMPLETED_ACTION.get(instant.action, instant.action)
                found.setdefault(key, []).append((instant, name))
        return {key: sorted(files, key=lambda f: ORDER[f[0].state]) for key, files in sorted(found.items())}

    def load(self, files: Collection[tuple[Instant, str]]) -> list[ActionFile]:
        """Read an action's files."""
        rels = [(instant, f"{self.active}/{name}") for instant, name in files]
        return [ActionFile(i, self.storage.read(rel), self.storage.where(rel)) for i, rel in rels]

    def changed(self) -> dict[str, str]:
        """Modification time of each file of the timeline by the store's clock, as an instant, by name."""
        entries = self.storage.list(self.active)
        return {e.name: instant_from_ms(e.mtime_ms, self.utc) for e in entries if parse_instant(e.name) is not None}


def archive(
    place: TimelinePlace,
    instants: Collection[Instant],
    merge: MergeOptions | None = _MERGE,
    check: Callable[[], None] = lambda: None,
    reach: Callable[[str], None] = lambda _: None,
) -> tuple[str, ...]:
    """Archive completed actions; returns the names of the removed files.

    ``merge``: the options for merging small files, which is the last step in layout 1; layout 2 has its own limits.
    None: do not merge. InstantConflictError when an action is not completed. ``check`` is called before files are
    removed; an error that it raises stops the removal. ``reach`` is called at the steps ``archive_written``,
    ``archive_unfinished_removed`` and ``archive_removed``.
    """
    names = place.names()
    keys = sorted({(i.time, COMPLETED_ACTION.get(i.action, i.action)) for i in instants})
    chosen = {key: names[key] for key in keys if key in names}
    for (time, action), files in chosen.items():
        if not files[-1][0].is_completed:
            raise InstantConflictError(
                f"{action} {time} of {place.storage.where(place.active)} is not completed: it cannot be archived"
            )
    if place.layout == 1:
        changed = place.changed()
        write_archive(
            place.storage, place.archived, (entries_of_files(place.load(f), changed) for f in chosen.values())
        )
    else:
        write_batch(place.storage, place.archived, [archived_of(place.load(f)) for f in chosen.values()])
        if merge is not None:
            remove_old(place.storage, place.archived, merge_levels(place.storage, place.archived))
    reach(Step.ARCHIVE_WRITTEN)
    check()
    removed = _remove(place, chosen, reach)
    if place.layout == 1 and merge is not None:
        merge_archive(place.storage, place.archived, merge, check)
    return removed


def archived_of(files: list[ActionFile]) -> ArchivedAction:
    """The archived form of a completed action, from its files in layout 2."""
    done = files[-1]
    planned = next((f for f in files if f.instant.state is State.REQUESTED and f.instant.action in PLANNED), None)
    plan = planned.data or None if planned is not None else None
    action = COMPLETED_ACTION.get(done.instant.action, done.instant.action)
    by = planned.instant.action if planned is not None else None
    return ArchivedAction(done.instant.time, action, done.instant.completion_time, done.data, plan, by)


def _remove(
    place: TimelinePlace, chosen: dict[ActionKey, list[tuple[Instant, str]]], reach: Callable[[str], None]
) -> tuple[str, ...]:
    unfinished = [name for files in chosen.values() for i, name in files if not i.is_completed]
    completed = [name for files in chosen.values() for i, name in files if i.is_completed]
    place.storage.delete_many(f"{place.active}/{name}" for name in unfinished)
    reach(Step.ARCHIVE_UNFINISHED_REMOVED)
    for name in completed:
        place.storage.delete(f"{place.active}/{name}")
    reach(Step.ARCHIVE_REMOVED)
    return (*unfinished, *completed)


_COLUMNS = ("instantTime", "completionTime", "action", "metadata")


def newest_archived(place: TimelinePlace) -> Iterator[ArchivedAction]:
    """The completed writes of the archive, newest first, without their plans; a write may occur twice.

    Files are read one by one while the caller iterates, the last one first, so that the newest writes cost little.
    """
    found = listed_again(lambda: _of_layout_1(place)) if place.layout == 1 else _of_layout_2(place)
    return (action for action in found if action.action in WRITE_ACTIONS)


def archived_after(place: TimelinePlace, since: str) -> Iterator[ArchivedAction]:
    """The archived writes that were completed after a time, in no order.

    Layout 1 has no completion times: there these are the writes with a later instant time. All files are read, because
    a write with a savepoint is archived after newer ones.
    """
    if place.layout == 1:
        yield from (action for action in newest_archived(place) if action.time > since)
        return
    history = History(place.storage, place.archived)
    wanted = {time for time, completed in history.completion_times().items() if completed > since}
    if wanted:
        actions = _actions(history.read(_COLUMNS, first=min(wanted)))
        yield from (action for action in actions if action.time in wanted and action.action in WRITE_ACTIONS)


def _of_layout_1(place: TimelinePlace) -> Iterator[ArchivedAction]:
    for name in reversed(archive_files(place.storage, place.archived)):
        rel = f"{place.archived}/{name}"
        entries: dict[tuple[str, str], list[dict[str, object]]] = {}
        for entry in read_entries(place.storage, rel):
            entries.setdefault(key_of(entry), []).append(entry)
        for key in sorted(entries, reverse=True):
            # The end of a file may split an action's records: only the completed one is needed.
            action = action_of(entries[key], place.storage.where(rel))
            if action is not None:
                yield action


def _of_layout_2(place: TimelinePlace) -> Iterator[ArchivedAction]:
    history = History(place.storage, place.archived)
    for file in sorted(history.manifest.files, key=lambda f: f.range[::-1], reverse=True):
        yield from _actions(history.load(file, _COLUMNS).sort_by([("instantTime", "descending")]))


def _actions(rows: pa.Table) -> Iterator[ArchivedAction]:
    for batch in rows.to_batches(max_chunksize=64):
        for row in batch.to_pylist():
            yield ArchivedAction(row["instantTime"], row["action"], row["completionTime"], row["metadata"])
