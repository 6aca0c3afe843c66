"""Each branch of the decisions that ``index advise`` makes, on measures alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tagstream.cli.advise import INDEXES, INMEMORY_KEYS, SIMPLE_BYTES, properties, rank
from tagstream.cli.advise_measures import Measures
from tagstream.table.buckets.hashing_metadata import HASHING_FOLDER
from tagstream.table.meta_client.table_config import COPY_ON_WRITE

# A large table without moves whose keys lie all over, changed in one thing each time.
PLAIN = Measures(
    table_type=COPY_ON_WRITE, ordering_field="ts", partitioned=True, global_keys=True, empty_table=False,
    metadata_partitions=(), bucketed_by=None, bucket_count=None, records=1000, bad=0, deletes=0, keys=1000, duplicates=0,
    key_bytes=8.0, updates=600, inserts=400, moves=0, deletions=0, late=0, unknown_deletes=0, late_records=0, doubled=0,
    keys_twice=0, keys_only_in_logs=0, rising_share=0.5, partitions=10, partitions_touched=10, partitions_new=0,
    file_groups=100, file_groups_touched=100, base_files=100, log_files=0, slices_only_logs=0, own_base_files=100,
    unranged_files=0, files_of_key_mean=100.0, files_of_key_p90=100.0, files_left=100, files_read=100, comparisons=100_000,
    filter_bytes=43_000_000, own_files_left=100, own_files_read=100, own_comparisons=10_000, own_filter_bytes=43_000_000,
    rows=50_000_000, bytes=10**10, log_bytes=0, simple_bytes=SIMPLE_BYTES + 1, global_simple_bytes=SIMPLE_BYTES + 1,
    state_bytes=800_000_000, buckets=17, bucket_skew=1.1,
)  # fmt: skip
MOVING: dict[str, Any] = {"moves": 150, "doubled": 200}


@pytest.mark.parametrize(
    ("change", "fitting"),
    [
        ({}, ["STATE"]),
        ({"simple_bytes": SIMPLE_BYTES}, ["STATE", "SIMPLE"]),
        ({"own_files_left": 20}, ["BLOOM", "STATE"]),
        ({"own_files_left": 21}, ["STATE"]),
        ({"own_files_left": 10, "inserts": 900, "updates": 100}, ["BLOOM", "STATE"]),
        (MOVING, ["STATE"]),
        ({**MOVING, "own_files_left": 1, "simple_bytes": 1}, ["STATE"]),
        ({**MOVING, "files_left": 20}, ["STATE", "GLOBAL_BLOOM"]),
        ({**MOVING, "global_simple_bytes": 1}, ["STATE", "GLOBAL_SIMPLE"]),
        ({**MOVING, "rows": INMEMORY_KEYS}, ["STATE", "INMEMORY"]),
        ({"keys_twice": 3, **MOVING, "simple_bytes": 1, "files_left": 1}, ["STATE", "SIMPLE"]),
        ({"global_keys": False, "own_files_left": 1, "rows": 10}, ["BLOOM", "STATE"]),
        ({"bucketed_by": "00000000-1", "bucket_count": 4, "own_files_left": 1}, ["BUCKET"]),
        ({"bucketed_by": "00000000-1", **MOVING}, ["BUCKET"]),
        ({"bucketed_by": HASHING_FOLDER}, ["BUCKET"]),
        ({"inserts": 900, "updates": 100}, ["STATE"]),
        ({"base_files": 0, "own_files_left": 0, "files_left": 0, "simple_bytes": 1}, ["STATE", "SIMPLE"]),
        ({"metadata_partitions": ("files", "record_index")}, ["STATE"]),
    ],
)
def test_decisions(change: dict[str, Any], fitting: list[str]) -> None:
    measures = replace(PLAIN, **change)
    ranking = rank(measures)
    assert [c.index for c in ranking if c.fits] == fitting
    assert sorted(c.index for c in ranking) == sorted(INDEXES)
    assert all(c.reason for c in ranking)
    first = ranking[0]
    if first.fits:
        assert properties(first, measures)["hoodie.index.type"] == first.index


def test_reasons_have_the_numbers() -> None:
    def reason(name: str, **change: Any) -> str:
        return next(c.reason for c in rank(replace(PLAIN, **change)) if c.index == name)

    assert "200 of 1,000 keys (20%)" in reason("SIMPLE", **MOVING)
    assert "150 keys" in reason("STATE", **MOVING)
    assert "100 of 100 files (100%)" in reason("BLOOM")
    assert "10,000 comparisons" in reason("BLOOM")
    assert "a new table (90% of the keys are inserts, fullest of 17 buckets 1.1 x the mean)" in reason(
        "BUCKET", inserts=900, updates=100
    )
    assert "has record index" in reason("RECORD_INDEX", metadata_partitions=("record_index",))
    tied = rank(replace(PLAIN, global_keys=False))[0]
    assert properties(tied, replace(PLAIN, global_keys=False))["index.global.enabled"] == "false"
    ring = replace(PLAIN, bucketed_by=HASHING_FOLDER)
    assert properties(rank(ring)[0], ring) == {
        "hoodie.index.type": "BUCKET", "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    }  # fmt: skip
    one = replace(PLAIN, bucketed_by="00000000-1", bucket_count=None)
    assert properties(rank(one)[0], one)["hoodie.bucket.index.num.buckets"] == "(as the table was made with)"
