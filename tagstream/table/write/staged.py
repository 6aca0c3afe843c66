"""What an unfinished commit has staged: its own content, and the data files of its tasks. None has a name a reader knows.

A commit is staged in ``.hoodie/.temp/.<instant>.<action>.staged``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.at_once import at_once
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import COMPLETED_ACTION, REPLACE_COMMIT
from tagstream.table.write.data_file import is_staged, staged_path
from tagstream.table.write.markers import TEMP_FOLDER, delete_markers, marker_files, marker_folder

_STAGED_COMMIT = re.compile(r"\.(?P<instant>[0-9]+)\.[a-z]+\.staged")


def staged_commit_path(instant: str, action: str) -> str:
    """Where the content of a commit is until it is published."""
    return f"{TEMP_FOLDER}/.{instant}.{action}.staged"


def staged_instant(name: str) -> str | None:
    """The instant whose commit is staged in a file of ``TEMP_FOLDER``; None where the name is of something else."""
    found = _STAGED_COMMIT.fullmatch(name)
    return None if found is None else found["instant"]


def stage(table: HoodieTable, instant: str, action: str, metadata: CommitMetadata) -> None:
    """Write the content of a commit."""
    replaces = COMPLETED_ACTION.get(action, action) == REPLACE_COMMIT
    content = metadata.to_bytes(table.config.version, replaces=replaces)
    table.storage.replace(staged_commit_path(instant, action), content)


def forget_staged(table: HoodieTable, instant: str, action: str) -> None:
    """Undo :func:`stage`."""
    table.storage.delete(staged_commit_path(instant, action))


def tidy(storage: Storage, instant: str, action: str, paths: Sequence[str]) -> None:
    """Remove markers and staged files of a completed instant; ``paths``: of its data files.

    Where published files stay, they are named at once; the look at the folder finds those of late tasks only.
    """
    staged = staged_commit_path(instant, action)
    known = [staged]
    if storage.publishes_by_copy:
        known += [*marker_files(instant), *(staged_path(instant, path) for path in paths)]
        remove, folder = partial(storage.delete_many, known), marker_folder(instant)
        _, found = at_once(storage, remove, lambda: list(storage.walk_files(folder)))
        storage.delete_many(sorted(set(found) - set(known)))
        return
    at_once(storage, lambda: storage.delete(staged), lambda: delete_markers(storage, instant))


def unstage(table: HoodieTable, instant: str, action: str) -> None:
    """Take away what an unfinished write has staged, its commit and its files: neither can be published any more."""
    storage = table.storage
    storage.delete(staged_commit_path(instant, action))
    storage.delete_many([rel for rel in storage.walk_files(marker_folder(instant)) if is_staged(rel)])
