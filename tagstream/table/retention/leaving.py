"""What holds a completed write on the active timeline, beside the numbers that options give.

- A savepoint: a restore undoes what was completed after its write, and must find it. So its write stays, all later ones, and
  services that were requested before it and completed after it.
- A replaced file group with a file on disk: without the replace commit its rows would count again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from tagstream.table.retention.seen import completed_at
from tagstream.table.timeline.instant import SAVEPOINT, Instant
from tagstream.table.timeline.timeline import Timeline

OnDisk = Callable[[str, Collection[str]], bool]


def held_by_savepoints(timeline: Timeline) -> Iterator[str]:
    """The times of the writes that a restore to a savepoint would need to find."""
    done = {i.time: completed_at(i) for i in timeline.completed_writes}
    for saved in (i.time for i in timeline.instants if i.action == SAVEPOINT):
        yield saved
        end = done.get(saved)
        yield from (time for time, at in done.items() if end is not None and at > end)


def held_by_replaced_files(
    timeline: Timeline,
    leaving: Iterable[Instant],
    kept: Mapping[str, Collection[str]],
    on_disk: OnDisk,
) -> str | None:
    """The time of the first of the writes ``leaving``, oldest first, that has replaced a file group still on disk.

    ``kept``: file ids by partition path that are known to be there, as a savepoint or a pending clean names a file of
    them. ``on_disk`` looks for the others, a partition at a time, and only until one is found.
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
