"""Which file slices are still needed, and by whom: all that a clean must leave, when it plans and when it carries out.

A slice is needed by readers of now, by readers of the past within what is retained, by savepoints, and by plans that
were made and not carried out. A replaced file group is needed by readers of the past alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.timeline.savepoints import Savepoint
from tagstream.table.timeline.timeline import FileGroupId, Timeline

NEWEST = "readers see it now"
PAST = "readers of the past may see it"
SAVED = "a savepoint names it"
PLANNED = "a pending plan reads it"


@dataclass(frozen=True)
class Past:
    """What readers of the past may ask for: slices of the commit ``earliest`` and later, or the newest ``versions``.

    ``earliest`` None and ``versions`` 1: nothing of the past.
    """

    earliest: str | None = None
    versions: int = 1


@dataclass(frozen=True)
class Held:
    """What holds files beside readers. ``savepointed``: names by partition path; ``busy``: file groups of pending log
    compactions, of which every slice stays."""

    savepointed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    busy: frozenset[FileGroupId] = frozenset()


def names_of(found: FileSlice) -> tuple[str, ...]:
    """The names of a slice's base file and log files."""
    return tuple(file.name for file in (found.base_file, *found.log_files) if file is not None)


def savepointed_names(saved: Iterable[Savepoint]) -> dict[str, frozenset[str]]:
    """The names of the files that savepoints keep, by partition path."""
    found: dict[str, frozenset[str]] = {}
    for savepoint in saved:
        for partition, names in savepoint.files.items():
            found[partition] = found.get(partition, frozenset()) | names
    return found


def why_needed(
    timeline: Timeline, group: FileGroupId, slices: Sequence[FileSlice], past: Past, held: Held
) -> list[str | None]:
    """For each committed slice of a file group, oldest first, who needs it; None where nobody does.

    A slice is needed as a whole. Of two base files of one instant both are.
    """
    reasons = _by_readers(timeline, group, slices, past)
    names = held.savepointed.get(group[0], frozenset())
    found: list[str | None] = []
    for each in slices:
        reason = reasons.get(each.base_instant)
        if reason is None and names and not names.isdisjoint(names_of(each)):
            reason = SAVED
        if reason is None and group in held.busy:
            reason = PLANNED
        found.append(reason)
    return found


def _by_readers(timeline: Timeline, group: FileGroupId, slices: Sequence[FileSlice], past: Past) -> Mapping[str, str]:
    """Who reads the slices of each base instant."""
    times = sorted({each.base_instant for each in slices})
    replaced_at = timeline.replaced.get(group)
    if replaced_at is not None:
        return dict.fromkeys(times, PAST) if past.earliest is not None and replaced_at >= past.earliest else {}
    compaction = timeline.pending_compactions.get(group)
    found = dict.fromkeys(_of_the_past(times, past, compaction), PAST)
    for plan in (compaction, timeline.pending_clusterings.get(group)):
        if plan is not None:
            read = max((time for time in times if time < plan), default="")
            found |= {time: PLANNED for time in times if time >= read}
    return {**found, times[-1]: NEWEST}


def _of_the_past(times: Sequence[str], past: Past, compaction: str | None) -> Collection[str]:
    if past.earliest is not None:
        before = max((time for time in times if time < past.earliest), default=None)
        return [time for time in times if time >= past.earliest or time == before]
    # The slice that a pending compaction is making counts as one, there or not.
    versions = past.versions - (compaction is not None)
    others = [time for time in times if time != compaction]
    return others[len(others) - versions :] if versions < len(others) else others
