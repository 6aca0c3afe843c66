"""A stream keeps the metadata table in step: every version, both table types, moves, deletes, kills and later starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.index_definitions import has_partitioned_index
from tagstream.table.metadata.metadata_table import MetadataTable
from tagstream.table.metadata.record_index import RecordIndex
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table

pytestmark = pytest.mark.spark
TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")
EVENTS = list(ev.generate(600, ev.Mix(keys=120), seed=14))
ALL = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "3",
    "hoodie.metadata.compact.max.delta.commits": "3",
}
PARTITIONS = {"files", "column_stats", "bloom_filters", "record_index"}


def check(case: StreamCase, events: list[ev.Event]) -> HoodieTable:
    """The rows by hudi-rs, the files, and the metadata table against both."""
    table = HoodieTable.open(str(case.table))
    bad = compare(ev.rows(ev.oracle(events).values()), read_table(case.table, meta_columns=False), ["id"])
    assert not bad, bad
    assert validate(table) == []
    assert validate_metadata(table) == []
    return table


@pytest.mark.platform("metadata table", only=("v9",))
@pytest.mark.extended("more kinds of tables", first=("v9-MERGE_ON_READ",))
@pytest.mark.table_versions(6, 9)
@pytest.mark.parametrize("table_type", TYPES)
def test_a_stream_keeps_it_in_step(version: int, table_type: str, tmp_path: Path, spark: SparkSession) -> None:
    case = StreamCase(tmp_path, spark, table_type, conf=ALL)
    ev.write_files(EVENTS, case.source, 100)
    assert len(case.run()) == 6
    table = check(case, EVENTS)
    assert set(table.config.metadata_partitions) == PARTITIONS | ({"partition_stats"} if version >= 8 else set())
    compacted = list((case.table / ".hoodie/metadata").rglob("*.commit"))
    assert compacted, "six commits and a compaction every three"


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.table_versions(6, 8, 9)
def test_groups_begin_with_a_base_file_where_asked_for(version: int, tmp_path: Path, spark: SparkSession) -> None:
    """New records then cost what they cost in logs, and hudi-rs, which ``check`` reads with, sees all of them."""
    conf = ALL | {"tagstream.inserts.to.base.files": "first", "hoodie.datasource.compaction.async.enable": "false"}
    case = StreamCase(tmp_path, spark, "MERGE_ON_READ", conf=conf | {"hoodie.compact.inline": "false"})
    ev.write_files(EVENTS, case.source, 100)
    assert len(case.run()) == 6
    table = check(case, EVENTS)
    slices = [found for part in table.view().partitions() for found in table.view().latest_merged_slices(part)]
    assert all(found.base_file is not None for found in slices)
    inserts = [stat.num_inserts for i in table.timeline().completed_writes
               for stat in table.timeline().metadata(table.storage, i).all_stats() if stat.log_version]  # fmt: skip
    assert sum(inserts) > 0, "the groups took new records into their logs"


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.table_versions(9)
@pytest.mark.parametrize("table_type", TYPES)
def test_it_is_made_of_what_a_table_has(version: int, table_type: str, tmp_path: Path, spark: SparkSession) -> None:
    # hudi-rs passes over file groups without a base file that a metadata table of version 8 or later lists.
    conf = {"hoodie.metadata.enable": "false", "tagstream.inserts.to.base.files": "true"}
    case = StreamCase(tmp_path, spark, table_type, conf=conf)
    ev.write_files(EVENTS[:400], case.source, 100)
    case.run()
    assert not HoodieTable.open(str(case.table)).config.metadata_partitions
    later = StreamCase(tmp_path, spark, table_type, conf={"hoodie.metadata.enable": "true"})
    ev.write_files(EVENTS[400:500], later.source, 100, first=4)
    later.run()
    check(later, EVENTS[:500])
    more = StreamCase(tmp_path, spark, table_type, conf=ALL)
    ev.write_files(EVENTS[500:], more.source, 100, first=5)
    more.run()
    assert set(check(more, EVENTS).config.metadata_partitions) >= PARTITIONS


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.table_versions(9)
@pytest.mark.parametrize("index", ["STATE", "RECORD_LEVEL_INDEX", "INMEMORY"])
def test_a_record_index_by_partition(version: int, index: str, tmp_path: Path, spark: SparkSession) -> None:
    """New partitions get groups of their own; a key that moves leaves one and comes into another."""
    conf = {
        "hoodie.metadata.enable": "true",
        "hoodie.metadata.record.level.index.enable": "true",
        "hoodie.metadata.record.level.index.min.filegroup.count": "2",
        "hoodie.metadata.compact.max.delta.commits": "3",
        "hoodie.index.type": index,
    }
    case = StreamCase(tmp_path, spark, "MERGE_ON_READ", conf=conf)
    live: dict[tuple[str, str], ev.Event] = {}
    for batch in range(6):
        events = [
            ev.Event(f"k{n}", f"p.{(n + batch // 2) % (2 + batch)}", batch * 100 + n, name=str(batch), amount=1.0)
            for n in range(0, 40, 1 + batch % 2)
        ]
        events += [ev.Event(f"k{n}", f"p.{n % 2}", 1, name="first", amount=2.0) for n in range(40, 45) if not batch]
        if batch == 3:
            events = [ev.Event(f"k{n}", f"p.{n % 2}", 999, deleted=True) for n in range(40, 43)]
        ev.write_files(events, case.source, len(events), first=batch)
        for e in events:
            if index != "RECORD_LEVEL_INDEX":  # a global index: what was elsewhere is gone
                live = {(path, key): old for (path, key), old in live.items() if key != e.key}
            live.pop((e.partition or "", e.key), None)
            if not e.deleted:
                live[e.partition or "", e.key] = e
    assert len(case.run()) == 6
    table = HoodieTable.open(str(case.table))
    assert not compare(ev.rows(live.values()), read_table(case.table, meta_columns=False), ["id", "part"])
    assert validate(table) == []
    assert validate_metadata(table) == []
    found = RecordIndex.open(MetadataTable.open(table, table.timeline()))
    assert found is not None
    assert found.is_partitioned
    assert found.shard_counts == {f"p.{n}": 2 for n in range(7)}
    places = {(row["partition_path"], row["record_key"]) for rows in found.scan() for row in rows.to_pylist()}
    assert places == set(live)
    assert list((case.table / ".hoodie/metadata").rglob("*.commit")), "compacted in between"


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.table_versions(9)
def test_the_form_that_is_asked_for_takes_the_place_of_the_other(
    version: int, tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    forms = {"RECORD_LEVEL_INDEX": True, "RECORD_INDEX": False, "STATE": False}
    for n, (index, by_partition) in enumerate([*forms.items(), ("RECORD_LEVEL_INDEX", True)]):
        case = StreamCase(tmp_path, spark, conf={"hoodie.index.type": index})
        events = [ev.Event(f"k{i}", f"p{i % 3}", n, name=index, amount=1.0) for i in range(n, n + 20)]
        ev.write_files(events, case.source, 20, first=n)
        case.run("--checkpoint-dir", str(tmp_path / f"checkpoint-{n}"))
        table = HoodieTable.open(str(case.table))
        assert has_partitioned_index(table.storage) is by_partition, index
        assert validate_metadata(table) == []
        assert ("it is one by partition" in caplog.text) is (index == "RECORD_INDEX")
        caplog.clear()
    assert sorted(read_table(case.table)["id"].to_pylist()) == sorted(f"k{i}" for i in range(23))


def test_an_overwrite_goes_without_a_record_index(tmp_path: Path, spark: SparkSession) -> None:
    """Nobody tells which keys go with the file groups that a batch replaces."""
    conf = {**ALL, "hoodie.index.type": "GLOBAL_SIMPLE"}
    case = StreamCase(tmp_path, spark, conf=conf)
    ev.write_files([ev.Event(f"k{n}", f"p{n % 2}", 1, name="first", amount=1.0) for n in range(20)], case.source, 20)
    case.run()
    assert "record_index" in HoodieTable.open(str(case.table)).config.metadata_partitions
    over = [ev.Event(f"n{n}", "p0", 2, name="second", amount=2.0) for n in range(5)]
    ev.write_files(over, case.source, 5, first=1)
    case.run("--op", "INSERT_OVERWRITE")
    table = HoodieTable.open(str(case.table))
    assert "record_index" not in table.config.metadata_partitions
    assert sorted(read_table(case.table)["id"].to_pylist()) == sorted(
        [e.key for e in over] + [f"k{n}" for n in range(1, 20, 2)]
    )
    assert validate(table) == []
    assert validate_metadata(table) == []
