"""A clean's plan looked at again before it is carried out, for the table may have changed since it was made.

A savepoint may have been made, or a write taken back, which makes slices the newest that the plan has as old ones. What
somebody needs by now stays (``table.retention``). Where a write that the plan knew is gone, nothing more is deleted: what
the policy keeps would reach further back. A clean that left something out says no earliest commit, so that the next one
looks at all partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tagstream.table.each import each
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.retention.needed import Held, Past, names_of, savepointed_names, why_needed
from tagstream.table.services.cleaning.last_clean import NEXT_WRITE, SAVEPOINTED
from tagstream.table.services.cleaning.planning import busy_groups
from tagstream.table.services.cleaning.records import StoredPlan, read_plan
from tagstream.table.timeline.instant import CLEAN, Instant, State
from tagstream.table.timeline.savepoints import savepoints
from tagstream.table.timeline.timeline import Timeline

Files = Mapping[str, tuple[str, ...]]


def pending_plans(table: HoodieTable, timeline: Timeline) -> dict[str, StoredPlan]:
    """The plans of cleans that are not carried out yet, by instant, oldest first; empty files are left out."""
    found = {}
    for instant in timeline.pending:
        if instant.action == CLEAN:
            rel = f"{timeline.folder}/{Instant(instant.time, CLEAN, State.REQUESTED).file_name()}"
            data = table.storage.read(rel)
            if data:
                found[instant.time] = read_plan(data, table.storage.where(rel))
    return found


def look_again(table: HoodieTable, instant: str, plan: StoredPlan, timeline: Timeline) -> StoredPlan | None:
    """What of the plan of ``instant`` may be carried out now; None where nothing may, and nothing was.

    Without anything newer on the timeline only the savepoints are asked; else the plan's partitions are listed.
    """
    saved = savepoints(table.storage, timeline)
    names = savepointed_names(saved)
    spared = {p: names.get(p, frozenset()).intersection(found) for p, found in plan.files.items()}
    if timeline.newest is not None and timeline.newest > instant:
        spared = _needed(table, plan, timeline, Held(names, busy_groups(table.storage, timeline)))
    if not any(spared.values()):
        return plan
    left = {p: tuple(name for name in found if name not in spared[p]) for p, found in plan.files.items()}
    times = ",".join(savepoint.time for savepoint in saved)
    return reduced(plan, left, times)


def gone_files(table: HoodieTable, plan: StoredPlan) -> Files:
    """The files of a plan that are not on disk, by partition path: what was carried out of it."""

    def gone(partition: str) -> tuple[str, ...]:
        there = frozenset(table.storage.names(partition))
        return tuple(name for name in plan.files[partition] if name not in there)

    return dict(zip(plan.files, each(gone, plan.files), strict=True))


def reduced(plan: StoredPlan, left: Files, savepointed: str) -> StoredPlan | None:
    """The plan with these files alone; None without any."""
    files = {partition: names for partition, names in left.items() if names}
    if not files:
        return None
    extra = {key: value for key, value in plan.extra.items() if key not in (NEXT_WRITE, SAVEPOINTED)}
    return replace(plan, earliest=None, files=files, extra=extra | ({SAVEPOINTED: savepointed} if savepointed else {}))


def _needed(table: HoodieTable, plan: StoredPlan, timeline: Timeline, held: Held) -> dict[str, frozenset[str]]:
    """The names of a plan's files that stay, by partition path."""
    view = table.view(timeline)
    is_stale = bool(plan.newest) and not timeline.is_valid(plan.newest)
    past = Past(plan.earliest)

    def look(partition: str) -> frozenset[str]:
        planned = frozenset(plan.files[partition])
        if is_stale:
            return planned.intersection(table.storage.names(partition))
        needed: set[str] = set()
        for file_id, slices in view.all_slices(partition).items():
            reasons = why_needed(timeline, (partition, file_id), slices, past, held)
            needed.update(n for found, why in zip(slices, reasons, strict=True) if why for n in names_of(found))
        return planned & needed

    view.look_up(list(plan.files))
    return dict(zip(plan.files, each(look, plan.files), strict=True))


def remove_plan(table: HoodieTable, instant: str) -> None:
    """Take a clean's plan off the timeline; of one that is cut off in between the requested file is left."""
    for state in (State.INFLIGHT, State.REQUESTED):
        table.storage.delete(f"{table.config.timeline_folder}/{Instant(instant, CLEAN, state).file_name()}")
