"""Which buckets a plan splits, merges and rewrites: for any sizes the plan keeps its limits and its ring is sound."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagstream.table.buckets.hashing_metadata import HashingMetadata
from tagstream.table.buckets.resize import (
    CHILD_NODES,
    PARTITION,
    SEQUENCE_NO,
    ResizeLimits,
    children_of_group,
    plan_resizes,
)
from tagstream.table.errors import CorruptFileError
from tagstream.table.file_group.fs_view import BaseFile, FileSlice
from tagstream.table.keys.consistent_hash import HashRing

T = "20260101000000100"


def slices_of(now: HashingMetadata, sizes: dict[int, int]) -> list[FileSlice]:
    """A slice of this size for these nodes."""
    ids = {number: now.ring.nodes[number].file_id for number in sizes}
    return [
        FileSlice("p", ids[n], T, BaseFile(f"{ids[n]}_0-0-0_{T}.parquet", ids[n], T, size)) for n, size in sizes.items()
    ]


def plan(buckets: int, sizes: dict[int, int], limits: ResizeLimits) -> list[tuple[list[int], list[str]]]:
    """Of each group the numbers of its nodes and the tags of its children."""
    now, numbers = HashingMetadata.first("p", buckets), count()
    found = plan_resizes(now, slices_of(now, sizes), limits, lambda: f"n{next(numbers)}")
    return [
        ([now.ring.by_file_id[each.file_id] for each in one.slices], [str(child.tag) for child in one.children])
        for one in found
    ]


def test_the_largest_are_split_first() -> None:
    limits = ResizeLimits(split_bytes=10, merge_bytes=0, least=1, most=6)
    halves = ["REPLACE", "REPLACE"]
    assert plan(4, {0: 11, 1: 10, 2: 30, 3: 20}, limits) == [([2], halves), ([3], halves)]


def test_neighbours_are_merged_around_the_ring() -> None:
    """First backwards, then forwards, while the size before the next one is small."""
    limits = ResizeLimits(split_bytes=100, merge_bytes=10, least=1, most=9)
    assert plan(5, {0: 4, 1: 50, 2: 3, 3: 50, 4: 5}, limits) == [([4, 0], ["DELETE", "REPLACE"])]
    assert plan(5, dict.fromkeys(range(5), 4), limits) == [
        ([3, 4, 0], ["DELETE", "DELETE", "REPLACE"]), ([1, 2], ["DELETE", "REPLACE"]),
    ]  # fmt: skip


def test_a_bucket_without_rows_is_no_neighbour() -> None:
    limits = ResizeLimits(split_bytes=100, merge_bytes=10, least=1, most=9)
    assert plan(4, {0: 1, 2: 1}, limits) == []


def test_merges_leave_the_least_number() -> None:
    limits = ResizeLimits(split_bytes=100, merge_bytes=100, least=3, most=9)
    assert plan(4, dict.fromkeys(range(4), 1), limits) == [([3, 0], ["DELETE", "REPLACE"])]


@settings(max_examples=300)
@given(
    st.integers(1, 12).flatmap(
        lambda n: st.tuples(st.just(n), st.dictionaries(st.integers(0, n - 1), st.integers(0, 60)))
    ),
    st.integers(0, 60), st.integers(0, 60), st.integers(1, 12), st.integers(1, 20), st.booleans(),
)  # fmt: skip
def test_any_plan_keeps_its_limits(
    of: tuple[int, dict[int, int]], split: int, merge: int, least: int, most: int, everything: bool
) -> None:
    buckets, sizes = of
    limits = ResizeLimits(split, merge, min(least, buckets), max(most, buckets))
    now, numbers = HashingMetadata.first("p", buckets), count()
    slices = slices_of(now, sizes)
    found = plan_resizes(now, slices, limits, lambda: f"n{next(numbers)}", lambda _: everything)
    resized = [each for one in found for each in one.slices]
    assert len({each.file_id for each in resized}) == len(resized)
    assert not everything or len(resized) == len(slices)
    after = HashRing.of(now.ring.nodes, [child for one in found for child in one.children])
    assert limits.least <= len(after.nodes) <= limits.most
    for one in found:
        assert children_of_group(one.to_extra(), "p", "plan") == (0, one.children)
        small = [each.size <= limits.merge_bytes for each in one.slices]
        if len(one.slices) == 1:
            assert one.outputs == 1 or one.slices[0].size > limits.split_bytes
        else:
            assert all(small) and one.outputs == 1
    kept = {node for node in now.ring.nodes if node.file_id not in {each.file_id for each in resized}}
    assert kept <= set(after.nodes)
    new = {node.file_id for node in after.nodes} - {node.file_id for node in now.ring.nodes}
    assert len(new) == sum(one.outputs for one in found)


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {PARTITION: "q", SEQUENCE_NO: "0", CHILD_NODES: "[]"},
        {PARTITION: "p", SEQUENCE_NO: "x", CHILD_NODES: "[]"},
        {PARTITION: "p", SEQUENCE_NO: "0", CHILD_NODES: "[]"},
        {PARTITION: "p", SEQUENCE_NO: "0", CHILD_NODES: '[{"value": 1, "fileIdPrefix": "a", "tag": "NORMAL"}]'},
        {PARTITION: "p", SEQUENCE_NO: "0", CHILD_NODES: '[{"value": 1, "fileIdPrefix": null, "tag": "DELETE"}]'},
        {PARTITION: "p", SEQUENCE_NO: "0", CHILD_NODES: '[{"value": 1, "fileIdPrefix": "../a", "tag": "REPLACE"}]'},
    ],
)
def test_groups_that_are_no_resizes(extra: dict[str, str]) -> None:
    with pytest.raises(CorruptFileError, match="plan"):
        children_of_group(extra, "p", "the plan")
