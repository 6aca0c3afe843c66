"""What a restore undoes, and whether the table is then what its savepoint names: the savepoint's files decide.

An action is undone that was completed after the savepoint's write, unless the savepoint names a file of it: Hudi's
savepoints go by instant times, and name files of a service that was requested before the write and completed after it. An
action is undone, too, that has replaced a file group of which the savepoint names a file: up to version 7 nothing else tells
that it was completed after the savepoint was made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tagstream.table.each import each
from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.file_group.fs_view import FileSystemView
from tagstream.table.file_group.names import file_id_of, parse_base_file_name, parse_log_file_name
from tagstream.table.file_group.partition_metadata import join
from tagstream.table.retention.needed import names_of
from tagstream.table.retention.seen import completed_at
from tagstream.table.timeline.instant import COMPLETED_ACTION, Instant, State
from tagstream.table.timeline.savepoints import Savepoint
from tagstream.table.timeline.timeline import Timeline

_END = "9" * 17
LAYOUT_2 = 8  # from this table version on a log file names its own write


def to_undo(timeline: Timeline, at: Instant, savepoint: Savepoint, version: int) -> tuple[Instant, ...]:
    """The writes that a restore to the savepoint of the write ``at`` undoes, newest first. ``version``: the table's.

    Unfinished ones are among them; plans that were made before the savepoint stay plans.
    """
    plans = set(timeline.pending_clusterings.values())
    end, named, replaced = completed_at(at), _times_named(savepoint, version), _replacing(timeline, savepoint)

    def goes(i: Instant) -> bool:
        if i.is_completed:
            return i.time in replaced or (completed_at(i) > end and i.time not in named)
        return i.time > at.time or (i.action not in COMPLETED_ACTION and i.time not in plans)

    found = (i for i in timeline.instants if i.is_write and i.time != at.time and goes(i))
    return tuple(sorted(found, key=lambda i: i.time, reverse=True))


def _times_named(savepoint: Savepoint, version: int) -> set[str]:
    """The times of the writes whose files a savepoint names. Up to version 7 a log file names its slice."""
    found = set()
    for name in (name for names in savepoint.files.values() for name in names):
        base, log = parse_base_file_name(name), parse_log_file_name(name)
        if base is not None:
            found.add(base.instant)
        elif log is not None and version >= LAYOUT_2:
            found.add(log.base_instant)
    return found


def _replacing(timeline: Timeline, savepoint: Savepoint) -> set[str]:
    """The times of the replace commits that have replaced a file group of which the savepoint names a file."""
    groups = {(partition, file_id_of(name)) for partition, names in savepoint.files.items() for name in names}
    return {time for group, time in timeline.replaced.items() if group in groups}


def without(view: FileSystemView, undone: tuple[Instant, ...]) -> FileSystemView:
    """The slices that are left once these writes are undone; files of others count however new they are."""
    times = {i.time for i in undone}
    timeline = view.timeline
    instants = tuple(
        replace(i, state=State.INFLIGHT, completion_time=None) if i.is_write and i.time in times else i
        for i in timeline.instants
    )
    left = replace(
        timeline,
        instants=instants,
        pending_compactions={g: t for g, t in timeline.pending_compactions.items() if t not in times},
        pending_clusterings={g: t for g, t in timeline.pending_clusterings.items() if t not in times},
        replaced={g: t for g, t in timeline.replaced.items() if t not in times},
    )
    return replace(view, timeline=left, as_of=_END)


def differences(view: FileSystemView, savepoint: Savepoint) -> Iterator[str]:
    """In what the slices that are left differ from those that the savepoint names, a sentence each.

    ``view``: see :func:`without`.
    """
    partitions = sorted({*view.partitions(), *savepoint.files})
    view.look_up(partitions)
    for partition, left in zip(partitions, each(view.latest_merged_slices, partitions), strict=True):
        slices = {found.file_id: found for found in left}
        named = _by_group(savepoint.files.get(partition, frozenset()))
        for file_id in sorted(slices.keys() | named.keys()):
            found, wanted = slices.get(file_id), named.get(file_id, frozenset())
            for name in _unlike(found, wanted, view.version):
                yield name if not partition else join(partition, name)


def _unlike(found: FileSlice | None, named: frozenset[str], version: int) -> list[str]:
    """The names of files that readers would see and should not, or should see and would not.

    Up to version 7 savepoints of Hudi's first versions name base files alone.
    """
    names = frozenset(names_of(found)) if found is not None else frozenset()
    if not named or found is None:
        return sorted(named ^ names)
    if version < LAYOUT_2:
        return sorted(_lost_by_name(found, named))
    return sorted(named ^ names)


def _lost_by_name(found: FileSlice, named: frozenset[str]) -> frozenset[str]:
    """Up to version 7: the named files that the slice neither has nor was compacted from.

    Log files may be there that came later; what they hold of undone writes is under rollback blocks.
    """
    bases = {base.instant for name in named if (base := parse_base_file_name(name)) is not None}
    if found.base_file is None or (bases and found.base_file.instant < max(bases)):
        return named - frozenset(names_of(found))
    begun = found.base_file.instant
    older = {name for name in named if (log := parse_log_file_name(name)) is not None and log.base_instant < begun}
    older |= {name for name in named if (base := parse_base_file_name(name)) is not None and base.instant < begun}
    return named - frozenset(names_of(found)) - older


def _by_group(names: frozenset[str]) -> Mapping[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for name in names:
        file_id = file_id_of(name)
        if file_id is not None:
            found.setdefault(file_id, set()).add(name)
    return {file_id: frozenset(own) for file_id, own in found.items()}
