"""Archived writes from the newest on, in either layout: for who looks for a commit that has left the active timeline."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tagstream.table.timeline.history.archive import TimelinePlace
from tagstream.table.timeline.history.archive_log import archive_files, listed_again, read_entries
from tagstream.table.timeline.history.archived import ArchivedAction
from tagstream.table.timeline.history.entries import action_of, key_of
from tagstream.table.timeline.history.lsm import History
from tagstream.table.timeline.instant import WRITE_ACTIONS

_COLUMNS = ("instantTime", "completionTime", "action", "metadata")


def newest_archived(place: TimelinePlace) -> Iterator[ArchivedAction]:
    """The completed writes of the archive, newest first, without their plans; one may come twice.

    Files are read one by one as the caller goes on, the last one first, so that the newest cost little.
    """
    found = listed_again(lambda: _of_layout_1(place)) if place.layout == 1 else _of_layout_2(place)
    return (action for action in found if action.action in WRITE_ACTIONS)


def archived_after(place: TimelinePlace, since: str) -> Iterator[ArchivedAction]:
    """The archived writes that were completed after a time, in no order. Layout 1 has no times of completion: there it is
    those with a later time, and all files are read, since a write with a savepoint went there after newer ones."""
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
            # An action's records may be cut in two by the end of a file: what completed it is all that is wanted.
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
