"""When each table service is due next, in words, and when the timeline has seen it last."""

from __future__ import annotations

from tagstream.streaming.options.service_options import CompactionMode, ServiceOptions
from tagstream.streaming.page.values import span
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.encode.locations import instant_ms
from tagstream.table.services.cleaning.last_clean import completed_cleans
from tagstream.table.services.clustering.trigger import last_clustering
from tagstream.table.services.compaction.options import Trigger
from tagstream.table.services.compaction.trigger import since_compaction
from tagstream.table.timeline.instant import COMMIT, COMPACTION
from tagstream.table.timeline.timeline import Timeline


def services_due(
    table: HoodieTable, timeline: Timeline, options: ServiceOptions, now_ms: int, *, continuous: bool
) -> tuple[dict[str, str], dict[str, int]]:
    """By service: when it is due, and when its newest action on the timeline was, in epoch milliseconds."""
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
            f"above {options.archive.max_commits:,} commits on the timeline; there are {len(timeline.completed_writes):,}"
        )
    return due, last


def _compaction(timeline: Timeline, options: ServiceOptions, mode: CompactionMode, now_ms: int, *, utc: bool) -> str:
    if mode is CompactionMode.OFF:
        return "off"
    pending = [i.time for i in timeline.pending if i.action == COMPACTION]
    if pending:
        by = "; `tagstream services run` carries it out" if mode is CompactionMode.SCHEDULE else ""
        return f"plan {pending[0]} is pending{by}"
    told = options.compaction
    since = since_compaction(timeline, requested=told.trigger is Trigger.NUM_COMMITS_AFTER_LAST_REQUEST)
    number = _left(told.max_delta_commits - since.delta_commits, "delta commit")
    if since.instant is None:
        seconds = f"{span(float(told.max_delta_seconds))} after the first delta commit"
    else:
        left = told.max_delta_seconds - (now_ms - instant_ms(since.instant, utc)) / 1000
        seconds = f"in {span(left)}" if left > 0 else "after the next commit"
    match told.trigger:
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
