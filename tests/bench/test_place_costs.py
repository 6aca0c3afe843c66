"""Places that no record uses any more, on a small key group: they are gone with the first snapshot."""

from __future__ import annotations

from pathlib import Path

from bench.place_costs import measure


def test_a_small_key_group(tmp_path: Path) -> None:
    found = measure(keys=600, places=600, used=30, batches=22, records=20, folder=str(tmp_path))
    assert [one["places"] for one in found] == [600, 630, 30]
    assert {one["keys"] for one in found} == {600}
    assert found[-1]["local"] < found[0]["local"] / 2
    assert 0 < found[-1]["snapshot"] < 2 * found[-1]["local"]
