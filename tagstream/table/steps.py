"""The steps that code reports as it does them, each action's in their order. Drills kill or pause a job at them.

A function with a parameter ``reach`` calls it with each step right after the step is done.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class Step(StrEnum):
    """Steps of a batch (``streaming.job.sink`` says what each one is), of the metadata table within any action, of each
    table service, and of a process that carries compactions out for a job (`tagstream services run`)."""

    PROFILE_PINNED = "profile_pinned"
    REQUESTED = "requested"
    INFLIGHT = "inflight"
    DELTA_DURABLE = "delta_durable"
    STATE_COMMITTED = "state_committed"
    FILES_WRITTEN = "files_written"
    FILES_PUBLISHED = "files_published"
    MANIFEST_DURABLE = "manifest_durable"
    COMPLETED = "completed"
    COMMIT_LOG = "commit_log"

    METADATA_BEGUN = "metadata_begun"
    METADATA_FILES = "metadata_files"
    METADATA_COMPLETED = "metadata_completed"
    METADATA_DROPPED = "metadata_dropped"

    COMPACTION_REQUESTED = "compaction_requested"
    COMPACTION_INFLIGHT = "compaction_inflight"
    COMPACTION_FILES = "compaction_files"
    COMPACTION_PUBLISHED = "compaction_published"
    COMPACTION_COMPLETED = "compaction_completed"

    CLUSTERING_REQUESTED = "clustering_requested"
    CLUSTERING_INFLIGHT = "clustering_inflight"
    CLUSTERING_FILES = "clustering_files"
    CLUSTERING_PUBLISHED = "clustering_published"
    CLUSTERING_COMPLETED = "clustering_completed"
    CLUSTERING_KNOWN = "clustering_known"
    CLUSTERING_STOPPED = "clustering_stopped"

    CLEAN_REQUESTED = "clean_requested"
    CLEAN_INFLIGHT = "clean_inflight"
    CLEAN_DELETED = "clean_deleted"
    CLEAN_METADATA = "clean_metadata"
    CLEAN_COMPLETED = "clean_completed"

    ARCHIVE_WRITTEN = "archive_written"
    ARCHIVE_UNFINISHED_REMOVED = "archive_unfinished_removed"
    ARCHIVE_REMOVED = "archive_removed"

    REPLACE_REQUESTED = "replace_requested"
    REPLACE_INFLIGHT = "replace_inflight"
    REPLACE_FILES = "replace_files"
    REPLACE_PUBLISHED = "replace_published"
    REPLACE_COMPLETED = "replace_completed"

    SAVEPOINT_INFLIGHT = "savepoint_inflight"
    SAVEPOINT_COMPLETED = "savepoint_completed"

    RESTORE_REQUESTED = "restore_requested"
    RESTORE_INFLIGHT = "restore_inflight"
    RESTORE_UNDONE = "restore_undone"
    RESTORE_COMPLETED = "restore_completed"

    ROLLBACK_REQUESTED = "rollback_requested"
    ROLLBACK_UNCOMPLETED = "rollback_uncompleted"
    ROLLBACK_COMPLETED = "rollback_completed"

    WORKER_OFFERED = "worker_offered"
    WORKER_STAGED = "worker_staged"
    WORKER_HANDED_IN = "worker_handed_in"


def step_within(service: str, step: str) -> str:
    """A step by a name of the service's own: those of the metadata table have the same names in every action."""
    return step if step.startswith(f"{service}_") else f"{service}_{step}"


def steps_of(service: str, reach: Callable[[str], None]) -> Callable[[str], None]:
    """Calls ``reach`` with the names of :func:`step_within`."""
    return lambda step: reach(step_within(service, step))


def _in_order(service: str, *steps: Step) -> tuple[str, ...]:
    return tuple(step_within(service, step) for step in steps)


METADATA_STEPS = (Step.METADATA_BEGUN, Step.METADATA_FILES, Step.METADATA_COMPLETED)
COMMIT_STEPS: tuple[str, ...] = (
    Step.PROFILE_PINNED,
    Step.REQUESTED,
    Step.INFLIGHT,
    Step.DELTA_DURABLE,
    Step.STATE_COMMITTED,
    Step.FILES_WRITTEN,
    Step.FILES_PUBLISHED,
    Step.MANIFEST_DURABLE,
    *METADATA_STEPS,
    Step.COMPLETED,
    Step.COMMIT_LOG,
)
COMPACTION_STEPS = _in_order(
    "compaction",
    Step.COMPACTION_REQUESTED,
    Step.COMPACTION_INFLIGHT,
    Step.COMPACTION_FILES,
    Step.COMPACTION_PUBLISHED,
    *METADATA_STEPS,
    Step.COMPACTION_COMPLETED,
)
CLUSTERING_STEPS = _in_order(
    "clustering",
    Step.CLUSTERING_REQUESTED,
    Step.CLUSTERING_INFLIGHT,
    Step.CLUSTERING_FILES,
    Step.CLUSTERING_PUBLISHED,
    *METADATA_STEPS,
    Step.CLUSTERING_COMPLETED,
    Step.CLUSTERING_KNOWN,
    Step.CLUSTERING_STOPPED,
)
CLEAN_STEPS = _in_order(
    "clean",
    Step.CLEAN_REQUESTED,
    Step.CLEAN_INFLIGHT,
    Step.CLEAN_DELETED,
    Step.METADATA_BEGUN,
    Step.METADATA_FILES,
    Step.CLEAN_METADATA,
    Step.CLEAN_COMPLETED,
)
TTL_STEPS = _in_order("ttl", Step.REPLACE_REQUESTED, Step.REPLACE_INFLIGHT, *METADATA_STEPS, Step.REPLACE_COMPLETED)
ARCHIVE_STEPS = _in_order("archive", Step.ARCHIVE_WRITTEN, Step.ARCHIVE_UNFINISHED_REMOVED, Step.ARCHIVE_REMOVED)
SERVICE_STEPS = (*COMPACTION_STEPS, *CLUSTERING_STEPS, *TTL_STEPS, *CLEAN_STEPS, *ARCHIVE_STEPS)
WORKER_STEPS: tuple[str, ...] = (Step.WORKER_OFFERED, Step.WORKER_STAGED, Step.WORKER_HANDED_IN)
# Where a drill may kill a job or its services.
CRASH_POINTS = (*COMMIT_STEPS, *SERVICE_STEPS, *WORKER_STEPS)
