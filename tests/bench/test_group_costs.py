"""The unit costs of a key group, on a small one: sizes that a disk agrees with, and a restore that has every key."""

from __future__ import annotations

from pathlib import Path

from bench.group_costs import KINDS, measure


def test_random_keys_cost_more_than_counted_ones(tmp_path: Path) -> None:
    sizes = {}
    for kind in KINDS:
        found = measure(keys=2_000, records=100, batches=1, partitions=5, folder=str(tmp_path / kind), kind=kind)
        assert found["keys"] == 2_000, "each number has a key of its own"
        sizes[kind] = found["snapshot_bytes_per_key"]
    assert min(sizes["uuid"], sizes["hex"]) > 1.3 * max(sizes["short"], sizes["bigint"], sizes["composite"]), sizes


def test_a_small_key_group(tmp_path: Path) -> None:
    found = measure(keys=3_000, records=200, batches=3, partitions=5, folder=str(tmp_path))
    assert (found["keys"], found["deltas"]) == (3_000, 3)
    deltas = sorted((tmp_path / "durable" / "deltas" / "0").iterdir(), key=lambda path: path.name)
    assert sum(path.stat().st_size for path in deltas[-3:]) == round(found["delta_bytes_per_key"] * 600)
    assert 5 < found["snapshot_bytes_per_key"] < 60
    assert found["restore_keys_per_second"] > 0
