"""The properties of a table in each version: what was written for one is what the other's readers understand the same
way."""

from __future__ import annotations

import itertools

import pytest

from tagstream.table.meta_client.properties import new_properties
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ, MergeMode, TableConfig
from tagstream.table.services.upgrade import properties_of_version

VERSIONS = (6, 8, 9)
PAYLOADS = "org.apache.hudi.common.model."
CONFIGS = [
    TableConfig("t", kind, keys, parts, ordering, merge_mode=mode, hive_style=hive)
    for kind, (keys, parts), (ordering, mode), hive in itertools.product(
        (COPY_ON_WRITE, MERGE_ON_READ),
        [(("id",), ("day",)), (("id",), ()), (("a", "b"), ("x", "y"))],
        [(("ver",), MergeMode.EVENT_TIME), (("ver",), MergeMode.COMMIT_TIME), ((), MergeMode.COMMIT_TIME)],
        (False, True),
    )
]


def meaning(properties: dict[str, str]) -> TableConfig:
    """What the properties say, but for the version and how it is said."""
    found = TableConfig.from_properties(properties)
    return TableConfig(
        found.name, found.table_type, found.record_key_fields, found.partition_fields, found.ordering_fields,
        found.database, 0, found.key_generator, found.hive_style, found.url_encode,
        MergeMode.EVENT_TIME if found.is_event_time else MergeMode.COMMIT_TIME, found.timezone_utc,
    )  # fmt: skip


@pytest.mark.parametrize("start", VERSIONS)
def test_every_way_says_the_same_of_the_table(start: int) -> None:
    for config in CONFIGS:
        properties = new_properties(TableConfig(**{**config.__dict__, "version": start}))
        for way in itertools.permutations(VERSIONS, 3):
            found = properties
            for to in way:
                found = properties_of_version(found, to)
                assert found["hoodie.table.version"] == str(to)
                assert found["hoodie.timeline.layout.version"] == ("1" if to == 6 else "2")
                assert meaning(found) == meaning(properties)
                assert found["hoodie.table.checksum"] == properties["hoodie.table.checksum"]
            # Nothing gathers on the way but the payload class, which version 9 remembers.
            more = properties_of_version(found, start).keys() - properties.keys()
            assert more <= {"hoodie.table.legacy.payload.class", "hoodie.table.keygenerator.class"}


@pytest.mark.parametrize("version", VERSIONS)
def test_keys_of_other_versions_go(version: int) -> None:
    config = TableConfig("t", MERGE_ON_READ, ("id",), ("day",), ("ver",))
    found = properties_of_version(new_properties(config), version)
    assert ("hoodie.record.merge.mode" in found) == (version >= 8)
    assert ("hoodie.record.merge.strategy.id" in found) == (version == 8)
    assert ("hoodie.table.keygenerator.type" in found) == (version >= 8)
    assert ("hoodie.compaction.payload.class" in found) == (version < 9)
    assert ("hoodie.table.precombine.field" in found) == (version < 9)
    assert ("hoodie.table.ordering.fields" in found) == (version == 9)
    down = properties_of_version(found, 6)
    assert down == new_properties(config) | {"hoodie.archivelog.folder": "archived"}


@pytest.mark.parametrize(
    ("kind", "payload", "ordering", "mode"),
    [
        (MERGE_ON_READ, "OverwriteWithLatestAvroPayload", "ver", "COMMIT_TIME_ORDERING"),
        (COPY_ON_WRITE, "EventTimeAvroPayload", "ver", "EVENT_TIME_ORDERING"),
        (COPY_ON_WRITE, "DefaultHoodieRecordPayload", "", "EVENT_TIME_ORDERING"),
        (MERGE_ON_READ, "", "", "COMMIT_TIME_ORDERING"),
    ],
)
def test_rows_merge_as_before(kind: str, payload: str, ordering: str, mode: str) -> None:
    properties = {
        "hoodie.table.name": "t", "hoodie.table.version": "6", "hoodie.table.type": kind,
        "hoodie.table.recordkey.fields": "id",
        **({"hoodie.compaction.payload.class": PAYLOADS + payload} if payload else {}),
        **({"hoodie.table.precombine.field": ordering} if ordering else {}),
    }  # fmt: skip
    for to in (8, 9):
        found = properties_of_version(properties, to)
        assert found["hoodie.record.merge.mode"] == mode
        assert TableConfig.from_properties(found).is_event_time == TableConfig.from_properties(properties).is_event_time


def test_other_properties_are_kept() -> None:
    config = TableConfig("t", COPY_ON_WRITE, ("id",), ("day",), ("ver",))
    properties = {**new_properties(config), "hoodie.table.create.schema": "{}", "my.own": "é"}
    for to in (8, 9):
        found = properties_of_version(properties, to)
        assert found["my.own"] == "é"
        assert found["hoodie.table.create.schema"] == "{}"


def test_kinds_behind_partition_fields_are_of_versions_from_8_on() -> None:
    config = TableConfig("t", COPY_ON_WRITE, ("id",), ("day",), ("ver",), version=9)
    properties = {**new_properties(config), "hoodie.table.partition.fields": "day:SIMPLE,at:TIMESTAMP"}
    assert properties_of_version(properties, 8)["hoodie.table.partition.fields"] == "day:SIMPLE,at:TIMESTAMP"
    assert properties_of_version(properties, 6)["hoodie.table.partition.fields"] == "day,at"
