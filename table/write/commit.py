"""The commit protocol of table version 6, step by step. A reader sees the old state until step 6 has happened.

1. ``requested``: the empty file ``T.<action>.requested`` claims the instant.
2. ``inflight``: ``T.<action>.inflight`` (``T.inflight`` of a plain commit) says that files are being written.
3. The tasks write: partition metafile, marker, data file; each data file is durable when its task answers.
4. ``reconcile``: data files with a marker that no write status names are removed (retried and speculative tasks).
5. ``stage``: the commit's content is written durably under a hidden name.
6. ``publish``: the staged file gets the name ``T.<action>``, which must not exist: the instant is completed.
7. Markers are removed.

A writer that was paused between 5 and 6 and has been rolled back meanwhile finds its staged file gone: a rollback
removes it before anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tagstream.table.errors import InstantConflictError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.timeline.avro_timeline import REQUESTED_REPLACE, write_record
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import REPLACE_COMMIT, Instant, State
from tagstream.table.timeline.write_status import WriteStatus
from tagstream.table.write.markers import TEMP_FOLDER, delete_markers, list_markers

# Extra metadata of an inflight file of this project: what began it, so that a later run knows it for its own leftover.
WRITER_KEY = "tagstream.writer"


def request(table: HoodieTable, instant: str, action: str) -> None:
    """Step 1. InstantConflictError when the instant is taken."""
    replaces = action == REPLACE_COMMIT
    content = write_record(REQUESTED_REPLACE, {"operationType": None, "version": None}) if replaces else b""
    _create(table, Instant(instant, action, State.REQUESTED), content)


def inflight(table: HoodieTable, instant: str, action: str, metadata: CommitMetadata | None = None) -> None:
    """Step 2. ``metadata`` is what is known of the work before it is done; readers do not look at it."""
    _create(table, Instant(instant, action, State.INFLIGHT), (metadata or CommitMetadata()).to_bytes())


def reconcile(table: HoodieTable, instant: str, statuses: Iterable[WriteStatus]) -> list[str]:
    """Step 4. Removes what no status names; returns the paths removed."""
    kept = {status.stat.path for status in statuses}
    orphans = [marker.path for marker in list_markers(table.storage, instant) if marker.path not in kept]
    return [path for path in orphans if table.storage.delete(path)]


def complete(
    table: HoodieTable,
    instant: str,
    action: str,
    metadata: CommitMetadata,
    guard: Callable[[], None] | None = None,
) -> None:
    """Steps 5-7. ``guard`` is called as the last thing before publishing; what it raises stops the commit.

    InstantConflictError when the instant is completed already or was rolled back by someone else.
    """
    storage, name = table.storage, Instant(instant, action, State.COMPLETED).file_name()
    folder = table.config.timeline_folder
    staged = _staged_path(instant, action)
    storage.replace(staged, metadata.to_bytes())
    try:
        if guard is not None:
            guard()
        if not storage.exists(f"{folder}/{Instant(instant, action, State.INFLIGHT).file_name()}"):
            raise InstantConflictError(_gone(table, instant))
        storage.publish([(staged, f"{folder}/{name}")])
    except FileExistsError:
        raise InstantConflictError(
            f"instant {instant} of {table.base_path} is completed already: another run committed it; start again"
        ) from None
    except FileNotFoundError:
        raise InstantConflictError(_gone(table, instant)) from None
    finally:
        storage.delete(staged)
    delete_markers(storage, instant)


def unstage(table: HoodieTable, instant: str, action: str) -> None:
    """Take the staged content of an unfinished commit away: from here on it cannot be published any more."""
    table.storage.delete(_staged_path(instant, action))


def _create(table: HoodieTable, instant: Instant, data: bytes) -> None:
    rel = f"{table.config.timeline_folder}/{instant.file_name()}"
    try:
        table.storage.write_new(rel, data)
    except FileExistsError:
        raise InstantConflictError(
            f"{table.storage.where(rel)} exists already: another writer took instant {instant.time}; roll it back or "
            "take a later instant"
        ) from None


def _staged_path(instant: str, action: str) -> str:
    return f"{TEMP_FOLDER}/.{instant}.{action}.staged"


def _gone(table: HoodieTable, instant: str) -> str:
    return (
        f"instant {instant} of {table.base_path} was rolled back by another process while this one was writing: "
        "nothing was published; only one writer may work on the table"
    )
