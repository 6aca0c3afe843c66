"""Tables that tests cluster, and what must be the same of them before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.clustering import ClusteringResult, cluster
from tagstream.table.services.clustering_options import ClusteringOptions
from tagstream.table.services.clustering_plan import schedule_clustering
from tagstream.table.timeline.instant import CLUSTERING, REPLACE_COMMIT, Instant
from tests.support.table_version import table_version
from tests.table.metadata.case import Case
from tests.table.services.compaction_compacting import clock, groups, sound
from tests.table.writer import Writer, row

ALL = ClusteringOptions(max_commits=1)


def made(folder: Path, table_type: str, metadata: bool = False) -> Writer:
    """An empty table, with a metadata table of every partition of its version or without one."""
    kept = Case.create(folder, table_type, table_version()).writer if metadata else None
    writer = kept or Writer.without_metadata(folder, table_type)
    writer.groups = 3
    return writer


def fill(writer: Writer) -> Writer:
    """Several small file groups a partition, with updates, deletes and moves; some have logs on merge-on-read."""
    on_read = writer.table.config.is_merge_on_read
    writer.with_options(inserts_to_base_files=True)
    writer.write([row(key, f"p{key % 2}", 1) for key in range(24)])
    writer.with_options(inserts_to_base_files=not on_read)
    writer.write([row(key, f"p{key % 2}", 2, "updated") for key in range(0, 24, 3)])
    writer.write([row(key, "p2", 3) for key in range(20, 30)], ["k1", "k6"])
    return writer


def pending(table: HoodieTable) -> Sequence[Instant]:
    return [i for i in table.timeline().pending if i.action in (CLUSTERING, REPLACE_COMMIT)]


def plan_and_cluster(writer: Writer, options: ClusteringOptions = ALL, **more: Any) -> ClusteringResult:
    tick = clock(writer)
    instant = schedule_clustering(writer.table, replace(options, **more), tick, force=True)
    assert instant is not None
    return cluster(writer.table, instant, tick)


def learn(writer: Writer) -> None:
    """The rows are elsewhere now, and the groups they were in must get no more."""
    writer.era += 1
    writer.where = groups(writer.table)


def check(writer: Writer) -> None:
    """As :func:`sound`; and what the old groups held is nowhere else."""
    sound(writer)
    replaced = writer.table.timeline().replaced
    assert not {*groups(writer.table).values()} & {*replaced}
