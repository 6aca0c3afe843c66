"""Replace commits whose file groups are not cleaned yet: without one on the timeline their rows would count again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tagstream.table.file_group.names import file_id_of, has_group
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.retention.leaving import held_by_replaced_files
from tagstream.table.services.cleaning.again import pending_plans
from tagstream.table.timeline.instant import Instant
from tagstream.table.timeline.savepoints import savepoints
from tagstream.table.timeline.timeline import Timeline


def not_cleaned(table: HoodieTable, timeline: Timeline, leaving: Iterable[Instant]) -> str | None:
    """The time of the first of the writes ``leaving``, oldest first, that has replaced a file group which is there still.

    Files of a clean that is not complete count as there: it may have deleted them, and the metadata table lists them until
    it is. Only partitions of replaced groups are listed, and only up to the first that is found.
    """
    named: list[Mapping[str, Collection[str]]] = [saved.files for saved in savepoints(table.storage, timeline)]
    named += [plan.files for plan in pending_plans(table, timeline).values()]
    kept: dict[str, set[str]] = {}
    for partition, names in (pair for files in named for pair in files.items()):
        kept.setdefault(partition, set()).update(found for name in names if (found := file_id_of(name)) is not None)

    def on_disk(partition: str, ids: Collection[str]) -> bool:
        return has_group(table.storage.names(partition), ids)

    return held_by_replaced_files(timeline, leaving, kept, on_disk)
