"""The lock item on DynamoDB: the new table, answers that are lost, errors of the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from tagstream.table.errors import LockError
from tagstream.table.locks.dynamodb import DynamoDbLock, DynamoDbSettings
from tests.behaviours.lock_places import Clock, surroundings
from tests.support.aws import aws_server, environment


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with aws_server() as settings, environment(settings):
        yield settings["AWS_ENDPOINT_URL"]


@pytest.fixture
def lock(endpoint: str, request: pytest.FixtureRequest) -> Iterator[DynamoDbLock]:
    made = DynamoDbLock(settings(endpoint, request.node.name), surroundings("me"))
    yield made
    made.close()


def settings(endpoint: str, table: str, billing_mode: str = "PAY_PER_REQUEST") -> DynamoDbSettings:
    return DynamoDbSettings(
        table=table, key="t", lease_ms=60_000, region="us-east-1", endpoint=endpoint, billing_mode=billing_mode,
        read_capacity=20, write_capacity=10, creation_timeout_ms=1000,
    )  # fmt: skip


def failed(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": f"{code} it is"}}, "PutItem")


def test_the_new_table_and_the_item(lock: DynamoDbLock, endpoint: str) -> None:
    assert lock.try_acquire(0)
    database = boto3.client("dynamodb")
    table = database.describe_table(TableName="test_the_new_table_and_the_item")["Table"]
    assert table["KeySchema"] == [{"AttributeName": "key", "KeyType": "HASH"}]
    assert table["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    (item,) = database.scan(TableName="test_the_new_table_and_the_item")["Items"]
    assert {name: value for name, value in item.items() if name in ("key", "leaseDuration")} == {
        "key": {"S": "t"}, "leaseDuration": {"S": "60000"},
    }  # fmt: skip
    assert item["ownerName"]["S"].startswith("me ")
    lock.release()
    assert database.scan(TableName="test_the_new_table_and_the_item")["Items"] == []
    provisioned = DynamoDbLock(settings(endpoint, "provisioned", "PROVISIONED"), surroundings("me"))
    assert provisioned.try_acquire(0)
    provisioned.close()
    capacity = database.describe_table(TableName="provisioned")["Table"]["ProvisionedThroughput"]
    assert (capacity["ReadCapacityUnits"], capacity["WriteCapacityUnits"]) == (20, 10)


def test_a_heartbeat_changes_the_number_and_the_end(endpoint: str) -> None:
    clock = Clock()
    lock = DynamoDbLock(settings(endpoint, "beats"), surroundings("me", clock))
    assert lock.try_acquire(0)
    first = lock._version
    clock.sleep(59)
    assert lock.is_held()
    assert lock._beat()
    assert lock._version != first
    clock.sleep(59)
    assert lock.is_held()
    clock.sleep(1)
    assert not lock.is_held()
    lock.close()
    assert not lock._beat()


def test_a_request_that_boto3_repeats(lock: DynamoDbLock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of the first one was lost: the second one meets what the first one wrote."""
    put = lock._client.put_item

    def twice(**arguments: Any) -> Any:
        put(**arguments)
        return put(**arguments)

    monkeypatch.setattr(lock._client, "put_item", twice)
    assert lock.try_acquire(0)
    assert lock._beat()
    assert lock.is_held()


def test_a_heartbeat_that_fails(
    lock: DynamoDbLock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert lock.try_acquire(0)

    def refuse(**arguments: Any) -> Any:
        raise failed("InternalServerError")

    with monkeypatch.context() as patched:
        patched.setattr(lock._client, "put_item", refuse)
        assert lock._beat()
    assert "it is tried again" in caplog.text
    assert lock.is_held()
    boto3.client("dynamodb").delete_item(TableName="test_a_heartbeat_that_fails", Key={"key": {"S": "t"}})
    assert not lock._beat()
    assert not lock.is_held()
    assert "taken over" in caplog.text


@pytest.mark.parametrize(
    ("error", "may_pass", "text"),
    [
        (failed("AccessDeniedException"), False, "give the credentials the permissions"),
        (failed("ThrottlingException"), True, "check region, network"),
        (EndpointConnectionError(endpoint_url="http://x"), True, "Could not connect.*dynamodb.endpoint_url"),
    ],
)
def test_errors_of_the_server(
    lock: DynamoDbLock, monkeypatch: pytest.MonkeyPatch, error: Exception, may_pass: bool, text: str
) -> None:
    def refuse(**arguments: Any) -> Any:
        raise error

    assert lock.try_acquire(0)
    monkeypatch.setattr(lock._client, "get_item", refuse)
    assert not lock.is_held()
    assert "not known" in lock.holder()
    lock.release()
    with pytest.raises(LockError, match=text) as found:
        lock.try_acquire(5)
    assert found.value.may_pass is may_pass


def test_a_release_that_fails(
    lock: DynamoDbLock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(**arguments: Any) -> Any:
        raise failed("InternalServerError")

    assert lock.try_acquire(0)
    monkeypatch.setattr(lock._client, "delete_item", refuse)
    lock.release()
    assert "it ends with its lease" in caplog.text
    assert not lock.is_held()
