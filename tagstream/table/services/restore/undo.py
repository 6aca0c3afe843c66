"""What undoes a completed write: by the files that its commit names, nothing is listed.

Base files are deleted. From version 8 on log files are, too; before, one gets a rollback block behind it, for the log of a
slice is of many writes. A log file of a slice that is undone as a whole is deleted.
"""

from __future__ import annotations

from collections.abc import Collection

from tagstream.table.file_group.names import parse_log_file_name
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.rollback_plan import RollbackRequest
from tagstream.table.timeline.commit_metadata import CommitMetadata


def undo_requests(table: HoodieTable, metadata: CommitMetadata, undone: Collection[str]) -> list[RollbackRequest]:
    """The steps for a write with this metadata; ``undone``: the times of all writes that go, this one among them."""
    found: dict[tuple[str, ...], RollbackRequest] = {}
    for stat in sorted(metadata.all_stats(), key=lambda stat: stat.path):
        log = parse_log_file_name(stat.file_name)
        partition, path = stat.partition_path, stat.path
        base = log.base_instant if log is not None else ""
        if log is None or table.config.names_logs_by_commit or log.base_instant in undone:
            found[(path,)] = RollbackRequest(partition, stat.file_id, base, files=(path,))
        elif table.storage.exists(path):
            blocks = ((path, table.storage.size(path)),)
            found[(path,)] = RollbackRequest(partition, stat.file_id, base, log_blocks=blocks)
    return list(found.values())
