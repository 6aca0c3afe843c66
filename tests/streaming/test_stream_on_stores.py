"""A whole stream whose table and checkpoint lie on a server: restarted, killed at steps of its commits, read from there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drills.store_job import StoreJob
from tests.drills.stream_job import chunks_of
from tests.support import events as ev
from tests.support.hdfs import HdfsServer
from tests.support.s3_server import KEY, SECRET, S3Server

TYPES = ("MERGE_ON_READ", "COPY_ON_WRITE")
JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
CHUNKS = chunks_of(list(ev.generate(300, ev.Mix(keys=80, deletes=0.1), seed=5)), 60)


@pytest.fixture
def s3_job(s3_folder: str, s3_server: S3Server, tmp_path: Path, request: pytest.FixtureRequest) -> StoreJob:
    """A job on an S3 server; hudi-rs reads its table from there."""
    reader = {
        "aws_endpoint": s3_server.endpoint,
        "aws_access_key_id": KEY,
        "aws_secret_access_key": SECRET,
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }
    return StoreJob(
        tmp_path / "job", request.param, CHUNKS, url=s3_folder, settings=s3_server.settings(), reader=reader, java=JAVA
    )


@pytest.fixture
def hdfs_job(hdfs_folder: str, hdfs_server: HdfsServer, tmp_path: Path, request: pytest.FixtureRequest) -> StoreJob:
    """A job on HDFS, which hudi-rs does not read: it reads a copy."""
    settings = hdfs_server.settings()
    return StoreJob(tmp_path / "job", request.param, CHUNKS, url=hdfs_folder, settings=settings, java=JAVA)


@pytest.mark.s3
@pytest.mark.spark
@pytest.mark.parametrize("s3_job", TYPES, indirect=True)
def test_a_stream_on_s3(s3_job: StoreJob) -> None:
    streams_on_through_kills(s3_job)


@pytest.mark.stores
@pytest.mark.hdfs
@pytest.mark.spark
@pytest.mark.parametrize("hdfs_job", TYPES, indirect=True)
def test_a_stream_on_hdfs(hdfs_job: StoreJob) -> None:
    streams_on_through_kills(hdfs_job)


def streams_on_through_kills(job: StoreJob) -> None:
    """Two files, three kills at steps of a commit, the rest: each time the table is what its commits say."""
    job.write_input(0, 2)
    said = job.finish()
    assert SECRET not in said
    assert job.check() == 2
    assert job.unnamed_files() == []
    job.write_input(2, 5)
    for point, committed in (("files_written", 2), ("files_published", 2), ("completed", 3)):
        job.crash(point, "*")
        assert job.check() == committed
    job.finish()
    assert job.check() == 5
    assert job.unnamed_files() == []
