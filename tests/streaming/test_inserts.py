"""INSERT: every record becomes a row, without a look-up. The rows are compared with the records of the input."""

from __future__ import annotations

import io
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tagstream.bootstrap.errors import IndexCoverageError
from tagstream.streaming.job.dry_run import explain_start
from tagstream.streaming.options.cli import load_options
from tagstream.table.errors import ConfigError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tests.streaming.job.frame_case import FrameCase
from tests.streaming.stream_case import UNSET, StreamCase, now_ms
from tests.support import events as ev
from tests.support.hudi_rs import read_table
from tests.support.table_version import timeline_of

pytestmark = pytest.mark.spark
OPERATION = "hoodie.datasource.write.operation"
PER_FILE = 200
TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")
# Duplicates, moves and late events: each is a row of its own.
EVENTS = list(ev.generate(4 * PER_FILE, ev.Mix(keys=90, partitions=3), seed=5))


def as_rows(events: Iterable[ev.Event]) -> Counter[tuple[Any, ...]]:
    """How often each row must be in a table that every record was appended to. Deletes append nothing."""
    return Counter(tuple(event.row().values()) for event in events if not event.deleted)


def found_rows(table: Path) -> Counter[tuple[Any, ...]]:
    """How often each row is in the table, as hudi-rs reads it."""
    found = read_table(table, meta_columns=False).select(ev.ARROW_SCHEMA.names)
    return Counter(zip(*(column.to_pylist() for column in found.columns), strict=True))


def commits(table: Path) -> list[CommitMetadata]:
    """The commits, oldest first."""
    return [CommitMetadata.from_bytes(p.read_bytes(), str(p)) for p in sorted(timeline_of(table).glob("*.*commit"))]


def insert_case(
    folder: Path, spark: SparkSession, table_type: str, operation: str = "INSERT", **conf: str
) -> StreamCase:
    """A stream that appends; ``conf``: further keys, with ``_`` for ``.``."""
    more = {name.replace("_", "."): value for name, value in conf.items()}
    return StreamCase(folder, spark, table_type, {OPERATION: operation, **more})


@pytest.mark.extended(
    "more kinds of tables and settings",
    first=(
        "v6-COPY_ON_WRITE",
        "v9-MERGE_ON_READ",
    ),
)
@pytest.mark.table_versions(6, 9, also=(8,))
@pytest.mark.parametrize("table_type", TYPES)
def test_every_record_becomes_a_row(tmp_path: Path, spark: SparkSession, version: int, table_type: str) -> None:
    case = insert_case(tmp_path, spark, table_type)
    ev.write_files(EVENTS[: 2 * PER_FILE], case.source, PER_FILE)
    reports = case.run()
    ev.write_files(EVENTS[2 * PER_FILE :], case.source, PER_FILE, first=2)
    reports += case.run()
    assert found_rows(case.table) == as_rows(EVENTS)
    deletes = sum(event.deleted for event in EVENTS)
    assert deletes > 20
    assert sum(report.inserts for report in reports) == len(EVENTS) - deletes
    assert sum(report.unknown_deletes for report in reports) == deletes
    assert [metadata.operation for metadata in commits(case.table)] == ["INSERT"] * 4
    wrong = validate(HoodieTable.open(str(case.table)))
    assert all(" occurs " in text for text in wrong), wrong  # the same key in several rows is what was asked for
    logs = [path for path in case.table.rglob(".*.log.*") if ".hoodie" not in path.relative_to(case.table).parts]
    assert not logs, "rows go to base files"


MODES = ("NONE", "GLOBAL_SORT", "PARTITION_SORT", "PARTITION_PATH_REPARTITION", "PARTITION_PATH_REPARTITION_AND_SORT")


@pytest.mark.extended(
    "more kinds of tables and settings",
    first=(
        "v6-MERGE_ON_READ",
        "v9-COPY_ON_WRITE",
    ),
)
@pytest.mark.table_versions(6, 9, also=(8,))
@pytest.mark.parametrize("table_type", TYPES)
def test_a_bulk_insert_writes_new_files_only(
    tmp_path: Path, spark: SparkSession, version: int, table_type: str
) -> None:
    case = insert_case(tmp_path, spark, table_type, "BULK_INSERT")
    ev.write_files(EVENTS, case.source, PER_FILE)
    case.run()
    assert found_rows(case.table) == as_rows(EVENTS)
    made = commits(case.table)
    assert [metadata.operation for metadata in made] == ["BULK_INSERT"] * 4
    stats = [stat for metadata in made for stats in metadata.stats.values() for stat in stats]
    assert {stat.prev_commit for stat in stats} == {"null"}
    assert len({stat.file_id for stat in stats}) == len(stats)
    wrong = validate(HoodieTable.open(str(case.table)))
    assert all(" occurs " in text for text in wrong), wrong


@pytest.mark.extended(
    "more kinds of tables and settings",
    first=(
        "GLOBAL_SORT",
        "PARTITION_SORT",
    ),
)
@pytest.mark.parametrize("mode", MODES)
def test_the_sort_mode_decides_the_order_of_rows(tmp_path: Path, spark: SparkSession, mode: str) -> None:
    conf = {"hoodie.bulkinsert.sort.mode": mode, "hoodie.bulkinsert.shuffle.parallelism": "3"}
    if mode == "GLOBAL_SORT":
        conf["hoodie.parquet.max.file.size"] = "2000"
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE", {OPERATION: "BULK_INSERT", **conf})
    ev.write_files(EVENTS, case.source, PER_FILE)
    case.run("--source-limit", "1000000000")
    assert found_rows(case.table) == as_rows(EVENTS)
    (made,) = commits(case.table)
    files = [pq.read_table(case.table / stat.path) for stats in made.stats.values() for stat in stats]
    keys = {
        path: [file.column("_hoodie_record_key").to_pylist() for file in files if file["part"][0].as_py() == path]
        for path in made.stats
    }
    if mode in ("GLOBAL_SORT", "PARTITION_SORT"):
        assert all(each == sorted(each) for lists in keys.values() for each in lists)
    if mode == "GLOBAL_SORT":  # no two files of a partition overlap, and there are several
        for lists in keys.values():
            lists.sort()
            assert all(one[-1] <= other[0] for one, other in pairwise(lists))
        assert min(map(len, keys.values())) > 1
    if mode.startswith("PARTITION_PATH"):
        assert len(files) == len(keys)


@pytest.mark.parametrize("operation", ["INSERT", "BULK_INSERT"])
def test_combined_batches_have_one_row_of_a_key(tmp_path: Path, spark: SparkSession, operation: str) -> None:
    case = insert_case(tmp_path, spark, "COPY_ON_WRITE", operation, hoodie_combine_before_insert="true")
    ev.write_files(EVENTS, case.source, PER_FILE)
    case.run()
    expected: Counter[tuple[Any, ...]] = Counter()
    for start in range(0, len(EVENTS), PER_FILE):  # a file is a batch, and no batch sees the rows of another
        expected += as_rows(ev.oracle(EVENTS[start : start + PER_FILE]).values())
    assert found_rows(case.table) == expected
    assert sum(expected.values()) < sum(as_rows(EVENTS).values())


@pytest.mark.parametrize("table_type", TYPES)
def test_without_duplicates_a_small_file_has_one_row_of_a_key(
    tmp_path: Path, spark: SparkSession, table_type: str
) -> None:
    """The first batch makes the file. Of the second, the last record of a key replaces its row, unless that is newer."""
    rng = random.Random(8)
    first = [ev.Event(f"k{i}", "p", 1_000 + i, name="first") for i in range(PER_FILE)]
    second = [ev.Event(f"k{rng.randrange(250)}", "p", rng.randrange(2_000), name=f"n{i}") for i in range(PER_FILE)]
    expected = {event.key: event for event in first}
    for key, event in {event.key: event for event in second}.items():
        if key not in expected or (expected[key].ordering or 0) <= (event.ordering or 0):
            expected[key] = event
    conf = {OPERATION: "INSERT", "hoodie.merge.allow.duplicate.on.inserts": "false"}
    case = StreamCase(tmp_path, spark, table_type, conf)
    ev.write_files([*first, *second], case.source, PER_FILE)
    case.run()
    assert found_rows(case.table) == as_rows(expected.values())
    names = {event.name for event in expected.values()}
    assert "first" in names and len(names) > 20, "some rows stay, and some are replaced"


@pytest.mark.extended(
    "more kinds of tables and settings",
    first=(
        "v9-90-BULK_INSERT",
        "v9-100000000-INSERT",
    ),
)
@pytest.mark.table_versions(9, also=(8,))
@pytest.mark.parametrize("operation", ["INSERT", "BULK_INSERT"])
@pytest.mark.parametrize("keys", [90, 100_000_000])
def test_the_metadata_table_knows_appended_rows(
    tmp_path: Path, spark: SparkSession, version: int, operation: str, keys: int
) -> None:
    """With unique keys all of it is right; with repeated ones the record index has the place of one row of each key."""
    events = list(ev.generate(4 * PER_FILE, ev.Mix(keys=keys, partitions=3), seed=5))
    conf = {"hoodie.metadata.global.record.level.index.enable": "true", "hoodie.metadata.enable": "true"}
    more = {"hoodie.metadata.index.bloom.filter.enable": "true", "hoodie.metadata.compact.max.delta.commits": "2"}
    case = StreamCase(tmp_path, spark, "MERGE_ON_READ", {OPERATION: operation, **conf, **more})
    ev.write_files(events, case.source, PER_FILE)
    case.run()
    assert found_rows(case.table) == as_rows(events)
    wrong = validate_metadata(HoodieTable.open(str(case.table)))
    if keys > 90:
        assert wrong == []
    else:
        assert all("have another" in text for text in wrong), wrong


def test_a_new_checkpoint_does_not_append_the_files_again(tmp_path: Path, spark: SparkSession) -> None:
    case = insert_case(tmp_path, spark, "COPY_ON_WRITE")
    ev.write_files(EVENTS[:PER_FILE], case.source, PER_FILE)
    case.run()
    shutil.rmtree(case.checkpoint)
    before = found_rows(case.table)
    with pytest.raises(IndexCoverageError, match=r"would append them a second time.*checkpoint\.identifier"):
        case.run()
    out = io.StringIO()
    assert not explain_start(load_options(case.arguments()), out, os.environ, now_ms())
    assert "would append them a second time" in out.getvalue()
    assert found_rows(case.table) == before


def test_an_older_checkpoint_does_not_append_the_files_again(tmp_path: Path, spark: SparkSession) -> None:
    case = insert_case(tmp_path, spark, "MERGE_ON_READ", "BULK_INSERT")
    ev.write_files(EVENTS[:PER_FILE], case.source, PER_FILE)
    case.run()
    shutil.copytree(case.checkpoint, tmp_path / "copy")
    ev.write_files(EVENTS[PER_FILE : 2 * PER_FILE], case.source, PER_FILE, first=1)
    case.run()
    shutil.rmtree(case.checkpoint)
    (tmp_path / "copy").rename(case.checkpoint)
    before = found_rows(case.table)
    with pytest.raises(IndexCoverageError, match=r"it is an older copy: all records of the source would be read again"):
        case.run()
    out = io.StringIO()
    assert not explain_start(load_options(case.arguments()), out, os.environ, now_ms())
    assert "it is an older copy" in " ".join(out.getvalue().split())
    assert found_rows(case.table) == before


def test_an_upsert_after_inserts_finds_the_appended_rows(tmp_path: Path, spark: SparkSession) -> None:
    """The state index of a later stream is loaded from the table: an update of a key replaces its row."""
    events = [ev.Event(f"k{i}", f"p{i % 3}", i, name="first") for i in range(300)]
    case = insert_case(tmp_path, spark, "COPY_ON_WRITE", "BULK_INSERT")
    ev.write_files(events, case.source, 100)
    case.run()
    newer = [replace(event, ordering=1_000 + (event.ordering or 0), name="second") for event in events[:150]]
    later = StreamCase(tmp_path / "later", spark, "COPY_ON_WRITE", existing=case.table)
    ev.write_files(newer, later.source, 100)
    reports = later.run()
    assert sum(report.updates for report in reports) == 150
    assert found_rows(case.table) == as_rows([*newer, *events[150:]])
    assert validate(HoodieTable.open(str(case.table))) == []


def test_files_need_no_ordering_field_to_be_appended(tmp_path: Path, spark: SparkSession) -> None:
    case = insert_case(tmp_path, spark, "COPY_ON_WRITE", hoodie_table_ordering_fields=UNSET)
    ev.write_files(EVENTS[:PER_FILE], case.source, PER_FILE)
    case.run()
    assert found_rows(case.table) == as_rows(EVENTS[:PER_FILE])


@pytest.mark.parametrize(
    ("conf", "why"),
    [
        ({"hoodie.index.type": "BUCKET"}, "the bucket of a key decides its file group"),
        ({"hoodie.index.type": "HBASE"}, "HBase would lack the keys"),
        ({"hoodie.datasource.insert.dup.policy": "drop"}, "no record is dropped because its key exists"),
        ({"hoodie.datasource.write.insert.drop.duplicates": "true"}, "no record is dropped because its key exists"),
        ({"hoodie.bulkinsert.sort.mode": "SORTED"}, "GLOBAL_SORT"),
    ],
)
def test_what_cannot_be_appended_is_refused_by_name(
    tmp_path: Path, spark: SparkSession, conf: dict[str, str], why: str
) -> None:
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE", {OPERATION: "INSERT", **conf})
    with pytest.raises(ConfigError, match=why):
        load_options(case.arguments())


@pytest.mark.extended("more kinds of tables and settings", first=("GLOBAL_SORT",))
@pytest.mark.parametrize("mode", ["NONE", "GLOBAL_SORT"])
def test_a_bulk_insert_divides_rows_into_files_of_the_right_size(
    tmp_path: Path, spark: SparkSession, mode: str
) -> None:
    """The size of a row is measured, whatever the estimate is."""
    limit = 100_000
    rng = random.Random(3)
    events = [ev.Event(f"k{i}", f"p{i % 2}", i, name=rng.randbytes(200).hex()) for i in range(4_000)]
    conf = {"hoodie.parquet.max.file.size": str(limit), "hoodie.bulkinsert.sort.mode": mode}
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE", {OPERATION: "BULK_INSERT", **conf})
    ev.write_files(events, case.source, 4_000)
    case.run()
    assert found_rows(case.table) == as_rows(events)
    sizes = [stat.file_size for stat in commits(case.table)[0].all_stats()]
    assert max(sizes) < 1.1 * limit
    assert len(sizes) <= sum(sizes) / limit * 1.4 + 4, "and not many more files than needed"
    assert mode == "NONE" or min(sizes) > 0.6 * limit, "no small file is left over where a range ends"


@pytest.mark.parametrize("operation", ["INSERT", "BULK_INSERT"])
def test_rows_of_a_dataframe_are_appended(tmp_path: Path, spark: SparkSession, operation: str) -> None:
    case = FrameCase(tmp_path, spark, {OPERATION: operation})
    ev.write_files(EVENTS[: 2 * PER_FILE], case.source, PER_FILE)
    case.run()
    ev.write_files(EVENTS[2 * PER_FILE : 3 * PER_FILE], case.source, PER_FILE, first=2)
    case.run()
    found = read_table(case.table, meta_columns=False).select(ev.ARROW_SCHEMA.names[:-1])
    expected = Counter(tuple(event.row().values())[:-1] for event in EVENTS[: 3 * PER_FILE] if not event.deleted)
    assert Counter(zip(*(column.to_pylist() for column in found.columns), strict=True)) == expected
