"""Hudi's StorageBasedLockProvider and Amazon's DynamoDB lock client against our locks, on moto's servers.

Hudi's own class of the storage lock runs with a stand-in for its S3 client, whose jar is not to be had here.
"""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from bench.peers import home as peers
from tagstream.streaming.source.connector import CACHE_FOLDER, PROJECT, fetch_jars
from tagstream.table.locks.lock import Lock, Surroundings
from tagstream.table.locks.opened import open_lock
from tagstream.table.locks.options import LockOptions
from tagstream.table.locks.storage_based import AUDIT_SWITCH, LOCK_FILE, LOCKS_FOLDER
from tagstream.table.storage.opening import open_storage
from tests.interop.hudi_lock import class_path, hudi_lock
from tests.support.answering import AnsweringProgram
from tests.support.aws import aws_server, environment
from tests.support.process import in_thread

pytestmark = pytest.mark.hudi_jar
LONG_S = 240.0
LEASE_MS = 4000
BASE_PATH = "s3a://bucket/t"
LOCK_TABLE = "locks"
CLIENT = Path(__file__).with_name("S3StorageLockClient.java")
DYNAMO_PROGRAM = Path(__file__).with_name("DynamoLockProgram.java")
HERE = Surroundings(writer="tagstream", new_id=lambda: str(uuid.uuid4()))


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with aws_server() as settings, environment(settings):
        boto3.client("s3").create_bucket(Bucket="bucket")
        yield settings["AWS_ENDPOINT_URL"]


def opened(options: LockOptions) -> Lock:
    lock = open_lock(options, "t", BASE_PATH, open_storage(BASE_PATH), HERE)
    assert lock is not None
    return lock


@pytest.fixture
def ours(endpoint: str) -> Iterator[Lock]:
    lock = opened(LockOptions(provider="StorageBasedLockProvider", storage_validity_s=10, storage_renew_s=1))
    yield lock
    lock.close()


@pytest.fixture(scope="module")
def hudi(endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnsweringProgram]:
    peers.set_up()
    folder = tmp_path_factory.mktemp("hudi")
    subprocess.run(["javac", "-nowarn", "-d", str(folder), "-cp", class_path(), str(CLIENT)], check=True)
    open_storage(BASE_PATH).replace(AUDIT_SWITCH, b'{"STORAGE_LOCK_AUDIT_SERVICE_ENABLED": true}')
    properties = {
        "tests.s3": endpoint,
        "hoodie.base.path": BASE_PATH,
        "hoodie.table.name": "t",
        "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider",
        "hoodie.write.lock.storage.validity.timeout.secs": "10",
        "hoodie.write.lock.storage.renew.interval.secs": "1",
    }
    with hudi_lock(properties, folder / "hudi.log", folder) as running:
        yield running


def content() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(open_storage(BASE_PATH).read(LOCK_FILE))
    return found


def test_the_storage_lock_of_hudi(hudi: AnsweringProgram, ours: Lock) -> None:
    assert hudi.ask("lock") == "ok"
    theirs = open_storage(BASE_PATH).read(LOCK_FILE)
    assert not ours.try_acquire(0)
    assert json.loads(theirs)["owner"] in ours.holder()
    got: list[bool] = []
    waiting = in_thread(lambda: got.append(ours.try_acquire(LONG_S)))
    assert hudi.ask("unlock") == "ok"
    waiting.join()
    assert got == [True]
    made = open_storage(BASE_PATH).read(LOCK_FILE)
    assert list(json.loads(made)) == list(json.loads(theirs)) == ["expired", "validUntil", "owner"]
    assert json.dumps(json.loads(theirs), separators=(",", ":")).encode() == theirs
    assert json.dumps(json.loads(made), separators=(",", ":")).encode() == made
    assert "HoodieLockException" in hudi.ask("lock")
    assert ours.is_held()
    ours.release()
    assert content()["expired"] is True
    assert hudi.ask("lock") == "ok"
    assert hudi.ask("unlock") == "ok"
    assert ours.try_acquire(0)


def test_audit_files_have_the_same_lines(hudi: AnsweringProgram, ours: Lock) -> None:
    """Those of both sides: the members in one order, a START and an END."""
    assert hudi.ask("lock") == "ok"
    assert hudi.ask("unlock") == "ok"
    assert ours.try_acquire(LONG_S)
    ours.release()
    storage = open_storage(BASE_PATH)
    files = {
        name: storage.read(f"{LOCKS_FOLDER}/audit/{name}").decode() for name in storage.names(f"{LOCKS_FOLDER}/audit")
    }
    assert {"tagstream" in name for name in files} == {True, False}
    shapes = set()
    for name, text in files.items():
        lines = [json.loads(line) for line in text.splitlines()]
        assert [line["state"] for line in lines if line["state"] != "RENEW"] == ["START", "END"]
        assert text == "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        assert name == f"{lines[0]['transactionStartTime']}_{lines[0]['ownerId']}.jsonl"
        first = lines[0]
        assert first["timestamp"] == first["transactionStartTime"]
        for line in lines:
            shapes.add((tuple(line), line["lockHeld"], line["lockExpiration"] - line["timestamp"]))
    assert len(shapes) == 1, shapes


@pytest.mark.parametrize("data", [b"", b"{}", b'{"expired":"no"}'])
def test_what_stops_hudi_stops_us(hudi: AnsweringProgram, ours: Lock, data: bytes) -> None:
    storage = open_storage(BASE_PATH)
    storage.replace(LOCK_FILE, data)
    assert "Failed to deserialize" in hudi.ask("lock")
    with pytest.raises(Exception, match="stops every writer"):
        ours.try_acquire(0)
    storage.delete(LOCK_FILE)


def test_a_killed_hudi_is_taken_over(hudi: AnsweringProgram, ours: Lock) -> None:
    """The last test with this Hudi."""
    assert hudi.ask("lock") == "ok"
    hudi.kill()
    assert ours.try_acquire(LONG_S)


@pytest.fixture
def amazon(endpoint: str, tmp_path: Path) -> Iterator[tuple[AnsweringProgram, Lock]]:
    lock = opened(
        LockOptions(
            provider="DynamoDBBasedLockProvider", dynamodb_table=LOCK_TABLE, wait_time_ms=LEASE_MS,
            dynamodb_endpoint_url=endpoint, dynamodb_partition_key=tmp_path.name,
        )
    )  # fmt: skip
    assert lock.try_acquire(0)  # makes the table, as Hudi's provider does
    lock.release()
    jars = fetch_jars(PROJECT / "conf" / "poms" / "dynamodb-lock-client.xml", PROJECT / CACHE_FOLDER)[0].parent
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", str(DYNAMO_PROGRAM), endpoint]
    with AnsweringProgram([*command, LOCK_TABLE, tmp_path.name, str(LEASE_MS)], tmp_path / "amazon.log") as program:
        assert program.answer() == "ready true", (tmp_path / "amazon.log").read_text()[-3000:]
        yield program, lock
    lock.close()


def test_the_lock_client_of_amazon(amazon: tuple[AnsweringProgram, Lock]) -> None:
    client, ours = amazon
    assert client.ask("lock") == "ok"
    item = boto3.client("dynamodb").scan(TableName=LOCK_TABLE)["Items"][0]
    assert not ours.try_acquire(2.5 * LEASE_MS / 1000)  # it beats
    assert os.uname().nodename in ours.holder()
    assert client.ask("unlock") == "ok"
    assert ours.try_acquire(0)
    made = boto3.client("dynamodb").scan(TableName=LOCK_TABLE)["Items"][0]
    assert set(made) == set(item) == {"key", "ownerName", "leaseDuration", "recordVersionNumber"}
    assert made["leaseDuration"] == item["leaseDuration"]
    assert "LockNotGrantedException" in client.ask("lock")  # it waits for two leases while ours is renewed
    assert ours.is_held()
    ours.release()
    assert client.ask("lock") == "ok"
    client.kill()
    assert not ours.try_acquire(0)
    assert ours.try_acquire(LONG_S)
