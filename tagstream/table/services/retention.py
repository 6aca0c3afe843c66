"""What readers, savepoints and plans still need: file slices to keep, and actions to keep on the timeline.

A slice is needed by present readers, by readers of retained past states, by savepoints, and by pending plans. A
replaced file group is needed only by readers of past states.

From version 8 on an action is visible from its completion time on: a compaction that was requested before a write and
completed after it was not visible to the write. Up to version 7 there are no completion times, and an action is visible
from its instant time on.

A slice can only be deleted after a later write has replaced it, and that write names the slice that it replaced. So
later commits, not the record of a clean, show which slices of an earlier state are missing. If they do not name it, the
newest file that an earlier write added to the group must exist: a savepoint may keep only an older slice.

Two things keep a completed write on the active timeline, in addition to the options' numbers. First, a savepoint: a
restore undoes what was completed after its write, and must find it. So its write is kept, all later ones, and services
that were requested before it and completed after it. Second, a replaced file group with a file on disk: without the
replace commit its rows would become visible again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tagstream.table.file_group.fs_view import FileSlice, FileSystemView
from tagstream.table.file_group.names import parse_log_file_name
from tagstream.table.timeline.commit_metadata import NO_PREVIOUS, CommitMetadata
from tagstream.table.timeline.instant import SAVEPOINT, Instant, State
from tagstream.table.timeline.timeline import FileGroupId, Savepoint, Timeline

NEWEST = "readers see it now"
PAST = "readers of the past may see it"
SAVED = "a savepoint names it"
PLANNED = "a pending plan reads it"
OnDisk = Callable[[str, Collection[str]], bool]


@dataclass(frozen=True)
class Past:
    """What readers of past states may read: slices of the commit ``earliest`` and later, or the newest ``versions``.

    With ``earliest`` None and ``versions`` 1 they read no past state.
    """

    earliest: str | None = None
    versions: int = 1


@dataclass(frozen=True)
class Needed:
    """What needs files in addition to readers.

    ``savepointed``: names by partition path. ``busy``: file groups of pending log compactions, of which every slice is
    kept.
    """

    savepointed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    busy: frozenset[FileGroupId] = frozenset()


def names_of(found: FileSlice) -> tuple[str, ...]:
    """The names of a slice's base file, log files and change files."""
    files = (found.base_file, *found.log_files, *found.change_files)
    return tuple(file.name for file in files if file is not None)


def savepointed_names(saved: Iterable[Savepoint]) -> dict[str, frozenset[str]]:
    """The names of the files that savepoints keep, by partition path."""
    found: dict[str, frozenset[str]] = {}
    for savepoint in saved:
        for partition, names in savepoint.files.items():
            found[partition] = found.get(partition, frozenset()) | names
    return found


def why_needed(
    timeline: Timeline, group: FileGroupId, slices: Sequence[FileSlice], past: Past, needed: Needed
) -> list[str | None]:
    """For each committed slice of a file group, oldest first, why it is needed; None when it is not.

    A slice is needed as a whole. Of two base files of one instant both are needed.
    """
    reasons = _by_readers(timeline, group, slices, past)
    names = needed.savepointed.get(group[0], frozenset())
    found: list[str | None] = []
    for each in slices:
        reason = reasons.get(each.base_instant)
        if reason is None and names and not names.isdisjoint(names_of(each)):
            reason = SAVED
        if reason is None and group in needed.busy:
            reason = PLANNED
        found.append(reason)
    return found


def _by_readers(timeline: Timeline, group: FileGroupId, slices: Sequence[FileSlice], past: Past) -> Mapping[str, str]:
    """Why readers need the slices of each base instant."""
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
    # The slice that a pending compaction makes counts as one, even if it does not exist yet.
    versions = past.versions - (compaction is not None)
    others = [time for time in times if time != compaction]
    return others[len(others) - versions :] if versions < len(others) else others


def completed_at(instant: Instant) -> str:
    """The time from which on a completed action is visible."""
    return instant.completion_time or instant.time


def newest_write(timeline: Timeline) -> Instant | None:
    """The write that was completed last: it determines the present state."""
    return max(timeline.completed_writes, key=completed_at, default=None)


def as_of_completion(timeline: Timeline, write: Instant) -> Timeline:
    """The timeline as of the completion of ``write``: writes that were completed later are unfinished in it.

    They are not removed: an action that is older than the whole timeline counts as archived, and so as completed.
    """
    end = completed_at(write)
    later = {i.time for i in timeline.completed_writes if completed_at(i) > end}
    instants = tuple(
        replace(i, state=State.INFLIGHT, completion_time=None) if i.is_write and i.time in later else i
        for i in timeline.instants
    )
    # Up to version 7 logs have the instant of a compaction plan, which existed if it is older than the write.
    planned = {group: time for group, time in timeline.pending_compactions.items() if time <= write.time}
    replaced = {group: time for group, time in timeline.replaced.items() if time not in later}
    return replace(timeline, instants=instants, pending_compactions=planned, replaced=replaced)


def view_as_of(view: FileSystemView, write: Instant) -> FileSystemView:
    """The file slices that a reader saw as of the completion of ``write``, if their files still exist.

    ``view``: a present one, whose listing is used.
    """
    timeline = as_of_completion(view.timeline, write)
    return replace(view, timeline=timeline, as_of=timeline.newest_completed)


@dataclass(frozen=True)
class Later:
    """A write after a state. ``read``: names of the files that its plan reads, if it has one, by file group."""

    time: str
    metadata: CommitMetadata
    read: Mapping[FileGroupId, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Missing:
    """A missing slice. ``base_instant`` None: all files of the group are missing, or ``newest_file`` is."""

    partition_path: str
    file_id: str
    base_instant: str | None
    newest_file: str | None = None

    def __str__(self) -> str:
        slice_ = f"slice {self.base_instant}" if self.base_instant else "every slice"
        if self.newest_file is not None:
            slice_ = f"the slice with {self.newest_file}"
        return f"{slice_} of file group {self.file_id} in partition {self.partition_path!r}"


def superseded(later: Iterable[Later]) -> dict[FileGroupId, str | None]:
    """The slices that writes have replaced, by file group: the base instants that were the newest before.

    ``later``: the writes after a state of the table, oldest first. The first base file of a group names the previous
    slice. Groups that are newer than the state are left out. None: any slice; replace commits do not name it, nor do
    Hudi's compactions of a slice that has only log files.
    """
    found: dict[FileGroupId, str | None] = {}
    made: set[FileGroupId] = set()
    times: set[str] = set()
    for each in later:
        times.add(each.time)
        for stat in each.metadata.all_stats():
            group = stat.partition_path, stat.file_id
            if stat.log_version is not None or group in found or group in made:
                continue  # a log file replaces nothing
            if (
                stat.prev_commit in (NO_PREVIOUS, "") or stat.prev_commit in times
            ):  # or a later log file began the group
                if any(not _is_of(name, times) for name in each.read.get(group, ())):
                    found[group] = None
                else:
                    made.add(group)
            else:
                found[group] = stat.prev_commit
        for partition, ids in each.metadata.replaced.items():
            for file_id in ids:
                group = partition, file_id
                if group not in found and group not in made:
                    found[group] = None
    return found


def _is_of(name: str, times: set[str]) -> bool:
    """Whether one of these writes has begun a log file."""
    log = parse_log_file_name(name)
    return log is not None and log.base_instant in times


def newest_files(wanted: Mapping[FileGroupId, str | None], before: Iterable[CommitMetadata]) -> dict[FileGroupId, str]:
    """The names of the last written files in those groups of ``wanted`` for which any slice is accepted.

    ``before``: the writes up to the state, the last completed first; they are read as far as necessary. A group without
    writes is left out: its slices are older than all savepoints, and are deleted at once.
    """
    found: dict[FileGroupId, str] = {}
    asked = {group for group, instant in wanted.items() if instant is None}
    if asked:
        for metadata in before:
            for stat in metadata.all_stats():
                group = stat.partition_path, stat.file_id
                if group in asked:
                    found.setdefault(group, stat.file_name)
            if asked <= found.keys():
                break
    return found


def missing(
    view: FileSystemView, wanted: Mapping[FileGroupId, str | None], newest: Mapping[FileGroupId, str]
) -> Missing | None:
    """The first of these slices that ``view``, as of the earlier state, does not have; None when all exist.

    ``newest``: from :func:`newest_files`.
    """
    for partition in sorted({partition for partition, _ in wanted}):
        slices = view.all_slices(partition)
        for group, before in sorted(wanted.items(), key=lambda item: item[0]):
            if group[0] != partition:
                continue
            there = slices.get(group[1], ())
            if not _is_there(there, before):
                return Missing(*group, before)
            file = newest.get(group)
            if file is not None and not any(file in names_of(each) for each in there):
                return Missing(*group, None, file)
    return None


def _is_there(slices: Iterable[FileSlice], before: str | None) -> bool:
    times = {found.base_instant for found in slices}
    return before in times if before is not None else bool(times)


def needed_by_savepoints(timeline: Timeline) -> Iterator[str]:
    """The instants of the writes that a restore to a savepoint must find on the timeline."""
    done = {i.time: completed_at(i) for i in timeline.completed_writes}
    for saved in (i.time for i in timeline.instants if i.action == SAVEPOINT):
        yield saved
        end = done.get(saved)
        yield from (time for time, at in done.items() if end is not None and at > end)


def needed_by_replaced_files(
    timeline: Timeline,
    leaving: Iterable[Instant],
    kept: Mapping[str, Collection[str]],
    on_disk: OnDisk,
) -> str | None:
    """The time of the first of the writes ``leaving``, oldest first, that has replaced a file group that is still on disk.

    ``kept``: file ids by partition path that exist because a savepoint or a pending clean names a file of them.
    ``on_disk`` checks others, one partition at a time, and only until one is found.
    """
    groups: dict[str, dict[str, set[str]]] = {}
    for (partition, file_id), time in timeline.replaced.items():
        groups.setdefault(time, {}).setdefault(partition, set()).add(file_id)
    for instant in leaving:
        replaced = groups.get(instant.time, {})
        if any(not ids.isdisjoint(kept.get(partition, ())) for partition, ids in replaced.items()):
            return instant.time
        if any(on_disk(partition, ids) for partition, ids in sorted(replaced.items())):
            return instant.time
    return None
