"""What each partition of a metadata table is told of a change, by file group."""

from __future__ import annotations

import decimal
from dataclasses import replace

import pyarrow as pa
import pytest

from tagstream.table.metadata.changes import Changes, PartitionChange, WrittenFile, entries, newest_places
from tagstream.table.metadata.column_ranges import ColumnRange
from tagstream.table.metadata.metadata_writer import Forms
from tagstream.table.metadata.record_encoding import PLACES, file_avro_json
from tagstream.table.metadata.records import decode
from tests.table.metadata.case import gone_keys

BASE = WrittenFile("a_0_1.parquet", 5)


def places(*rows: tuple[str, str]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"record_key": key, "partition_path": "p", "file_id": file_id, "instant_ms": 1} for key, file_id in rows],
        PLACES,
    )


@pytest.mark.parametrize("partition", ["column_stats", "partition_stats", "bloom_filters"])
def test_what_lacks_is_named(partition: str) -> None:
    changes = Changes({"p": PartitionChange((BASE,))})
    with pytest.raises(ValueError, match=r"of a_0_1.parquet in 'p' (is|are) missing in the changes"):
        list(entries(changes, partition, 2, "1", Forms.of(9)))


def test_statistics_of_a_table_that_hudi_brought_to_version_9_keep_their_form() -> None:
    ranges = {"day": ColumnRange("date", 20454, 20553, 3, 0), "price": ColumnRange("decimal(12,3)", 2, 99102, 3, 0)}
    changes = Changes({"p": PartitionChange((replace(BASE, ranges=ranges),))})
    for partition in ("column_stats", "partition_stats"):
        (group,) = entries(changes, partition, 1, "1", Forms(9, 8, 9))
        told = [each["ColumnStatsMetadata"] for each in decode(group.values.to_pylist(), file_avro_json(9), "")]
        found = {each["columnName"]: (each["minValue"], each["valueType"]) for each in told}
        package = "org.apache.hudi.avro.model."
        assert found["day"] == ((f"{package}DateWrapper", {"value": 20454}), None)
        assert found["price"] == ((f"{package}DecimalWrapper", {"value": decimal.Decimal("0.002")}), None)


def test_a_key_cannot_be_put_and_deleted() -> None:
    changes = Changes(places=[places(("a", "x"))], deleted_keys=[gone_keys(("b", "p"), ("a", "p"))])
    with pytest.raises(ValueError, match="key a is put and deleted"):
        list(entries(changes, "record_index", 2, "1", Forms.of(9)))


def test_of_a_key_that_is_put_twice_the_last_counts() -> None:
    found = newest_places(
        pa.concat_tables([places(("b", "x"), ("a", "x"), ("b", "y")), places(("é", "x"), ("a", "z"))])
    )
    rows = [(row["record_key"], row["file_id"]) for row in found.to_pylist()]
    assert rows == [("a", "z"), ("b", "y"), ("é", "x")]
    assert newest_places(PLACES.empty_table()).num_rows == 0


def test_groups_without_entries_are_left_out() -> None:
    changes = Changes(places=[places(("a", "x"))], deleted_keys=[gone_keys(("a1", "p"), ("a2", "p"), ("a2", "p"))])
    found = list(entries(changes, "record_index", 10_000, "1", Forms.of(9)))
    assert sorted(len(group) for group in found) == [1, 1, 1]
    assert not list(entries(Changes(), "record_index", 3, "1", Forms.of(9)))
    assert not list(entries(Changes(), "files", 1, "1", Forms.of(9)))


@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_partition_that_goes_as_a_whole_is_taken_off_the_list(version: int) -> None:
    (group,) = entries(
        Changes({"p": PartitionChange(deleted=("x",))}, deleted_partitions=("p",)), "files", 1, "1", Forms.of(version)
    )
    assert (group.keys.to_pylist(), group.deleted.to_pylist()) == ([b"__all_partitions__", b"p"], [])


def test_deleted_files_lose_their_statistics() -> None:
    changes = Changes({"p": PartitionChange(deleted=("a_0_1.parquet", ".b_1.log.1_0-0-0"))}, columns=["x", "y"])
    by_version = {}
    for version in (6, 9):
        for partition in ("column_stats", "bloom_filters"):
            groups = list(entries(changes, partition, 1, "1", Forms.of(version)))
            by_version[version, partition] = [(len(group.keys), len(group.deleted)) for group in groups]
    assert by_version == {
        (6, "column_stats"): [(4, 0)], (9, "column_stats"): [(0, 4)],
        (6, "bloom_filters"): [(1, 0)], (9, "bloom_filters"): [(0, 1)],
    }  # fmt: skip


@pytest.mark.parametrize("written", [True, False])
def test_the_ranges_of_older_files_widen_a_partitions(written: bool) -> None:
    """Also where the commit itself writes to another partition."""
    own = {"ver": ColumnRange("long", 7, 8, 2, 0)}
    older = [{"ver": ColumnRange("long", 1, 3, 3, 1)}, {"ver": ColumnRange("long", 9, 9, 1, 0)}]
    change = PartitionChange((replace(BASE, ranges=own),))
    changes = Changes({"p" if written else "q": change}, older_ranges={"p": older})
    (group,) = entries(changes, "partition_stats", 1, "1", Forms.of(9))
    told = [each["ColumnStatsMetadata"] for each in decode(group.values.to_pylist(), file_avro_json(9), "")]
    found = {each["fileName"]: (each["minValue"][1], each["maxValue"][1], each["nullCount"]) for each in told}
    assert found["p"] == ({"value": 1}, {"value": 9}, 1)
    assert ("q" in found) is not written
