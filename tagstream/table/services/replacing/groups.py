"""The file groups whose rows are to go, and the keys that are in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from tagstream.table.errors import InstantConflictError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.write.changes import KEYS
from tagstream.table.read.slice_lookup import key_reader
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.timeline.timeline import Timeline


def groups_of_partitions(
    table: HoodieTable, partitions: Iterable[str], *, new_ones: bool = False
) -> dict[str, tuple[str, ...]]:
    """The file groups of some partitions, by partition path; a partition without rows has none.

    InstantConflictError where one of the partitions is not there (``new_ones``: it has none then), or has groups in a
    pending plan.
    """
    timeline = table.timeline()
    view = table.view(timeline)
    wanted, there = {*partitions}, {*view.partitions()}
    unknown = sorted(wanted - there)
    if unknown and not new_ones:
        raise InstantConflictError(f"table {table.base_path} has no partition {unknown[0]!r}")
    found = {p: tuple(s.file_id for s in view.latest_merged_slices(p)) if p in there else () for p in sorted(wanted)}
    plans = {**timeline.pending_compactions, **timeline.pending_clusterings}
    busy = next((plans[p, f] for p, ids in found.items() for f in ids if (p, f) in plans), None)
    if busy is not None:
        raise InstantConflictError(
            f"table {table.base_path}: the plan {busy} is pending over file groups of these partitions: carry it out first"
        )
    return found


def keys_of(table: HoodieTable, timeline: Timeline, partitions: Sequence[str]) -> Iterator[tuple[str, pa.Array]]:
    """(partition path, record keys of live rows) of all file groups of some partitions, a part at a time."""
    view = table.view(timeline)
    if view.as_of is None:  # no commit, no rows
        return
    reader = key_reader(table, timeline, view.as_of, None)
    for partition in partitions:
        for at in view.latest_merged_slices(partition):
            for rows in reader.read(at):
                yield partition, rows.column(RECORD_KEY).combine_chunks().cast(pa.string())


def rows_of(table: HoodieTable, timeline: Timeline, partitions: Sequence[str]) -> Iterator[pa.Table]:
    """The same as tables of ``KEYS``."""
    for partition, keys in keys_of(table, timeline, partitions):
        yield pa.Table.from_arrays([keys, pa.repeat(pa.scalar(partition, pa.string()), len(keys))], schema=KEYS)


def replaced_ids(groups: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Without the partitions that have no file group."""
    return {partition: ids for partition, ids in groups.items() if ids}
