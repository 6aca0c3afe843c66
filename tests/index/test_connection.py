"""The Thrift server dies in the middle."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from tagstream.index.errors import HbaseUnavailableError
from tagstream.index.hbase_index import Commits, HbaseIndex
from tests.index.case import Case
from tests.support.hbase import HbaseServer
from tests.table.writer import row

pytestmark = [pytest.mark.hbase, pytest.mark.spark]


@pytest.fixture
def thrift(hbase_server: HbaseServer) -> Iterator[HbaseServer]:
    """The server, whose Thrift part runs again after the test."""
    yield hbase_server
    if not hbase_server.answers():
        hbase_server.start_thrift()


def dying(server: HbaseServer) -> Iterator[pa.RecordBatch]:
    """Keys k0 to k9, between which the Thrift server dies."""
    yield pa.record_batch([pa.array([f"k{n}" for n in range(5)])], ["record_key"])
    server.kill_thrift()
    yield pa.record_batch([pa.array([f"k{n}" for n in range(5, 10)])], ["record_key"])


def test_a_server_that_stays_away_is_named(thrift: HbaseServer, make_case: Callable[..., Case]) -> None:
    case = make_case(rollback_sync=True)
    case.commit([row(n, "p0", 1) for n in range(10)])
    pauses: list[float] = []
    index = HbaseIndex(replace(case.index.options, thrift_retries=3), sleep=pauses.append)
    commits = Commits.of(case.look())
    answers = index._tag(dying(thrift), commits, pa.int64())
    assert next(answers).num_rows == 5
    options = case.index.options
    failed = "could not get locations in 4 tries.*Check that HBase"
    where = f"{options.table}.*{re.escape(options.address)}.*{failed}"
    with pytest.raises(HbaseUnavailableError, match=where):
        next(answers)
    assert pauses == [0.5, 1.0, 2.0]
    with pytest.raises(HbaseUnavailableError, match="put locations of 20260101000000000"):
        written = pa.table({"record_key": ["k"], "partition_path": ["p"], "file_id": ["f-0"], "is_new": [True]})
        index.update_location(written, "20260101000000000")
    assert not index.rollback_commit("20260101000000000")


def test_a_server_that_comes_back_is_used_again(thrift: HbaseServer, make_case: Callable[..., Case]) -> None:
    case = make_case()
    case.commit([row(n, "p0", 1) for n in range(10)])

    def wait(seconds: float) -> None:
        thrift.start_thrift()

    index = HbaseIndex(case.index.options, sleep=wait)
    found = pa.Table.from_batches(index._tag(dying(thrift), Commits.of(case.look()), pa.int64()))
    assert sorted(found["record_key"].to_pylist()) == sorted(case.writer.where)
