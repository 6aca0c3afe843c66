"""Which files of a partition's folder belong to completed instants, by their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tagstream.table.file_group.names import parse_base_file_name, parse_log_file_name
from tagstream.table.storage.storage import FileEntry
from tagstream.table.timeline.timeline import Timeline


def committed_entries(entries: Iterable[FileEntry], timeline: Timeline) -> dict[str, int]:
    """Sizes in bytes of those in a listing, by name; older slices are among them."""
    return committed_files({entry.name: entry.size for entry in entries if not entry.is_dir}, timeline)


def committed_files(sizes: Mapping[str, int], timeline: Timeline) -> dict[str, int]:
    """Those of the files, given by name, that belong to completed instants.

    Up to version 7 the name of a log file has the time of its slice, which may have been begun by a plan.
    """
    plans = frozenset(timeline.pending_compactions.values())

    def counts(name: str) -> bool:
        base, log = parse_base_file_name(name), parse_log_file_name(name)
        if base is not None:
            return timeline.is_valid(base.instant)
        return log is not None and (timeline.is_valid(log.base_instant) or log.base_instant in plans)

    return {name: size for name, size in sizes.items() if counts(name)}
