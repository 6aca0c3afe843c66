"""A stream whose store itself goes wrong: killed and started again, a part of it lost, its disk full, its keys run out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.drills.conftest import NewDrill
from tests.drills.store_job import StoreJob
from tests.drills.stream_job import DEADLINE_S, chunks_of, error_line
from tests.support.events import Event, Mix, generate
from tests.support.hdfs import HdfsServer
from tests.support.http_proxy import EXPIRE, PASS, HttpProxy, Request
from tests.support.s3_server import S3Server
from tests.support.small_disk import SmallDisk

pytestmark = [pytest.mark.drill, pytest.mark.s3, pytest.mark.stores]
CHUNK = 80
MIX = Mix(keys=300, partitions=6)
TYPES = ("MERGE_ON_READ", "COPY_ON_WRITE")
TOLD = ("credentials have expired", "ExpiredToken")
FULL = ("a disk is full", "XMinioStorageFull", "could only be written to 0", "No space left")
# A DataNode takes no block where a gigabyte would not be left, and keeps room for a whole block of each file.
SMALL_DISK = {
    "dfs.blocksize": "4194304",
    "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space": "0",
}


def events(files: int) -> list[list[Event]]:
    """The input of so many files."""
    return chunks_of(list(generate(files * CHUNK, MIX, seed=41)), CHUNK)


@pytest.mark.parametrize("table_type", TYPES)
def test_a_server_of_s3_is_killed_and_started_again(table_type: str, new_drill: NewDrill, tmp_path: Path) -> None:
    """In the middle of a batch: the job waits for it, or ends and says so; the next start loses nothing."""
    with S3Server(tmp_path / "server") as server:
        job = StoreJob.at(server, f"s3a://{server.bucket}/t", tmp_path / "job", table_type, events(8))
        broken(job, server.kill, server.start, "S3's server killed and started again", new_drill)


@pytest.mark.parametrize("table_type", TYPES)
def test_a_name_node_is_killed_and_started_again(table_type: str, new_drill: NewDrill, tmp_path: Path) -> None:
    with HdfsServer(tmp_path / "server") as server:
        job = StoreJob.at(server, f"{server.url}/t", tmp_path / "job", table_type, events(8))
        broken(job, lambda: server.kill("namenode"), server.start, "NameNode killed and started again", new_drill)


@pytest.mark.parametrize("table_type", TYPES)
def test_a_data_node_is_killed(table_type: str, new_drill: NewDrill, tmp_path: Path) -> None:
    """Of three; replication is 2. The NameNode believes in it for minutes, so every second file begins with it."""
    with HdfsServer(tmp_path / "server", data_nodes=3) as server:
        job = StoreJob.at(server, f"{server.url}/t", tmp_path / "job", table_type, events(8))
        broken(job, lambda: server.kill("datanode3"), server.start, "a DataNode of three killed", new_drill)


def broken(job: StoreJob, kill: Callable[[], None], start: Callable[[], None], what: str, new_drill: NewDrill) -> None:
    """Three times: a fault while a batch runs, some time without, the server as it was, the rest of the files."""
    steps = ("requested", "state_committed", "files_written")
    with new_drill(what, job.table_type, len(steps)) as drill:
        job.write_input(0, 1)
        job.finish()
        for number, step in enumerate(steps, start=1):
            job.write_input(2 * number - 1, 2 * number)
            with job.start(crash=f"{step}@{job.batches()}:pause") as process:
                process.wait_for(lambda process=process: process.stopped, DEADLINE_S, f"the stop at {step}")
                kill()
                drill.injected += 1
                process.resume()
                start()
                if (code := process.wait(DEADLINE_S)) != 0:
                    error_line(process, code)
            drill.compare(job)
            job.write_input(2 * number, 2 * number + 1)
            job.finish()
            assert job.all_taken()
            drill.compare(job)
        assert job.unnamed_files() == []


@pytest.mark.parametrize("table_type", TYPES)
def test_a_token_that_runs_out(
    table_type: str, new_drill: NewDrill, proxy: HttpProxy, s3_server: S3Server, s3_folder: str, tmp_path: Path
) -> None:
    """After so many requests of a batch. The job ends and says what to do; with a new token nothing is lost."""
    after = (1, 30, 60, 90)
    with new_drill("S3: a token runs out", table_type, len(after)) as drill:
        through = s3_server.settings(proxy.url)
        files = events(len(after) + 1)
        job = StoreJob.at(s3_server, s3_folder, tmp_path / "job", table_type, files, settings=through)
        job.write_input(0, 1)
        job.finish()
        for number, requests in enumerate(after, start=1):
            job.write_input(number, number + 1)
            proxy.reset()
            proxy.rule = expired_after(requests)
            message = job.fails()
            proxy.reset()
            drill.injected += 1
            assert any(text in message for text in TOLD), message
            drill.compare(job)
            job.finish()
            assert job.all_taken()
            drill.compare(job)
        assert job.unnamed_files() == []


def expired_after(requests: int) -> Callable[[Request], str]:
    """From some request on all are told that the token has run out."""
    return lambda request: PASS if request.number <= requests else EXPIRE


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("store", ["s3", "hdfs"])
def test_the_disks_of_a_server_are_full(store: str, table_type: str, new_drill: NewDrill, tmp_path: Path) -> None:
    """At the first write, and some files later; with room again a start goes on."""
    at, disks = tmp_path / "server", ["data"] if store == "s3" else ["data1", "data2"]
    left = (0, 64 << 10, 256 << 10) if store == "s3" else (0, 20 << 20, 40 << 20)
    with ExitStack() as stack:
        mounted = [stack.enter_context(SmallDisk(at / name, 300)) for name in disks]
        server: S3Server | HdfsServer = S3Server(at) if store == "s3" else HdfsServer(at, site=SMALL_DISK)
        stack.enter_context(server)
        url = f"s3a://{server.bucket}/t" if isinstance(server, S3Server) else f"{server.url}/t"
        drill = stack.enter_context(new_drill(f"{store}: the server's disks are full", table_type, len(left)))
        job = StoreJob.at(server, url, tmp_path / "job", table_type, events(1 + len(left)))
        job.write_input(0, 1)
        job.finish()
        for number, room in enumerate(left, start=1):
            job.write_input(number, number + 1)
            for disk in mounted:
                disk.fill(room)
            with job.start() as process:
                drill.injected += 1
                if (code := process.wait(DEADLINE_S)) != 0:
                    message = error_line(process, code)
                    assert any(text in message for text in FULL), message
            for disk in mounted:
                disk.make_room()
            drill.compare(job)
            job.finish()
            assert job.all_taken()
            drill.compare(job)
        assert job.unnamed_files() == []
