"""Resizes of the buckets of consistent hashing: which buckets of a partition are split, merged or sorted.

A resize is a clustering with one group for each bucket that is split, for each set of neighbours that is merged, and, with
sort columns, for each other bucket. The group's extra metadata has the new nodes. As in
``BaseConsistentHashingBucketClusteringPlanStrategy`` of Hudi 1.2.0, a bucket is split in two if its slice is larger than
the maximal file size times the split threshold, and it is merged with neighbours while all of them are at most the maximal
file size times the merge threshold. Unlike there, the largest buckets are split first, and buckets are rewritten for their
order only if there are sort columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tagstream.table.buckets.hashing_metadata import (
    Children,
    HashingMetadata,
    nodes_from_json,
    nodes_to_json,
    ring_before,
)
from tagstream.table.errors import CorruptFileError, TableConfigMismatchError, UnsupportedTableError
from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.file_group.names import file_id_of, join, parse_base_file_name
from tagstream.table.keys.consistent_hash import HashingNode, HashRing, NodeTag, hashes_of
from tagstream.table.keys.hash_fields import HashFields
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.timeline.timeline import Timeline

PARTITION: Final = "clustering.group.partition"
CHILD_NODES: Final = "clustering.group.child.node"
SEQUENCE_NO: Final = "clustering.group.sequence.no"


@dataclass(frozen=True)
class ResizeLimits:
    """``split_bytes``: a larger slice is split. ``merge_bytes``: slices of at most this size are merged.

    ``least`` and ``most``: numbers of buckets of a partition that merges and splits keep.
    """

    split_bytes: int
    merge_bytes: int
    least: int
    most: int


@dataclass(frozen=True)
class Resize:
    """One group of a plan: the slices of its buckets, and the nodes that replace them after ``seq_no`` resizes."""

    slices: tuple[FileSlice, ...]
    children: tuple[HashingNode, ...]
    seq_no: int

    @property
    def outputs(self) -> int:
        """The number of new buckets."""
        return sum(child.tag is NodeTag.REPLACE for child in self.children)

    def to_extra(self) -> dict[str, str]:
        """The group's extra metadata."""
        return {
            SEQUENCE_NO: str(self.seq_no),
            CHILD_NODES: nodes_to_json(self.children),
            PARTITION: self.slices[0].partition_path,
        }


def children_of_group(extra: Mapping[str, Any], partition: str, where: str) -> tuple[int, tuple[HashingNode, ...]]:
    """The number of resizes before a plan's group, and its new nodes. CorruptFileError for other extra metadata."""
    seq_no, text = str(extra.get(SEQUENCE_NO)), extra.get(CHILD_NODES)
    if extra.get(PARTITION) != partition or not seq_no.isdecimal() or not isinstance(text, str):
        raise CorruptFileError(f"{where} has a group of partition {partition!r} without its nodes: restore the plan")
    nodes = nodes_from_json(text, where)
    if any(node.tag is NodeTag.NORMAL for node in nodes) or all(node.tag is NodeTag.DELETE for node in nodes):
        raise CorruptFileError(
            f"{where} has a group of partition {partition!r} with nodes of no resize: restore the plan"
        )
    return int(seq_no), nodes


def plan_resizes(
    now: HashingMetadata,
    slices: Iterable[FileSlice],
    limits: ResizeLimits,
    new_prefix: Callable[[], str],
    sorted_too: Callable[[FileSlice], bool] = lambda _: False,
) -> list[Resize]:
    """The resizes of one partition: splits first, then merges of the others, then rewrites.

    ``slices``: of its buckets, without those that another plan has. ``new_prefix`` returns a new prefix of file ids at
    each call. ``sorted_too``: whether a bucket that stays is rewritten.
    """
    by_node = {now.ring.by_file_id[each.file_id]: each for each in slices if each.file_id in now.ring.by_file_id}
    found: list[Resize] = []
    for number in sorted(by_node, key=lambda number: (-by_node[number].size, number)):
        if by_node[number].size <= limits.split_bytes or len(now.ring.nodes) + len(found) >= limits.most:
            break
        nodes = now.ring.split(number, (new_prefix(), new_prefix()))
        if nodes is not None:
            found.append(Resize((by_node[number],), nodes, now.seq_no))
    for resize in found:
        del by_node[now.ring.by_file_id[resize.slices[0].file_id]]
    slots = len(now.ring.nodes) + len(found) - limits.least
    for numbers in _neighbours(now.ring, by_node, limits.merge_bytes, slots):
        merged = tuple(by_node.pop(number) for number in numbers)
        found.append(Resize(merged, now.ring.merge(numbers, new_prefix()), now.seq_no))
    for number, each in sorted(by_node.items()):
        if sorted_too(each):
            node = HashingNode(now.ring.nodes[number].value, new_prefix(), NodeTag.REPLACE)
            found.append(Resize((each,), (node,), now.seq_no))
    return found


def _neighbours(
    ring: HashRing, by_node: Mapping[int, FileSlice], most_bytes: int, slots: int
) -> Iterator[Sequence[int]]:
    """Numbers of small neighbours to merge, in the order of the ring. ``slots``: the number of buckets that may go.

    A set grows backwards and then forwards, as long as its size before the next bucket, and the next bucket, are small.
    """
    small = {number for number, each in by_node.items() if each.size <= most_bytes}
    taken: set[int] = set()
    for number in sorted(small):
        if number in taken:
            continue
        chosen, size = [number], by_node[number].size
        for step in (-1, 1):
            while slots > 0 and size <= most_bytes:
                next_one = (chosen[0 if step < 0 else -1] + step) % len(ring.nodes)
                if next_one not in small or next_one in taken or next_one in chosen:
                    break
                chosen.insert(0 if step < 0 else len(chosen), next_one)
                size += by_node[next_one].size
                slots -= 1
        if len(chosen) > 1:
            taken.update(chosen)
            yield chosen


@dataclass(frozen=True)
class BucketRings:
    """The rings of a partition before and after a plan. Picklable: a task has those of its partition."""

    hashed: HashFields
    before: HashRing
    after: HashRing

    @staticmethod
    def of(table: HoodieTable, timeline: Timeline, resized: Children, hashed: HashFields) -> dict[str, BucketRings]:
        """The rings by partition path. ``resized``: the plan's changes.

        InstantConflictError when a ring was resized since the plan was made, CorruptFileError for nodes it cannot have.
        """
        found = {}
        for partition, (seq_no, children) in resized.items():
            now = ring_before(table, timeline, partition, seq_no)
            try:
                after = HashRing.of(now.ring.nodes, children)
            except ValueError as error:
                raise CorruptFileError(f"a plan for partition {partition!r} of {table.base_path}: {error}") from None
            found[partition] = BucketRings(hashed, now.ring, after)
        return found

    def positions(self, keys: pa.Array, group: Sequence[str], where: str) -> npt.NDArray[np.int64]:
        """The new node of every record key. ``group``: the file ids of the buckets that the keys come from.

        TableConfigMismatchError when a key does not belong to these buckets: then other fields were hashed.
        """
        hashes = hashes_of(keys, self.hashed)
        own = [self.before.by_file_id.get(file_id, -1) for file_id in group]
        wrong = np.flatnonzero(~np.isin(self.before.positions(hashes), own))
        if len(wrong):
            raise TableConfigMismatchError(
                f"key {keys[int(wrong[0])].as_py()!r} of {where} does not belong to its bucket by "
                f"{','.join(self.hashed.fields)}: set the hoodie.bucket.index.hash.field the table was written with (and "
                "tagstream.bucket.index.key.release for keys with commas or colons)"
            )
        return self.after.positions(hashes)


def refuse_written_twice(table: HoodieTable, instant: str, resized: Children) -> None:
    """UnsupportedTableError when the new buckets of the pending resize ``instant`` have files of other instants.

    Hudi's writers with SparkConsistentBucketDuplicateUpdateStrategy write rows to the old and the new buckets. Readers
    would see both after a rollback.
    """
    for partition, (_, nodes) in resized.items():
        new = {node.file_id for node in nodes if node.file_id_prefix is not None}
        for name in table.storage.names(partition):
            base = parse_base_file_name(name)
            if file_id_of(name) in new and (base is None or base.instant != instant):
                raise UnsupportedTableError(
                    f"clustering {instant} of {table.base_path} cannot be rolled back: another writer has written "
                    f"{table.storage.where(join(partition, name))} to one of its new buckets, and the same rows to an old "
                    "one. Complete it with Hudi (run_clustering)"
                )
