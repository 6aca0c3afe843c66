"""The writer of tests on a table with consistent hashing; buckets are found without the product's rings."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from tagstream.table.buckets.hashing_metadata import begin_ring
from tagstream.table.meta_client.table_config import MERGE_ON_READ
from tagstream.table.services.clustering_options import ClusteringOptions, ResizeOptions
from tests.support import rings
from tests.table.services.compaction_compacting import groups
from tests.table.writer import Row, Writer, row

# With base files of a few kilobytes: every bucket is split, or all neighbours are merged.
SPLIT = ClusteringOptions(max_commits=1, resize=ResizeOptions(most=64, split_threshold=1e-6, merge_threshold=0.0))
MERGE = ClusteringOptions(max_commits=1, resize=ResizeOptions(least=1, split_threshold=9.0, merge_threshold=9.0))


class RingWriter(Writer):
    """New partitions get two buckets."""

    @staticmethod
    def of(folder: Path, *, metadata: bool = False) -> RingWriter:
        """An empty table; with a metadata table, if one is asked for."""
        from tests.support.table_version import table_version
        from tests.table.metadata.case import Case  # which is made of a writer

        made = (
            Case.create(folder, MERGE_ON_READ, table_version()).writer
            if metadata
            else Writer.without_metadata(folder, MERGE_ON_READ)
        )
        made.__class__ = RingWriter  # a metadata table's case knows this very object
        assert isinstance(made, RingWriter)
        return made

    @property
    def path(self) -> Path:
        return Path(self.table.base_path)

    def locate(self, row: Row) -> tuple[str, str]:
        partition = row["part"]
        if partition not in rings.rings(self.path):
            begin_ring(self.table, partition, 2)
        return partition, f"{rings.rings(self.path)[partition].prefix(row['id'])}-0"

    def fill(self, partitions: int = 2) -> RingWriter:
        """Base files, logs, updates, deletes and moves."""
        self.with_options(inserts_to_base_files=True)
        self.write([row(key, f"p{key % partitions}", 1) for key in range(40)])
        self.with_options(inserts_to_base_files=False)
        self.write([row(key, f"p{key % partitions}", 2, "updated") for key in range(0, 40, 3)])
        self.write([row(key, f"p{partitions}", 3) for key in range(36, 60)], ["k1", "k6"])
        return self

    def learn(self) -> None:
        """The rows are in other file groups now."""
        self.where = groups(self.table)

    def judge(self, seq_no: int, nodes: Collection[int]) -> None:
        """Every record is in its bucket; all partitions were resized so often and have one of these numbers of buckets."""
        count, wrong = rings.misplaced(self.path)
        assert count >= len(self.live) and not wrong
        found = rings.rings(self.path).values()
        assert {ring.seq_no for ring in found} == {seq_no} and {len(ring.nodes) for ring in found} <= set(nodes)


def sorted_by(options: ClusteringOptions, *columns: str) -> ClusteringOptions:
    """The options with sort columns."""
    return replace(options, sort_columns=columns)
