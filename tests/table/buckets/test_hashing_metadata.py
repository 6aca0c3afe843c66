"""Which file of a partition's rings counts, its markers, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tagstream.table.buckets.hashing_metadata import (
    FIRST_INSTANT,
    HASHING_FOLDER,
    HashingMetadata,
    begin_ring,
    load_ring,
    load_rings,
    mark_completed,
    nodes_from_json,
    nodes_to_json,
    remove_rings,
    ring_before,
    write_resized,
)
from tagstream.table.errors import CorruptFileError, ForeignCommitError, InstantConflictError
from tagstream.table.keys.consistent_hash import HashingNode, NodeTag
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import MERGE_ON_READ
from tests.support import rings
from tests.table.buckets.case import RESIZED, hudis_table
from tests.table.writer import Writer, row


@pytest.fixture
def table(tmp_path: Path) -> HoodieTable:
    """With a completed write, and a first ring of two nodes in ``p0``."""
    writer = Writer.create(tmp_path, MERGE_ON_READ)
    writer.write([row(1, "p0", 1)])
    begin_ring(writer.table, "p0", 2)
    return writer.table


def names(table: HoodieTable, partition: str = "p0") -> list[str]:
    return list(table.storage.names(f"{HASHING_FOLDER}/{partition}"))


def resize(table: HoodieTable, instant: str) -> None:
    halves = HashingMetadata.first("p0", 2).ring.split(0, ("aa", "bb"))
    assert halves is not None
    write_resized(table, table.timeline(), instant, {"p0": (0, halves)})


def test_a_table_that_real_hudi_resized(tmp_path: Path) -> None:
    table = hudis_table(tmp_path)
    found = load_rings(table, table.timeline(), marks=True)
    assert sorted(found) == ["p0", "p1"]
    judged = rings.rings(Path(table.base_path))
    for partition, metadata in found.items():
        assert (metadata.num_buckets, metadata.seq_no) == (4, 1)
        assert tuple((n.value, n.file_id_prefix) for n in metadata.ring.nodes) == judged[partition].nodes
        assert metadata.to_bytes() == table.storage.read(metadata.path)
        first = HashingMetadata.first(partition, 4)
        assert first.to_bytes() == table.storage.read(first.path)
    assert rings.misplaced(Path(table.base_path)) == (120 + 5, [])  # the split's base files, and the logs after it


def test_the_resize_of_a_pending_clustering_does_not_count(table: HoodieTable) -> None:
    resize(table, RESIZED)
    before = names(table)
    found = load_ring(table, table.timeline(), "p0", marks=True)
    assert found == HashingMetadata.first("p0", 2) and names(table) == before


@pytest.mark.table_versions(6, 9)
def test_a_completed_clustering_counts_and_gets_its_marker_once(version: int, table: HoodieTable) -> None:
    (instant,) = (i.time for i in table.timeline().completed_writes)
    resize(table, instant)
    timeline = table.timeline()
    assert (found := load_ring(table, timeline, "p0", marks=False)) is not None and found.seq_no == 1
    assert not [name for name in names(table) if name.endswith(".commit")]
    assert load_ring(table, timeline, "p0", marks=True) == found
    marked = [name for name in names(table) if name.endswith(".commit")]
    assert marked == ([f"{FIRST_INSTANT}.commit", f"{instant}.commit"] if version == 9 else [])
    assert load_ring(table, timeline, "p0", marks=True) == found
    mark_completed(table, instant, ["p0"])
    # A later file of an instant that nobody has completed does not count.
    (Path(table.base_path) / HASHING_FOLDER / "p0/29990101000000000.hashing_meta").write_bytes(b"{")
    assert load_ring(table, timeline, "p0", marks=True) == found
    assert load_rings(table, timeline, marks=True) == {"p0": found}


def test_a_marker_counts_without_the_instant(table: HoodieTable) -> None:
    """As after its archiving."""
    resize(table, "20200101000000000")
    (Path(table.base_path) / HASHING_FOLDER / "p0/20200101000000000.commit").write_bytes(b"")
    found = load_ring(table, table.timeline(), "p0", marks=True)
    assert found is not None and found.seq_no == 1


def test_a_file_that_a_rollback_left_does_not_count(table: HoodieTable) -> None:
    """Its time is before the active timeline's start, but no base file is of its new nodes."""
    resize(table, "20200101000000000")
    assert load_ring(table, table.timeline(), "p0", marks=True) == HashingMetadata.first("p0", 2)
    base = Path(table.base_path) / "p0/aa-0_0-0-0_20200101000000000.parquet"
    base.write_bytes(b"")
    found = load_ring(table, table.timeline(), "p0", marks=True)
    assert found is not None and found.seq_no == 1


def test_a_rollback_removes_the_file_and_its_marker(table: HoodieTable) -> None:
    resize(table, RESIZED)
    mark_completed(table, RESIZED, ["p0"])
    remove_rings(table, RESIZED)
    assert names(table) == [f"{FIRST_INSTANT}.hashing_meta"]
    remove_rings(table, FIRST_INSTANT)
    assert names(table) == [f"{FIRST_INSTANT}.hashing_meta"]


def test_two_writers_make_the_same_first_ring(table: HoodieTable) -> None:
    begin_ring(table, "p0", 2)
    with pytest.raises(ForeignCommitError, match="with 2 buckets .* while a batch used 3"):
        begin_ring(table, "p0", 3)


def test_a_plan_for_an_older_ring_is_not_completed(table: HoodieTable) -> None:
    (instant,) = (i.time for i in table.timeline().completed_writes)
    resize(table, instant)
    with pytest.raises(InstantConflictError, match="after 0 resizes of partition 'p0', which has had 1"):
        ring_before(table, table.timeline(), "p0", 0)
    with pytest.raises(InstantConflictError, match="has no ring"):
        ring_before(table, table.timeline(), "p9", 0)


def edited(name: str, value: object) -> Callable[[dict[str, object]], None]:
    return lambda content: content.update({name: value})


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (edited("partitionPath", "../p1"), "are not those of its place"),
        (edited("version", 1), "are not those of its place"),
        (edited("instant", RESIZED), "are not those of its place"),
        (edited("nodes", []), "has no nodes"),
        (edited("seqNo", -1), "no usable number"),
        (edited("numBuckets", "2"), "no usable number"),
        (edited("nodes", [{"value": 5, "fileIdPrefix": "../../x", "tag": "NORMAL"}]), "not a node"),
        (edited("nodes", [{"value": 2**31, "fileIdPrefix": "x", "tag": "NORMAL"}]), "not a node"),
        (edited("nodes", [{"value": True, "fileIdPrefix": "x", "tag": "NORMAL"}]), "not a node"),
        (edited("nodes", [{"value": 5, "fileIdPrefix": "x", "tag": "OTHER"}]), "not a node"),
        (edited("nodes", [{"value": 5, "fileIdPrefix": None, "tag": "DELETE"}]), "nodes of a plan"),
        (edited("nodes", [{"value": 5, "fileIdPrefix": c, "tag": "NORMAL"} for c in "xy"]), "two nodes of one value"),
    ],
)
def test_a_file_that_is_not_hudis(table: HoodieTable, edit: Callable[[dict[str, object]], None], message: str) -> None:
    rel = HashingMetadata.first("p0", 2).path
    content = json.loads(table.storage.read(rel))
    edit(content)
    table.storage.replace(rel, json.dumps(content).encode())
    with pytest.raises(CorruptFileError, match=message):
        load_rings(table, table.timeline(), marks=False)


def test_names_of_partitions_are_escaped_as_by_jackson() -> None:
    metadata = HashingMetadata.first('a"\\\t\x1f\x7fü/日', 1)
    text = metadata.to_bytes().decode()
    assert '"partitionPath" : "a\\"\\\\\\t\\u001F\x7fü/日"' in text
    assert json.loads(text)["partitionPath"] == metadata.partition_path


def test_nodes_of_a_plan() -> None:
    nodes = (HashingNode(5, None, NodeTag.DELETE), HashingNode(9, "a-b", NodeTag.REPLACE))
    text = nodes_to_json(nodes)
    assert text.startswith('[ {\n  "value" : 5,\n  "fileIdPrefix" : null,\n  "tag" : "DELETE"\n}, {\n')
    assert nodes_from_json(text, "x") == nodes
    with pytest.raises(CorruptFileError, match="plan has no nodes"):
        nodes_from_json("nonsense", "plan")
