"""A whole stream whose table and checkpoint lie on a server: restarted, killed at steps of its commits, read from there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tagstream.table.storage.opening import open_storage
from tests.drills.store_job import StoreJob
from tests.drills.stream_job import chunks_of
from tests.support import events as ev
from tests.support.hdfs import HdfsServer
from tests.support.http_proxy import HttpProxy
from tests.support.s3_server import SECRET, S3Server

TYPES = ("MERGE_ON_READ", "COPY_ON_WRITE")
KEY_GROUPS = 8  # four for each of two partitions
CHUNKS = chunks_of(list(ev.generate(300, ev.Mix(keys=80, deletes=0.1), seed=5)), 60)


@pytest.fixture
def s3_job(s3_folder: str, s3_server: S3Server, tmp_path: Path, request: pytest.FixtureRequest) -> StoreJob:
    """A job on an S3 server; hudi-rs reads its table from there."""
    return StoreJob.at(s3_server, s3_folder, tmp_path / "job", request.param, CHUNKS)


@pytest.fixture
def hdfs_job(hdfs_folder: str, hdfs_server: HdfsServer, tmp_path: Path, request: pytest.FixtureRequest) -> StoreJob:
    """A job on HDFS, which hudi-rs does not read: it reads a copy."""
    return StoreJob.at(hdfs_server, hdfs_folder, tmp_path / "job", request.param, CHUNKS)


@pytest.mark.s3
@pytest.mark.spark
@pytest.mark.parametrize("s3_job", TYPES, indirect=True)
def test_a_stream_on_s3(s3_job: StoreJob) -> None:
    s3_job.source_too = s3_job.table_type == "COPY_ON_WRITE"
    streams_on_through_kills(s3_job)
    keys_are_nowhere(s3_job)


@pytest.mark.stores
@pytest.mark.hdfs
@pytest.mark.spark
@pytest.mark.parametrize("hdfs_job", TYPES, indirect=True)
def test_a_stream_on_hdfs(hdfs_job: StoreJob) -> None:
    streams_on_through_kills(hdfs_job)


@pytest.mark.s3
@pytest.mark.spark
@pytest.mark.parametrize("s3_job", ["COPY_ON_WRITE"], indirect=True)
def test_what_a_batch_asks_of_s3(s3_job: StoreJob, s3_server: S3Server) -> None:
    """Two batches more cost at most as many requests as their data files and key groups explain: 6 and 3 of each, and 60."""
    job, totals, direct = s3_job, [], s3_job.settings
    with HttpProxy(s3_server.port) as proxy:
        job.settings = s3_server.settings(proxy.url)
        for first, last in ((0, 1), (1, 2), (2, 5)):
            job.write_input(first, last)
            proxy.reset()
            job.finish()
            totals.append(Counter(kind for kind, _ in proxy.targets))
    job.settings = direct
    assert job.check() == 5
    named = [len(files) for files in job.files_of_batches()]
    more = totals[2] - totals[1]
    most = 6 * (sum(named[2:]) - named[1]) + 2 * (3 * KEY_GROUPS + 60)
    assert more.total() <= most, (more, totals, named)


def keys_are_nowhere(job: StoreJob) -> None:
    """Neither on a command line, nor in a file: of the job's folders, or of table and checkpoint."""
    assert SECRET not in job.watched()
    files = (path for path in job.folder.rglob("*") if path.is_file() and path != job.properties)
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    with job.reached_by():
        everything = open_storage(job.url)
        assert [rel for rel in everything.walk_files("") if SECRET.encode() in everything.read(rel)] == []


def streams_on_through_kills(job: StoreJob) -> None:
    """Two files, three kills at steps of a commit, the rest: each time the table is what its commits say."""
    job.write_input(0, 2)
    job.finish()
    assert job.check() == 2
    assert job.unnamed_files() == []
    job.write_input(2, 5)
    for point, committed in (("files_written", 2), ("files_published", 2), ("completed", 3)):
        job.crash(point, "*")
        assert job.check() == committed
    job.finish()
    assert job.check() == 5
    assert job.unnamed_files() == []
