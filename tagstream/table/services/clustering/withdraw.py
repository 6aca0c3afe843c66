"""A pending clustering taken back: its new files and its plan. Its file groups may be written to again."""

from __future__ import annotations

from collections.abc import Callable

from tagstream.table.errors import InstantConflictError
from tagstream.table.file_group.names import parse_base_file_name
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.clustering.execute import check_pending, new_files
from tagstream.table.services.clustering.groups import pending_action, read_clustering
from tagstream.table.services.rollback import RollbackResult, roll_back_clustering
from tagstream.table.services.rollback_plan import RollbackRequest
from tagstream.table.timeline.instant import Instant, State
from tagstream.table.write.markers import delete_markers
from tagstream.table.write.staged import unstage


def rollback_clustering(
    table: HoodieTable, instant: str, rollback_instant: str, check: Callable[[], None] = lambda: None
) -> RollbackResult:
    """Take the clustering back, as a rollback action, however far its execution has come.

    InstantConflictError when it is completed or is none.
    """

    def base_files(table: HoodieTable, failed: Instant) -> list[RollbackRequest]:
        found = []
        for rel in new_files(table, failed.time, read_clustering(table, failed.time)):
            partition, _, name = rel.rpartition("/")
            parsed = parse_base_file_name(name)
            found.append(RollbackRequest(partition, parsed.file_id if parsed else "", failed.time, files=(rel,)))
        return found

    check()
    return roll_back_clustering(table, instant, rollback_instant, base_files)


def unschedule_clustering(
    table: HoodieTable,
    instant: str,
    check: Callable[[], None] = lambda: None,
    reach: Callable[[str], None] = lambda _: None,
) -> None:
    """Remove the plan ``instant`` from the timeline as if it had never been made, with the files that tasks have staged.

    For the process that carries it out, before it publishes any: then no reader, and no metadata table, knows of the plan
    but by its name. Cut off in between, a plan is left that is not begun. ``reach`` is told of ``clustering_stopped``, when
    that is so. InstantConflictError when it is completed, or files of it are there: :func:`rollback_clustering` takes these.
    """
    check_pending(table, instant)
    published = new_files(table, instant, read_clustering(table, instant))
    if published:
        raise InstantConflictError(
            f"{table.storage.where(published[0])} is there already: clustering {instant} must be rolled back"
        )
    folder, action = table.config.timeline_folder, pending_action(table)
    check()
    table.storage.delete(f"{folder}/{Instant(instant, action, State.INFLIGHT).file_name()}")
    unstage(table, instant, action)
    reach("clustering_stopped")
    table.storage.delete(f"{folder}/{Instant(instant, action, State.REQUESTED).file_name()}")
    delete_markers(table.storage, instant)
