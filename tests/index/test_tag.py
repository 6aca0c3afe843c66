"""Which locations an index answers, and how it asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tagstream.index.errors import HbaseRowError
from tagstream.index.hbase_index import Commits, HbaseIndex
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import REPLACE_COMMIT, Instant, State
from tests.index.case import Case, options
from tests.index.fake_clock import FakeClock
from tests.support.hbase import HbaseServer
from tests.support.table_version import timeline_of
from tests.table.writer import row

pytestmark = [pytest.mark.hbase, pytest.mark.spark]


def test_keys_of_commits_are_found_and_no_others(make_case: Callable[..., Case]) -> None:
    case = make_case()
    first = case.commit([row(n, f"p{n % 3}", 1) for n in range(40)])
    second = case.commit([row(n, f"p{n % 3}", 2) for n in range(30, 60)])
    asked = [f"k{n}" for n in range(70)]
    # An update leaves the location as it was put, the time of the insert included.
    expected = {k: (*where, first if int(k[1:]) < 40 else second) for k, where in case.writer.where.items()}
    assert case.tag_in_spark(*asked, *asked[:20]) == expected
    assert case.tag_in_spark("no", "no") == {}
    assert case.tag(*asked) == expected
    assert case.tag() == {}


def test_what_a_write_without_a_commit_put_is_not_there(make_case: Callable[..., Case]) -> None:
    case = make_case()
    # The table has no commit at all: nothing counts, however old.
    case.update([("k1", "p0", "f-0", True)], "20200101000000000")
    assert case.tag("k1") == {}
    failed = case.fail([row(2, "p0", 1)])
    assert case.cells(b"k2")[b"_s:commit_ts"] == failed.encode()
    assert case.tag("k2") == {}
    instant = case.commit([row(2, "p0", 1), row(3, "p0", 1)])
    assert case.tag("k1", "k2", "k3") == {
        "k1": ("p0", "f-0", "20200101000000000"),  # older than the timeline: its commit may be archived
        "k2": (*case.writer.where["k2"], instant),
        "k3": (*case.writer.where["k3"], instant),
    }
    case.update([("k4", "p0", "f-0", True)], "29990101000000000")
    assert case.tag("k4") == {}


def test_a_batch_sees_no_commit_newer_than_its_look(make_case: Callable[..., Case]) -> None:
    case = make_case()
    first = case.commit([row(1, "p0", 1)])
    look = case.look()
    second = case.commit([row(2, "p0", 1)])
    later = Commits.of(replace(case.look(), as_of=first))
    times = pa.chunked_array([[first, second]])
    for commits in (Commits.of(look), later):
        assert commits.count(times).to_pylist() == [True, False]
    # Newer than the first look, but known to the second one: only there it is certain to be void.
    assert Commits.of(look).are_void(times).to_pylist() == [False, False]
    assert later.are_void(times).to_pylist() == [False, True]


@pytest.mark.parametrize("operation", ["INSERT_OVERWRITE", "DELETE_PARTITION", "CLUSTER"])
def test_a_file_group_that_was_replaced_holds_nothing(make_case: Callable[..., Case], operation: str) -> None:
    case = make_case()
    instant = case.commit([row(1, "p0", 1), row(2, "p1", 1)])
    partition, file_id = case.writer.where["k1"]
    later = case.writer.instant()
    metadata = CommitMetadata(operation=operation, replaced={partition: (file_id,)})
    folder, version = timeline_of(case.writer.table.base_path), case.writer.table.config.version
    completed_at = case.writer.instant() if version >= 8 else None
    (folder / Instant(later, REPLACE_COMMIT, State.REQUESTED).file_name()).touch()
    done = Instant(later, REPLACE_COMMIT, State.COMPLETED, completed_at)
    (folder / done.file_name()).write_bytes(metadata.to_bytes(version))
    if operation == "CLUSTER":  # its rows are somewhere, only this index does not know where
        with pytest.raises(HbaseRowError, match=f"k1.*{file_id}.*clustering"):
            case.tag("k1", "k2")
        assert case.tag("k2") == {"k2": (*case.writer.where["k2"], instant)}
    else:
        assert case.tag("k1", "k2") == {"k2": (*case.writer.where["k2"], instant)}


def test_gets_go_out_in_batches_at_ten_a_second(make_case: Callable[..., Case]) -> None:
    case = make_case()
    case.commit([row(n, "p0", 1) for n in range(23)])
    clock = FakeClock()
    index = HbaseIndex(replace(case.index.options, get_batch_size=4), clock, clock.sleep)

    def batches() -> Iterator[pa.RecordBatch]:
        for numbers in (range(10), range(0), range(10, 30)):
            yield pa.record_batch([pa.array([f"k{n}" for n in numbers], pa.string())], ["record_key"])

    found = pa.Table.from_batches(index._tag(batches(), Commits.of(case.look()), pa.binary()))
    assert sorted(found["record_key"].to_pylist()) == sorted(case.writer.where)
    assert found.schema.field("ord").type == pa.binary()
    # 4 + 4 + 2 and five times 4: of eight requests each but the last is paid for.
    assert clock.slept == pytest.approx([0.1, 0.1, 0.05, 0.1, 0.1, 0.1, 0.1])


def test_puts_go_out_in_batches_within_the_tasks_share(make_case: Callable[..., Case]) -> None:
    case = make_case()
    clock = FakeClock()
    settings = replace(case.index.options, put_batch_size=10, qps_fraction=0.5, max_qps_per_region_server=80)
    index = HbaseIndex(settings, clock, clock.sleep)
    index.start(case.look())
    written = pa.table({
        "record_key": [f"k{n}" for n in range(25)],
        "partition_path": ["p"] * 25,
        "file_id": ["f-0"] * 25,
        "is_new": [True] * 25,
    })  # fmt: skip
    for _ in range(2):  # a task may write several times
        index.update_location(written, "20260101000000000")
    # One region server, two tasks: 20 a second for each of them.
    assert case.spark.sparkContext.defaultParallelism == 2
    assert clock.slept == pytest.approx([0.5, 0.5, 0.25, 0.5, 0.5])


def test_an_index_filled_under_other_options_is_its_own(hbase_server: HbaseServer, spark: SparkSession) -> None:
    index = HbaseIndex(options(hbase_server, "t", update_partition_path=True))
    assert (index.update_partition_path, HbaseIndex(options(hbase_server, "t")).update_partition_path) == (True, False)
    assert (index.is_global, index.can_index_log_files, index.is_implicit_with_storage) == (True, True, False)
    assert index.update_in_tasks
