"""Key groups and the labels that spread them over Spark's partitions."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from tagstream.state.key_crc import state_key_groups
from tagstream.state.layout import balanced_labels, key_group, shuffle_partition, spark_hash_int

# From Spark 4.2: SELECT hash(CAST(x AS INT)).
SPARK_HASHES = {-500: -1509134283, -1: -1604776387, 0: 933211791, 1: -559580957, 2: 1765031574, 499: -1850302228}


def test_hash_equals_sparks() -> None:
    assert {x: spark_hash_int(x) for x in SPARK_HASHES} == SPARK_HASHES


@pytest.mark.parametrize("groups,partitions", [(4, 2), (16, 4), (16, 16), (64, 64), (7, 3), (1, 1), (2, 5)])
def test_labels_are_spread_evenly(groups: int, partitions: int) -> None:
    labels = balanced_labels(groups, partitions)
    assert len(set(labels)) == groups
    assert list(labels) == sorted(labels)
    per = Counter(shuffle_partition(label, partitions) for label in labels)
    assert max(per.values()) - min(per.get(p, 0) for p in range(partitions)) <= 1


def test_group_is_the_crc_of_the_key() -> None:
    keys = [b"", b"k0000001", "ä".encode()]
    assert key_group(b"k0000001", 1 << 32) == 3208860165  # SELECT crc32('k0000001') in Spark
    assert state_key_groups(pa.array([b"\0" + key for key in keys], pa.binary()), 7).tolist() == [
        key_group(k, 7) for k in keys
    ]


def test_bad_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        balanced_labels(0, 4)
