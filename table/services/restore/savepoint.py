"""Savepoints: a completed write is kept, with all files that its state of the table needs, until the savepoint is deleted.

``T.savepoint.inflight`` (empty), then ``T.savepoint`` (HoodieSavepointMetadata), which names the files of the newest slices
as of T, base files and logs. The metadata table is told nothing. A savepoint is deleted without a trace.
"""

from __future__ import annotations

from collections.abc import Callable

from tagstream.table.errors import InstantConflictError
from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.cleaning.last_clean import last_clean
from tagstream.table.timeline.avro_schemas import parsed_schema
from tagstream.table.timeline.avro_timeline import write_parsed
from tagstream.table.timeline.instant import SAVEPOINT, Instant, State
from tagstream.table.timeline.savepoints import Savepoint, savepoints
from tagstream.table.write.commit import completed_instant


def create_savepoint(
    table: HoodieTable,
    time: str | None,
    user: str,
    comment: str,
    clock_ms: Callable[[], int],
    check: Callable[[], None] = lambda: None,
    reach: Callable[[str], None] = lambda _: None,
) -> Savepoint:
    """Keep the completed write ``time``, by default the newest. One that was cut off is finished.

    InstantConflictError where there is no such write, it has a savepoint, or a clean may have deleted what it needs.
    ``reach`` is told of the steps ``savepoint_inflight`` and ``savepoint_completed``.
    """
    timeline, storage = table.timeline(), table.storage
    time = time or timeline.newest_completed
    known = [i.time for i in timeline.completed_writes]
    if time is None or time not in known:
        raise InstantConflictError(
            f"table {table.base_path} has no completed write {time or 'at all'} on its active timeline: `tagstream table "
            "commits` lists them"
        )
    if any(savepoint.time == time for savepoint in savepoints(storage, timeline)):
        raise InstantConflictError(f"write {time} of table {table.base_path} has a savepoint already: delete it first")
    last = last_clean(storage, timeline)
    if last is not None and last.earliest is not None and time < last.earliest:
        raise InstantConflictError(
            f"the clean {last.time} of table {table.base_path} retains writes from {last.earliest} on: files that {time} "
            "needs may be gone, so it cannot be kept; take a later write"
        )
    view = table.view(timeline, time)
    files = {p: frozenset(n for s in view.latest_merged_slices(p) for n in _names(s)) for p in view.partitions()}
    made = Savepoint(time, user, comment, clock_ms(), {p: names for p, names in files.items() if names})
    inflight = Instant(time, SAVEPOINT, State.INFLIGHT)
    check()
    if not storage.exists(_rel(table, inflight)):
        storage.write_new(_rel(table, inflight), b"")
    reach("savepoint_inflight")
    check()
    completed = completed_instant(table, inflight, clock_ms())
    storage.write_new(_rel(table, completed), _content(made))
    reach("savepoint_completed")
    return made


def delete_savepoint(table: HoodieTable, time: str, check: Callable[[], None] = lambda: None) -> None:
    """Give the files of a savepoint free; InstantConflictError where there is none of this time, begun or completed."""
    found = [i for i in table.timeline().instants if (i.action, i.time) == (SAVEPOINT, time)]
    if not found:
        raise InstantConflictError(
            f"table {table.base_path} has no savepoint {time}: `tagstream table savepoints` lists them"
        )
    check()
    table.storage.delete(_rel(table, Instant(time, SAVEPOINT, State.INFLIGHT)))
    for instant in found:
        table.storage.delete(_rel(table, instant))


def _names(found: FileSlice) -> list[str]:
    return [file.name for file in (found.base_file, *found.log_files) if file is not None]


def _content(made: Savepoint) -> bytes:
    record = {
        "savepointedBy": made.user,
        "savepointedAt": made.made_ms,
        "comments": made.comment,
        "partitionMetadata": {
            partition: {"partitionPath": partition, "savepointDataFile": sorted(names)}
            for partition, names in made.files.items()
        },
        "version": 1,
    }
    return write_parsed(parsed_schema("HoodieSavepointMetadata"), record)


def _rel(table: HoodieTable, instant: Instant) -> str:
    return f"{table.config.timeline_folder}/{instant.file_name()}"
