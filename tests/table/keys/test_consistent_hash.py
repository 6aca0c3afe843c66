"""Rings of consistent hashing: what the real classes of Hudi 1.2.0 computed, and what holds for any splits and merges."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from tagstream.table.buckets.hashing_metadata import HashingMetadata
from tagstream.table.keys.consistent_hash import HASH_MASK, HashingNode, HashRing, NodeTag, hashes_of, xxhash32
from tagstream.table.keys.hash_fields import HashFields
from tests.support import paths

LINES = (paths.VECTORS / "consistent-hashing.jsonl").read_text("utf-8").splitlines()
VECTORS: list[dict[str, Any]] = [json.loads(line) for line in LINES]


def having(name: str) -> list[dict[str, Any]]:
    return [vector for vector in VECTORS if name in vector and not (name == "partition" and "bytes" not in vector)]


def test_hashes_of_the_real_class() -> None:
    vectors = having("xxh32")
    assert len(vectors) == 10
    found = xxhash32(pa.array([vector["xxh32"] for vector in vectors])).view(np.int32)
    assert found.tolist() == [vector["hash"] for vector in vectors]


def test_the_first_rings_byte_for_byte() -> None:
    vectors = having("bytes")
    assert len(vectors) == 4
    for vector in vectors:
        found = HashingMetadata.first(vector["partition"], vector["buckets"])
        assert found.path.endswith(f"/{vector['file']}")
        # Of the ring with 256 nodes the vector has the number of bytes.
        wanted = vector["bytes"]
        assert (str(len(found.to_bytes())) if wanted.isdecimal() else found.to_bytes().decode()) == wanted


def test_nodes_of_keys_and_splits() -> None:
    keys = having("key")
    assert len(keys) == 20
    for vector in keys:
        ring = HashRing.first(vector["partition"], vector["buckets"])
        fields = tuple(vector["fields"].split(","))
        (at,) = ring.positions(hashes_of(pa.array([vector["key"]]), HashFields(fields, fields)))
        assert (ring.nodes[at].value, ring.nodes[at].file_id_prefix) == (vector["node"], vector["prefix"])
    splits = having("split")
    rings = {ring.nodes[0].file_id_prefix: ring for v in having("bytes")
             for ring in [HashRing.first(v["partition"], v["buckets"])]}  # fmt: skip
    assert len(splits) == 3
    for vector in splits:
        halves = rings[vector["split"]].split(0, ("a", "b"))
        assert halves is not None and halves[0].value == vector["into"] and halves[1].value == vector["node"]


@given(st.lists(st.text(max_size=70)), st.integers(0, 5))
def test_any_texts_hash_as_by_the_package(texts: list[str], first: int) -> None:
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    column = pa.array(texts, pa.string()).slice(first)
    assert xxhash32(column).tolist() == [xxhash.xxh32_intdigest(text.encode()) for text in texts[first:]]


def test_several_fields_are_joined_and_a_null_is_the_text() -> None:
    fields = HashFields(("a", "b", "c"), ("a", "c"))
    keys = pa.array(["a:1,b:2,c:3", "a:__null__,b:2,c:x", "a:__empty__,b:2,c:y", "a:p:q,b:2,c:r"])
    wanted = [xxhash.xxh32_intdigest(text) & HASH_MASK for text in (b"13", b"nullx", b"y", b"p:qr")]
    assert hashes_of(keys, fields).tolist() == wanted


@settings(max_examples=150)
@given(st.integers(1, 6), st.integers(0, 2**32), st.integers(1, 12))
def test_any_splits_and_merges_move_the_keys_of_their_nodes_alone(buckets: int, seed: int, steps: int) -> None:
    """After each resize a key is in a new node if its node was resized, else in the node it was in."""
    random = Random(seed)
    hashes = np.array([random.randint(0, HASH_MASK) for _ in range(300)], np.int32)
    ring, made = HashRing.first("p", buckets), 0
    for _ in range(steps):
        taken: set[int] = set()
        children: list[HashingNode] = []
        for number in random.sample(range(len(ring.nodes)), random.randint(1, len(ring.nodes))):
            made += 2
            length = random.randint(2, 4)
            run = [(number + n) % len(ring.nodes) for n in range(length)]
            if random.random() < 0.5 and length <= len(ring.nodes) and not taken & set(run):
                children += ring.merge(run, f"m{made}")
                taken |= set(run)
            elif number not in taken and (halves := ring.split(number, (f"s{made}", f"s{made + 1}"))) is not None:
                children += halves
                taken.add(number)
        after = HashRing.of(ring.nodes, children)
        values = [node.value for node in after.nodes]
        assert values == sorted(set(values))
        assert len(values) == len(ring.nodes) + sum(
            {NodeTag.DELETE: -1, NodeTag.REPLACE: int(child.value not in {n.value for n in ring.nodes})}[child.tag]
            for child in children
        )
        new = {child.file_id for child in children if child.tag is NodeTag.REPLACE}
        old_at, new_at = ring.positions(hashes), after.positions(hashes)
        for old, at in zip(old_at.tolist(), new_at.tolist(), strict=True):
            moved = after.nodes[at].file_id in new
            assert moved is (old in taken)
            assert moved or after.nodes[at] == ring.nodes[old]
        ring = after


def test_what_a_ring_cannot_have() -> None:
    ring = HashRing.first("p", 3)
    with pytest.raises(ValueError, match="not neighbours"):
        ring.merge([0, 2, 1], "x")
    with pytest.raises(ValueError, match="not neighbours"):
        ring.merge([1], "x")
    with pytest.raises(ValueError, match="cannot have the node 5"):
        HashRing.of(ring.nodes, [HashingNode(5, None, NodeTag.DELETE)])
    with pytest.raises(ValueError, match="at least one node"):
        HashRing.of([])
    one = HashRing.of([HashingNode(1, "a"), HashingNode(2, "b")])
    assert one.split(1, ("x", "y")) is None
    assert HashRing.of([HashingNode(HASH_MASK, "a")]).split(0, ("x", "y")) is not None
