"""Read the table for the status page: last commits, file sizes, and when each table service is due next.

After the first call only partitions that commits have written to are listed again, a few per call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice

from tagstream.streaming.monitor.run_status import RunStatus
from tagstream.streaming.monitor.snapshot import CommitLine, TableFiles, commit_line, largest
from tagstream.streaming.monitor.values import span
from tagstream.streaming.options.service_options import CompactionMode, ServiceOptions
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.record_encoding import instant_ms
from tagstream.table.services.cleaning_plan import completed_cleans
from tagstream.table.services.clustering_plan import last_clustering
from tagstream.table.services.compaction_plan import since_compaction
from tagstream.table.services.health import FileSizes, partition_sizes, total_sizes
from tagstream.table.services.options import Trigger
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.instant import COMMIT, COMPACTION, Instant
from tagstream.table.timeline.timeline import Timeline

COMMITS = 20
_COMMITS_A_PROBE, PARTITIONS_A_PROBE, PARTITIONS_SHOWN = 100, 32, 30


class TableProbe:
    """Reads the table when called, and reports to the run's status.

    ``made``: a file that is as old as the checkpoint (storage, folder, name), for a stream without a commit.
    ``services``: returns when each service is due, and when it last ran according to the timeline.
    """

    def __init__(
        self,
        status: RunStatus,
        table: HoodieTable,
        stream_id: Callable[[], str],
        small_limit: int,
        made: tuple[Storage, str, str],
        clock_ms: Callable[[], int],
        services: Callable[[HoodieTable, Timeline], tuple[Mapping[str, str], Mapping[str, int]]] = lambda *_: ({}, {}),
    ) -> None:
        self._services = services
        self._status, self._table, self._stream_id = status, table, stream_id
        self._small_limit, self._made, self._clock_ms = small_limit, made, clock_ms
        self._commits: deque[CommitLine] = deque(maxlen=COMMITS)
        self._seen: frozenset[str] = frozenset()
        self._partitions: set[str] | None = None
        self._due: dict[str, None] = {}  # an ordered set of partitions to list, the last written ones first
        self._sizes: dict[str, FileSizes] = {}

    def __call__(self) -> None:
        """Read new commits, the services' due times, and the files of some partitions."""
        timeline = self._table.timeline()
        self._probe_commits(timeline)
        self._status.services_due(*self._services(self._table, timeline))
        self._probe_files(timeline)

    def _probe_commits(self, timeline: Timeline) -> None:
        done = timeline.completed_writes
        new = [instant for instant in done[-_COMMITS_A_PROBE:] if instant.time not in self._seen]
        shown = {instant.time for instant in done}
        self._commits = deque((line for line in self._commits if line.instant in shown), maxlen=COMMITS)
        newest: Instant | None = None
        touched: set[str] = set()
        for instant in new:
            metadata = timeline.metadata(self._table.storage, instant)
            line = commit_line(instant, metadata)
            self._commits.append(line)
            touched |= metadata.stats.keys() | metadata.replaced.keys()
            if line.stream is not None and line.stream == self._stream_id():
                newest = instant
        if self._seen or self._partitions is not None:
            self._due = dict.fromkeys([*sorted(touched), *self._due])
        self._seen = frozenset(shown)
        last_ms, exact = self._last_commit(timeline, newest)
        self._status.commits(sorted(self._commits, key=lambda line: line.instant, reverse=True), last_ms, exact=exact)

    def _last_commit(self, timeline: Timeline, newest: Instant | None) -> tuple[int | None, bool]:
        """When the stream last committed (epoch milliseconds), and whether that is exact.

        Without a commit of the stream, it is the time of the oldest commit that was read, or when the checkpoint was
        made.
        """
        if newest is not None:
            return _modified(self._table.storage, self._table.config.timeline_folder, newest.file_name()), True
        done = timeline.completed_writes
        if len(done) > _COMMITS_A_PROBE:
            oldest = done[-_COMMITS_A_PROBE]
            return _modified(self._table.storage, self._table.config.timeline_folder, oldest.file_name()), False
        return _modified(*self._made), False

    def _probe_files(self, timeline: Timeline) -> None:
        view = self._table.view(timeline)
        if self._partitions is None:
            self._partitions = set(view.partitions())
            self._due = dict.fromkeys([*self._due, *sorted(self._partitions)])
        if view.as_of is None:
            return
        now = list(islice(self._due, PARTITIONS_A_PROBE))
        for partition in now:
            del self._due[partition]
            found = partition_sizes(view, partition, self._small_limit)
            if found.file_groups:
                self._sizes[partition] = found
                self._partitions.add(partition)
            else:
                self._sizes.pop(partition, None)
                self._partitions.discard(partition)
        if now:
            self._status.files(self._files(len(self._partitions)))

    def _files(self, partitions: int) -> TableFiles:
        rows = largest(self._sizes, PARTITIONS_SHOWN)
        return TableFiles(self._clock_ms(), len(self._sizes), partitions, total_sizes(self._sizes.values()), rows)


def _modified(storage: Storage, folder: str, name: str) -> int | None:
    return next((entry.mtime_ms for entry in storage.list(folder, (name,)) if entry.name == name), None)


def services_due(
    table: HoodieTable, timeline: Timeline, options: ServiceOptions, now_ms: int, *, continuous: bool
) -> tuple[dict[str, str], dict[str, int]]:
    """By service: when it is due, in words, and the time of its newest action on the timeline in epoch milliseconds."""
    utc, merge_on_read = table.config.timezone_utc, table.config.is_merge_on_read
    last: dict[str, int] = {}
    compacted = [i for i in timeline.completed_writes if i.action == COMMIT] if merge_on_read else []
    if compacted:
        last["compaction"] = instant_ms(compacted[-1].time, utc)
    cleaned = completed_cleans(timeline)
    if cleaned:
        last["cleaning"] = instant_ms(cleaned[-1].time, utc)
    mode = options.compaction_mode(table.config.version, merge_on_read=merge_on_read, continuous=continuous)
    due = {
        "compaction": _compaction(timeline, options, mode, now_ms, utc=utc) if merge_on_read else "no logs to compact",
        "clustering": "off",
        "cleaning": "off" if options.clean is None else _every(options.clean.max_commits),
        "archiving": "off",
    }
    if options.clustering is not None:
        newest = last_clustering(table, timeline)
        if newest is not None:
            last["clustering"] = instant_ms(newest.time, utc)
        after = sum(newest is None or i.time > newest.time for i in timeline.completed_writes)
        due["clustering"] = (
            "a plan is pending"
            if timeline.pending_clusterings
            else _left(options.clustering.max_commits - after, "commit")
        )
    if options.archive is not None:
        due["archiving"] = (
            f"above {options.archive.max_commits:,} commits on the timeline; it has {len(timeline.completed_writes):,}"
        )
    return due, last


def _compaction(timeline: Timeline, options: ServiceOptions, mode: CompactionMode, now_ms: int, *, utc: bool) -> str:
    if mode is CompactionMode.OFF:
        return "off"
    pending = [i.time for i in timeline.pending if i.action == COMPACTION]
    if pending:
        by = "; `tagstream services run` executes it" if mode is CompactionMode.SCHEDULE else ""
        return f"plan {pending[0]} is pending{by}"
    compaction = options.compaction
    since = since_compaction(timeline, requested=compaction.trigger is Trigger.NUM_COMMITS_AFTER_LAST_REQUEST)
    number = _left(compaction.max_delta_commits - since.delta_commits, "delta commit")
    if since.instant is None:
        seconds = f"{span(float(compaction.max_delta_seconds))} after the first delta commit"
    else:
        left = compaction.max_delta_seconds - (now_ms - instant_ms(since.instant, utc)) / 1000
        seconds = f"in {span(left)}" if left > 0 else "after the next commit"
    match compaction.trigger:
        case Trigger.TIME_ELAPSED:
            return seconds
        case Trigger.NUM_AND_TIME:
            return f"{number} and {seconds}"
        case Trigger.NUM_OR_TIME:
            return f"{number} or {seconds}"
    return number


def _left(commits: int, what: str) -> str:
    return "after the next commit" if commits <= 1 else f"in {commits:,} {what}s"


def _every(commits: int) -> str:
    return "after each commit" if commits == 1 else f"{commits:,} commits after the last one"
