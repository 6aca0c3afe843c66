"""A clean's plan on the timeline as Hudi's Avro record, and which of its files may still be deleted.

The plan (HoodieCleanerPlan) has absolute paths by partition, the result (HoodieCleanMetadata) file names, from which
Hudi's metadata table removes the deleted files. A file that does not exist counts as deleted.

A plan is checked again before it is executed. Since it was made, a savepoint may have been created, or a write rolled
back so that old slices of the plan are the newest. Files that are needed now are kept (``retention``). If a write that
the plan was based on was rolled back, nothing more is deleted: the policy would keep older files. A clean that omitted
files names no earliest commit, so that the next one checks all partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tagstream.table.errors import CorruptFileError
from tagstream.table.file_group.names import file_id_of, has_group, join
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.cleaning_plan import NEXT_WRITE, SAVEPOINTED, CleanPlan, busy_groups
from tagstream.table.services.retention import (
    Needed,
    Past,
    names_of,
    needed_by_replaced_files,
    savepointed_names,
    why_needed,
)
from tagstream.table.storage.storage import Storage, each
from tagstream.table.timeline.avro_timeline import parsed_schema, read_record, write_parsed
from tagstream.table.timeline.instant import CLEAN, COMPLETED_ACTION, Instant, State
from tagstream.table.timeline.timeline import Timeline, savepoints

_PATHS_VERSION = 2  # of both records: from here on a plan has paths
Files = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class StoredPlan:
    """A plan of any writer: file names by partition path, and partitions that are deleted with their folders."""

    policy: str
    earliest: str | None
    newest: str
    files: Mapping[str, tuple[str, ...]]
    partitions: tuple[str, ...]
    extra: Mapping[str, str]


def plan_bytes(storage: Storage, plan: CleanPlan) -> bytes:
    """The content of ``T.clean.requested``."""
    earliest = None
    if plan.earliest is not None:
        action = COMPLETED_ACTION.get(plan.earliest.action, plan.earliest.action)
        earliest = {"timestamp": plan.earliest.time, "action": action, "state": "COMPLETED"}
    record = {
        "earliestInstantToRetain": earliest,
        "lastCompletedCommitTimestamp": plan.newest,
        "policy": plan.policy.value,
        "filesToBeDeletedPerPartition": {},
        "version": _PATHS_VERSION,
        "filePathsToBeDeletedPerPartition": {
            partition: [
                {"filePath": storage.where(join(partition, file.name)), "isBootstrapBaseFile": False} for file in files
            ]
            for partition, files in plan.files.items()
        },
        "partitionsToBeDeleted": list(plan.partitions),
        "extraMetadata": dict(plan.extra),
    }
    return write_parsed(parsed_schema("HoodieCleanerPlan"), record)


def read_plan(data: bytes, where: str) -> StoredPlan:
    """The plan of any writer; the table may have been copied since to another path. CorruptFileError as ``read_record``."""
    record = read_record(data, where)
    files: dict[str, list[str]] = {
        p: list(names) for p, names in (record.get("filesToBeDeletedPerPartition") or {}).items()
    }
    for partition, paths in (record.get("filePathsToBeDeletedPerPartition") or {}).items():
        if any(path.get("isBootstrapBaseFile") for path in paths):
            raise CorruptFileError(
                f"{where} has files of a bootstrap to delete, which this table does not have: remove it"
            )
        files.setdefault(partition, []).extend(path["filePath"] for path in paths)
    names = {p: tuple(dict.fromkeys(path.rsplit("/", 1)[-1] for path in paths)) for p, paths in files.items()}
    return StoredPlan(
        record.get("policy") or "",
        (record.get("earliestInstantToRetain") or {}).get("timestamp") or None,
        record.get("lastCompletedCommitTimestamp") or "",
        names,
        tuple(record.get("partitionsToBeDeleted") or ()),
        record.get("extraMetadata") or {},
    )


def done_bytes(instant: str, plan: StoredPlan, partitions: tuple[str, ...], took_ms: int) -> bytes:
    """The content of the completed clean. ``partitions``: those that were deleted with their folders."""
    metadata = {
        "startCleanTime": instant,
        "timeTakenInMillis": took_ms,
        "totalFilesDeleted": sum(map(len, plan.files.values())),
        "earliestCommitToRetain": plan.earliest or "",
        "lastCompletedCommitTimestamp": plan.newest,
        "partitionMetadata": {
            partition: _partition(partition, plan, partition in partitions)
            for partition in sorted({*plan.files, *partitions})
        },
        "version": _PATHS_VERSION,
        "bootstrapPartitionMetadata": {},
        "extraMetadata": dict(plan.extra),
    }
    return write_parsed(parsed_schema("HoodieCleanMetadata"), metadata)


def _partition(partition: str, plan: StoredPlan, whole: bool) -> dict[str, Any]:
    names = list(plan.files.get(partition, ()))
    return {
        "partitionPath": partition,
        "policy": plan.policy,
        "deletePathPatterns": names,
        "successDeleteFiles": names,
        "failedDeleteFiles": [],
        "isPartitionDeleted": whole,
    }


def pending_plans(table: HoodieTable, timeline: Timeline) -> dict[str, StoredPlan]:
    """The plans of unfinished cleans, by instant, oldest first; empty files are skipped."""
    found = {}
    for instant in timeline.pending:
        if instant.action == CLEAN:
            rel = f"{timeline.folder}/{Instant(instant.time, CLEAN, State.REQUESTED).file_name()}"
            data = table.storage.read(rel)
            if data:
                found[instant.time] = read_plan(data, table.storage.where(rel))
    return found


def recheck(table: HoodieTable, instant: str, plan: StoredPlan, timeline: Timeline) -> StoredPlan | None:
    """The part of the plan of ``instant`` that may be executed now; None when there is none, and nothing was deleted.

    If nothing newer is on the timeline only the savepoints are checked; otherwise the plan's partitions are listed.
    """
    saved = savepoints(table.storage, timeline)
    names = savepointed_names(saved)
    spared = {p: names.get(p, frozenset()).intersection(found) for p, found in plan.files.items()}
    if timeline.newest is not None and timeline.newest > instant:
        spared = _needed(table, plan, timeline, Needed(names, busy_groups(table.storage, timeline)))
    if not any(spared.values()):
        return plan
    left = {p: tuple(name for name in found if name not in spared[p]) for p, found in plan.files.items()}
    times = ",".join(savepoint.time for savepoint in saved)
    return reduced(plan, left, times)


def gone_files(table: HoodieTable, plan: StoredPlan) -> Files:
    """The files of a plan that do not exist, by partition path: they were deleted."""

    def gone(partition: str) -> tuple[str, ...]:
        there = frozenset(table.storage.names(partition))
        return tuple(name for name in plan.files[partition] if name not in there)

    return dict(zip(plan.files, each(gone, plan.files), strict=True))


def reduced(plan: StoredPlan, left: Files, savepointed: str) -> StoredPlan | None:
    """The plan with only these files; None without any."""
    files = {partition: names for partition, names in left.items() if names}
    if not files:
        return None
    extra = {key: value for key, value in plan.extra.items() if key not in (NEXT_WRITE, SAVEPOINTED)}
    return replace(plan, earliest=None, files=files, extra=extra | ({SAVEPOINTED: savepointed} if savepointed else {}))


def _needed(table: HoodieTable, plan: StoredPlan, timeline: Timeline, needed: Needed) -> dict[str, frozenset[str]]:
    """Names of a plan's files that must be kept, by partition path."""
    view = table.view(timeline)
    is_stale = bool(plan.newest) and not timeline.is_valid(plan.newest)
    past = Past(plan.earliest)

    def look(partition: str) -> frozenset[str]:
        planned = frozenset(plan.files[partition])
        if is_stale:
            return planned.intersection(table.storage.names(partition))
        kept_names: set[str] = set()
        for file_id, slices in view.all_slices(partition).items():
            reasons = why_needed(timeline, (partition, file_id), slices, past, needed)
            kept_names.update(n for found, why in zip(slices, reasons, strict=True) if why for n in names_of(found))
        return planned & kept_names

    view.look_up(list(plan.files))
    return dict(zip(plan.files, each(look, plan.files), strict=True))


def remove_plan(table: HoodieTable, instant: str) -> None:
    """Remove a clean's plan from the timeline. After an interruption the requested file remains."""
    for state in (State.INFLIGHT, State.REQUESTED):
        table.storage.delete(table.instant_path(Instant(instant, CLEAN, state)))


def not_cleaned(table: HoodieTable, timeline: Timeline, leaving: Iterable[Instant]) -> str | None:
    """The time of the first of the writes ``leaving``, oldest first, that has replaced a file group that still exists.

    Files of an unfinished clean count as existing: it may have deleted them, but the metadata table lists them until it
    completes. Only partitions of replaced groups are listed, up to the first one found.
    """
    named: list[Mapping[str, Collection[str]]] = [saved.files for saved in savepoints(table.storage, timeline)]
    named += [plan.files for plan in pending_plans(table, timeline).values()]
    kept: dict[str, set[str]] = {}
    for partition, names in (pair for files in named for pair in files.items()):
        kept.setdefault(partition, set()).update(found for name in names if (found := file_id_of(name)) is not None)

    def on_disk(partition: str, ids: Collection[str]) -> bool:
        return has_group(table.storage.names(partition), ids)

    return needed_by_replaced_files(timeline, leaving, kept, on_disk)
