"""Numbers of buckets by partition: by Hudi's own rule engine, and as a table keeps them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from tagstream.table.buckets.partition_rules import RULES_FOLDER, BucketRules, rules_for, rules_of_table
from tagstream.table.errors import ConfigError, CorruptFileError, TableConfigMismatchError, UnsupportedTableError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import MERGE_ON_READ
from tagstream.table.timeline.instant import REPLACE_COMMIT, Instant, State
from tests.support import paths
from tests.table.writer import Writer

LINES = (paths.VECTORS / "consistent-hashing.jsonl").read_text("utf-8").splitlines()
KEPT = {"expressions": "a,3;b.*,5", "defaultBucketNumber": 2, "rule": "regex", "version": 1, "instant": "0" * 14}


@pytest.fixture
def table(tmp_path: Path) -> HoodieTable:
    return Writer.create(tmp_path, MERGE_ON_READ).table


def keep(table: HoodieTable, changes: Mapping[str, object] = MappingProxyType({}), instant: str = "0" * 14) -> None:
    content = {**KEPT, "instant": instant, **changes}
    table.storage.replace(f"{RULES_FOLDER}/{instant}.hashing_config", json.dumps(content).encode())


def test_rules_of_the_real_class() -> None:
    vectors = [vector for vector in map(json.loads, LINES) if "rule" in vector]
    assert len(vectors) == 5
    for vector in vectors:
        assert BucketRules.parse(vector["rule"], -1).buckets(vector["partition"]) == vector["buckets"]


@pytest.mark.parametrize("text", ["a", "a,b", "a,0", "a{1,2},3", "a,-1", "a,100000000", ",;a", "(,3"])
def test_what_is_no_rule(text: str) -> None:
    with pytest.raises(ConfigError, match="hoodie.bucket.index.partition.expressions"):
        BucketRules.parse(text, 2)


def test_the_rules_of_a_table_count(table: HoodieTable) -> None:
    asked = BucketRules.parse("c,9", 2)
    assert rules_of_table(table, table.timeline()) is None
    assert rules_for(table, table.timeline(), asked) == asked
    keep(table)
    kept = BucketRules((("a", 3), ("b.*", 5)), 2)
    timeline = table.timeline()
    assert rules_of_table(table, timeline) == rules_for(table, timeline, BucketRules((), 2)) == kept
    assert rules_for(table, timeline, kept) == kept
    for other in (asked, BucketRules((), 3)):
        with pytest.raises(TableConfigMismatchError, match=r"num.buckets=2, and .*expressions=a,3;b\.\*,5"):
            rules_for(table, timeline, other)


def test_the_rules_of_a_pending_change_do_not_count(table: HoodieTable) -> None:
    keep(table)
    pending = "20260101000000700"
    keep(table, {"expressions": "z,7"}, pending)
    assert rules_of_table(table, table.timeline()) == BucketRules((("z", 7),), 2)
    table.storage.write_new(table.instant_path(Instant(pending, REPLACE_COMMIT, State.REQUESTED)), b"")
    assert rules_of_table(table, table.timeline()) == BucketRules((("a", 3), ("b.*", 5)), 2)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"rule": "other"}, UnsupportedTableError),
        ({"version": 2}, UnsupportedTableError),
        ({"defaultBucketNumber": 0}, CorruptFileError),
        ({"expressions": None}, CorruptFileError),
        ({"expressions": "a"}, CorruptFileError),
    ],
)
def test_rules_that_cannot_be_used(table: HoodieTable, changes: dict[str, object], error: type[Exception]) -> None:
    keep(table, changes)
    with pytest.raises(error, match="hashing_config"):
        rules_of_table(table, table.timeline())
