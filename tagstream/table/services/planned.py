"""Execution of a plan of ``plans``: the common part of compaction and clustering.

1. ``begin``: the inflight file; files of a dead execution are removed first.
2. The tasks write new base files under temporary names, in any order.
3. ``complete_plan``: the files get their final names, the metadata table gets the files, and the commit is written.

Hudi writes no heartbeat while it executes a plan, and two processes that execute one plan delete each other's files. So
a plan is executed at once only if this project has made it and, if it is inflight, has begun it (a file next to its
markers records this); with the writer lease only this process works on it. Any other plan is left until it had no
writes for the time that a heartbeat is valid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tagstream.table.errors import InstantConflictError, UnsupportedTableError
from tagstream.table.file_group.names import file_id_of, join, parse_base_file_name, parse_log_file_name
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import stored_schema
from tagstream.table.schema.schema import arrow_to_avro, avro_json, avro_to_arrow, user_schema
from tagstream.table.services.failed_writes import RollbackRequest
from tagstream.table.services.metadata_changes import Places, update_metadata, with_metadata_stats
from tagstream.table.services.plans import is_planned_here
from tagstream.table.steps import Step
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.commit_metadata import CommitMetadata, WriteStatus
from tagstream.table.timeline.instant import COMPACTION, Instant, State, write_inflight
from tagstream.table.timeline.lease import DEFAULT_TIMEOUT_MS, is_alive
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.commit import complete, publish_files
from tagstream.table.write.markers import begin_markers, delete_markers, marker_folder, unstage
from tagstream.table.write.write_context import WriteContext, WriterOptions

Check = Callable[[], None]
Reach = Callable[[str], None]
# The new base files of a plan: by partition path their file ids, None: any.
Groups = Mapping[str, frozenset[str] | None]

_CLAIM = "tagstream.compaction"  # of a clustering, too


@dataclass(frozen=True)
class Service:
    """A service with a plan. ``name``: in messages. ``actions``: the actions of its instants on the timeline until they
    are completed, in this project and in others. ``inflight``, ``published`` and ``completed``: its steps."""

    name: str
    actions: tuple[str, ...]
    inflight: Step
    published: Step
    completed: Step

    @property
    def action(self) -> str:
        """This project's action."""
        return self.actions[0]


def may_take_up(table: HoodieTable, instant: str, now_ms: int, action: str = COMPACTION) -> bool:
    """Whether this process may execute a plan on the timeline. The caller has the writer lease.

    ``action``: the pending plan's action on the timeline.
    """
    storage = table.storage
    if is_alive(storage, instant, now_ms):
        return False
    planned, name = (Instant(instant, action, state).file_name() for state in (State.REQUESTED, State.INFLIGHT))
    files = {e.name: e.mtime_ms for e in storage.list(table.config.timeline_folder, (f"{instant}.{action}.",))}
    own = storage.exists(f"{marker_folder(instant)}/{_CLAIM}") if name in files else is_planned_here(table, planned)
    if own:
        return True
    newest = max(*files.values(), _newest_below(storage, marker_folder(instant)), 0)
    return now_ms - newest > DEFAULT_TIMEOUT_MS


def check_pending(table: HoodieTable, instant: str, service: Service) -> None:
    """InstantConflictError when the plan is completed, UnsupportedTableError when the instant is something else."""
    found = table.timeline().find(instant)
    if found is not None and found.is_completed:
        raise InstantConflictError(
            f"{service.name} {instant} of {table.base_path} is already completed: another run executed it"
        )
    if found is None or found.action not in service.actions:
        raise UnsupportedTableError(f"instant {instant} of {table.base_path} is not a pending {service.name}")


def begin(
    table: HoodieTable,
    instant: str,
    service: Service,
    groups: Groups,
    clock_ms: Callable[[], int],
    check: Check,
    reach: Reach,
    check_files: Check = lambda: None,
) -> None:
    """Write the inflight file after the files of an earlier execution are removed.

    ``groups``: of the plan. ``check_files`` raises an error if the plan's files are wrong. InstantConflictError when
    the plan is completed, or another process seems to execute it.
    """
    check_pending(table, instant, service)
    storage = table.storage
    if is_alive(storage, instant, clock_ms()):
        raise InstantConflictError(
            f"{service.name} {instant} of {table.base_path} is being executed by another process, which writes "
            f"heartbeats in .hoodie/.heartbeat: let it end, or wait until its heartbeats are old"
        )
    check_files()
    check()
    if storage.exists(plan_file(table, instant, service, State.INFLIGHT)):
        unstage(table, instant, service.action)
        storage.delete_many(base_files(table, instant, groups))
        delete_markers(storage, instant)
    begin_markers(storage, instant)
    storage.replace(f"{marker_folder(instant)}/{_CLAIM}", b"")  # this project executes the plan
    write_inflight(storage, table.config.timeline_folder, instant, service.action)
    reach(service.inflight)


def write_context(table: HoodieTable, instant: str, action: str, files: WriterOptions | None) -> WriteContext:
    """The context of the first task of an inflight plan.

    ``files``: how base files are written; the metadata table's needs are added here.
    """
    timeline = table.timeline()
    schema_json = table_schema_json(table, timeline)
    writing = with_metadata_stats(table, files or WriterOptions())
    as_of = _newest_before(table, timeline, instant)
    return WriteContext(instant, action, 0, "", avro_to_arrow(schema_json), schema_json, as_of, timeline, writing)


def complete_plan(
    table: HoodieTable,
    instant: str,
    service: Service,
    statuses: Sequence[WriteStatus],
    metadata: Callable[[str], CommitMetadata],
    clock_ms: Callable[[], int],
    check: Check,
    reach: Reach,
    places: Places | None = None,
) -> Instant:
    """Give the files their final names and complete the plan; the completed instant.

    ``metadata`` makes the commit's metadata from the table's schema. ``places``: as in ``update_metadata``.
    InstantConflictError when another process was first, or the plan was removed: then these files are removed.
    """
    check()
    try:
        check_pending(table, instant, service)
        publish_files(table, instant, statuses)
        reach(service.published)
        after = update_metadata(table, instant, statuses, clock_ms, check, reach, places)
        commit = metadata(table_schema_json(table, table.timeline()))
        completed = complete(table, instant, service.action, commit, check, clock_ms, after)
    except InstantConflictError:
        _withdraw(table, instant, service.action, statuses)
        raise
    reach(service.completed)
    return completed


def base_files(table: HoodieTable, instant: str, groups: Groups) -> list[str]:
    """Paths of this instant's existing base files and change files."""
    found = []
    for partition, file_ids in sorted(groups.items()):
        for name in table.storage.names(partition):
            base, log = parse_base_file_name(name), parse_log_file_name(name)
            is_base = base is not None and base.instant == instant
            is_change = log is not None and log.is_cdc and log.base_instant == instant
            if (is_base or is_change) and (file_ids is None or file_id_of(name) in file_ids):
                found.append(join(partition, name))
    return found


def rollback_requests(table: HoodieTable, instant: str, groups: Groups) -> list[RollbackRequest]:
    """A request for each existing base file of this instant."""
    found = []
    for rel in base_files(table, instant, groups):
        partition, _, name = rel.rpartition("/")
        found.append(RollbackRequest(partition, file_id_of(name) or "", instant, files=(rel,)))
    return found


def plan_file(table: HoodieTable, instant: str, service: Service, state: State) -> str:
    """A pending plan's path on the timeline, in one of its states."""
    return table.instant_path(Instant(instant, service.action, state))


def table_schema_json(table: HoodieTable, timeline: Timeline) -> str:
    """The table's present Avro schema: rows of older files get nulls for later columns."""
    told = table.schema_json(timeline)
    if told is not None:
        return told
    found = user_schema(stored_schema(table, timeline, table.view(timeline)))
    return avro_json(arrow_to_avro(found, table.config.name))


def _newest_before(table: HoodieTable, timeline: Timeline, instant: str) -> str:
    """The newest instant whose log blocks count: up to version 7 a log file may have later blocks than those of the
    plan."""
    if table.config.names_logs_by_commit:
        return instant
    return max((i.time for i in timeline.completed_writes if i.time < instant), default=instant)


def _withdraw(table: HoodieTable, instant: str, action: str, statuses: Sequence[WriteStatus]) -> None:
    """Another process completed the plan: remove this process's files, except those that belong to the commit.

    Some readers fail with a second base file of one instant. ``action``: of the plan's inflight file.
    """
    timeline = table.timeline()
    found = timeline.find(instant)
    unstage(table, instant, action)
    kept = set()
    if found is not None and found.is_completed:
        kept = set(timeline.metadata(table.storage, found).all_paths())
    table.storage.delete_many(path for s in statuses for path in s.stat.paths if path not in kept)
    delete_markers(table.storage, instant)


def _newest_below(storage: Storage, folder: str) -> int:
    newest = 0
    for entry in storage.list(folder):
        newest = max(newest, entry.mtime_ms)
        if entry.is_dir:
            newest = max(newest, _newest_below(storage, f"{folder}/{entry.name}"))
    return newest
