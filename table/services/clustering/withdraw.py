"""A pending clustering taken back: its new files and its plan. Its file groups may be written to again."""

from __future__ import annotations

from collections.abc import Callable

from tagstream.table.file_group.names import parse_base_file_name
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.clustering.execute import new_files
from tagstream.table.services.clustering.groups import read_clustering
from tagstream.table.services.rollback import RollbackResult, roll_back_clustering
from tagstream.table.services.rollback_plan import RollbackRequest
from tagstream.table.timeline.instant import Instant


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
