"""Files that commits name and the table's folder lacks: a slice found by listing would just be smaller or older."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.file_group.names import parse_base_file_name, parse_log_file_name
from tagstream.table.timeline.timeline import Timeline


def missing_files(
    timeline: Timeline,
    slices: Mapping[tuple[str, str], FileSlice],
    committed: Iterable[str],
    partitions: re.Pattern[str],
    *,
    by_name: bool,
) -> tuple[str, ...]:
    """Paths that belong to the newest slice of their file group and are not in it.

    ``slices``: the newest ones by (partition path, file id). ``committed``: paths by the active commits. ``by_name``: a log
    file's name tells the slice it belongs to (table versions up to 7), else its time does. Files of older slices may be
    gone, a cleaner removes them; so may be all of a replaced file group.
    """
    found = []
    for path in committed:
        partition, _, name = path.rpartition("/")
        base, log = parse_base_file_name(name), parse_log_file_name(name)
        part = base or log
        if part is None or (log is not None and log.is_cdc) or partitions.fullmatch(partition) is None:
            continue
        group = (partition, part.file_id)
        if group in timeline.replaced:
            continue
        file_slice = slices.get(group)
        newest = file_slice.base_file.instant if file_slice is not None and file_slice.base_file is not None else ""
        if base is not None:
            lacks = base.instant > newest
        else:
            assert log is not None
            lacks = file_slice is None or name not in {f.name for f in file_slice.log_files}
            if lacks and by_name:
                lacks = log.base_instant >= newest
            elif lacks:
                lacks = timeline.completion_time(log.base_instant) >= newest
        if lacks:
            found.append(path)
    return tuple(sorted(found))
