"""BUCKET with the consistent hashing engine: a partition's ring gives a key's file group (merge-on-read only).

A partition that is new has a ring that every writer can compute, so the tasks of a batch need no common place to make it.
Its file is written before the batch is committed. Only a clustering changes a ring; then all its keys move to new file
groups (``table.buckets.resize``), and the rings are read again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tagstream.index.base import TableAsOf
from tagstream.index.bucket import HoodieBucketIndex, hash_fields
from tagstream.table.buckets.hashing_metadata import begin_ring, load_ring, load_rings
from tagstream.table.errors import CorruptFileError, TableConfigMismatchError, UnsupportedTableError
from tagstream.table.file_group.base_file import open_base_file, range_of
from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.keys.consistent_hash import HashRing, hashes_of
from tagstream.table.keys.hash_fields import HashFields
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.timeline.commit_metadata import WriteStatus
from tagstream.table.timeline.timeline import FileGroupId, Timeline

if TYPE_CHECKING:
    from tagstream.index.registry import IndexOptions


@dataclass(frozen=True)
class RingPlaces:
    """The rings by partition path, and the file groups that exist. Sent to the tasks of one batch."""

    hashed: HashFields
    num_buckets: int
    rings: Mapping[str, HashRing]
    known: Mapping[str, frozenset[str]]

    def locate(self, keys: pa.Array, partitions: pa.Array) -> tuple[pa.Array, np.ndarray]:
        """(file id, whether the file group exists) for every key in its partition."""
        encoded = partitions.dictionary_encode()
        numbers, hashes = encoded.indices.to_numpy(), hashes_of(keys, self.hashed)
        file_ids: list[str] = []
        exists: list[bool] = []
        place = np.zeros(len(keys), np.int64)
        # A step for each partition of the batch.
        for number, partition in enumerate(encoded.dictionary.to_pylist()):
            ring = self.rings.get(partition) or HashRing.first(partition, self.num_buckets)
            mine = np.flatnonzero(numbers == number)
            place[mine] = len(file_ids) + ring.positions(hashes[mine])
            known = self.known.get(partition, frozenset())
            file_ids += [node.file_id for node in ring.nodes]
            exists += [node.file_id in known for node in ring.nodes]
        return pa.array(file_ids, pa.string()).take(pa.array(place)), np.array(exists, np.bool_)[place]


@dataclass
class ConsistentBucketIndex(HoodieBucketIndex):
    """``num_buckets``: of the ring of a new partition. ``hashed``: the fields of the record key that are hashed."""

    hashed: HashFields
    num_buckets: int
    _rings: dict[str, HashRing] = field(default_factory=dict, init=False)
    _known: dict[str, frozenset[str]] = field(default_factory=dict, init=False)

    java_classes = ("org.apache.hudi.index.bucket.HoodieSparkConsistentBucketIndex",)

    @classmethod
    def make(cls, options: IndexOptions, record_key_fields: tuple[str, ...]) -> ConsistentBucketIndex:
        """ConfigError for hash fields that are not among the record key's."""
        return cls(hash_fields(options, record_key_fields), options.num_buckets)

    def start(self, look: TableAsOf) -> None:
        """Read the rings, and list the file groups.

        UnsupportedTableError for a copy-on-write table, and where an overwrite has replaced file groups of a ring.
        TableConfigMismatchError for file groups that are not of their partition's ring, and for keys outside of their
        bucket: then other fields were hashed.
        """
        table = look.table
        if not table.config.is_merge_on_read:
            raise UnsupportedTableError(
                f"table {table.config.name} at {table.base_path} is copy-on-write, and consistent hashing is for "
                "merge-on-read tables only, as in Hudi on Spark: set hoodie.index.bucket.engine=SIMPLE"
            )
        self._rings = {path: found.ring for path, found in load_rings(table, look.timeline, marks=True).items()}
        _check_replaced(table, look.timeline, self._rings)
        by_partition: dict[str, list[FileSlice]] = {}
        for file_slice in look.slices():
            by_partition.setdefault(file_slice.partition_path, []).append(file_slice)
        for partition, slices in by_partition.items():
            self._check(table, partition, slices)
        self._known = {path: frozenset(each.file_id for each in slices) for path, slices in by_partition.items()}

    def _check(self, table: HoodieTable, partition: str, slices: Sequence[FileSlice]) -> None:
        # A writer that died after its commit of a new partition may have left it without a file of its ring.
        ring = self._rings.get(partition) or HashRing.first(partition, self.num_buckets)
        wrong = sorted({each.file_id for each in slices} - ring.by_file_id.keys())
        if wrong:
            raise TableConfigMismatchError(
                f"file group {wrong[0]} of partition {partition!r} in {table.base_path} is not a bucket of the "
                f"partition's ring of {len(ring.nodes)} nodes: the table has another index, or its folder "
                ".hoodie/.bucket_index is not the table's; restore the folder, or use the index it was written with"
            )
        newest = max((each for each in slices if each.base_path is not None), key=_age, default=None)
        if newest is not None:
            self._check_keys(table, newest, ring)

    def _check_keys(self, table: HoodieTable, newest: FileSlice, ring: HashRing) -> None:
        assert newest.base_path is not None
        with open_base_file(table.storage, newest.base_path) as file:
            keys = [key for key in range_of(file.metadata) if key is not None]
        found = ring.positions(hashes_of(pa.array(keys, pa.string()), self.hashed)).tolist()
        wrong = [(k, at) for k, at in zip(keys, found, strict=True) if ring.nodes[at].file_id != newest.file_id]
        if wrong:
            raise TableConfigMismatchError(
                f"{table.storage.where(newest.base_path)} has key {wrong[0][0]!r}, which belongs to bucket "
                f"{ring.nodes[wrong[0][1]].file_id} by {','.join(self.hashed.fields)}; set the "
                "hoodie.bucket.index.hash.field the table was written with (and tagstream.bucket.index.key.release for "
                "keys with commas or colons)"
            )

    def places(self, look: TableAsOf, instant: str) -> RingPlaces:  # noqa: ARG002 - ids do not depend on them
        """The rings, for a batch."""
        return RingPlaces(self.hashed, self.num_buckets, self._rings, self._known)

    def in_both(self, groups: frozenset[FileGroupId], others: frozenset[FileGroupId]) -> frozenset[FileGroupId]:
        """The same file groups: every writer makes the same ones for a bucket."""
        return groups & others

    def before_commit(self, table: HoodieTable, partitions: Collection[str]) -> None:
        """Write the rings of new partitions. ForeignCommitError where another writer has made a different one."""
        for partition in sorted(set(partitions) - self._rings.keys()):
            begin_ring(table, partition, self.num_buckets)
            self._rings[partition] = HashRing.first(partition, self.num_buckets)

    def committed(self, statuses: Sequence[WriteStatus]) -> None:
        """Add the file groups that a commit has made."""
        for status in statuses:
            partition, file_id = status.stat.partition_path, status.stat.file_id
            self._known[partition] = self._known.get(partition, frozenset()) | {file_id}

    def clustered(self, table: HoodieTable, written: Sequence[WriteStatus], partitions: Collection[str]) -> bool:
        """Read the rings that a clustering of this process has resized."""
        timeline = table.timeline()
        for partition in partitions:
            found = load_ring(table, timeline, partition, marks=True)
            if found is None:
                raise CorruptFileError(
                    f"the ring of partition {partition!r} of {table.base_path} is gone: restore .hoodie/.bucket_index"
                )
            self._rings[partition] = found.ring
            self._known[partition] = self._known.get(partition, frozenset()) & found.ring.by_file_id.keys()
        self.committed(written)
        return True


def _age(file_slice: FileSlice) -> tuple[str, str]:
    return file_slice.base_instant, file_slice.file_id


def _check_replaced(table: HoodieTable, timeline: Timeline, rings: Mapping[str, HashRing]) -> None:
    """UnsupportedTableError where a file group of a ring was replaced: rows written to it would not be seen."""
    for (partition, file_id), instant in timeline.replaced.items():
        ring = rings.get(partition)
        if ring is not None and file_id in ring.by_file_id:
            raise UnsupportedTableError(
                f"bucket {file_id} of partition {partition!r} of {table.base_path} was replaced by {instant}, an "
                "overwrite or a deletion of the partition, and its ring still has it: rows written to it would not be "
                "read. Write the table with Hudi, or copy it into a new one"
            )
