"""Hudi's DynamoDBBasedLockProvider by boto3: the item of Amazon's DynamoDB lock client.

An item has ``key``, ``ownerName``, ``leaseDuration`` (milliseconds, as text) and ``recordVersionNumber``, which the holder
replaces by a new one in each third of the lease. No clocks are compared. Another writer takes the lock when the number has
not changed for the holder's lease, by its own clock since it first saw that number. A release deletes the item.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from tagstream.table.errors import ConfigError, LockError
from tagstream.table.locks.lock import LOG, Surroundings
from tagstream.table.locks.renewals import Renewals

_VERSION, _OWNER, _LEASE = "recordVersionNumber", "ownerName", "leaseDuration"
_HEARTBEATS = 3  # in a lease, as Hudi sets the lock client
_POLL_S = 1.0
_CREATION_POLL_S = 5.0
_CONDITION, _MISSING, _IN_USE = "ConditionalCheckFailedException", "ResourceNotFoundException", "ResourceInUseException"
_FINAL = ("AccessDeniedException", "UnrecognizedClientException", "ValidationException", "InvalidSignatureException")


@dataclass(frozen=True, kw_only=True)
class DynamoDbSettings:
    """``lease_ms`` is Hudi's ``wait_time_ms``. ``endpoint``: None for that of the region."""

    table: str
    key: str
    lease_ms: int
    region: str
    endpoint: str | None
    billing_mode: str
    read_capacity: int
    write_capacity: int
    creation_timeout_ms: int


class DynamoDbLock:
    """See Lock. The table of locks is created at the first try if it does not exist."""

    def __init__(self, settings: DynamoDbSettings, surroundings: Surroundings) -> None:
        self.place = f"DynamoDB {settings.region} table {settings.table} key {settings.key}"
        self._settings = settings
        self._here = surroundings
        self._owner = f"{surroundings.writer} {surroundings.new_id()}"
        self._client = _client(settings)
        self._is_ready = False
        self._guard = threading.Lock()  # of `_version` and `_until`, between this handle's thread and the heartbeats
        self._version: str | None = None
        self._until = 0.0
        self._heartbeats: Renewals | None = None
        self._seen: tuple[str, float] = ("", 0.0)

    def try_acquire(self, wait_s: float) -> bool:
        """See Lock. What was seen of another's lease is kept for the next try."""
        try:
            if not self._is_ready:
                self._make_table()
                self._is_ready = True
            return self._here.try_for(self._look, wait_s, min(_POLL_S, self._settings.lease_ms / 10_000))
        except (BotoCoreError, ClientError) as e:
            raise self._refused(e) from e

    def is_held(self) -> bool:
        """See Lock. The item must have the newest number, and its lease must not end in the next two requests."""
        with self._guard:
            if self._version is None:
                return False
            began = self._here.clock()
            try:
                item = self._item()
            except (BotoCoreError, ClientError):
                return False
            now = self._here.clock()
            if item is None or item.get(_VERSION) != self._version or item.get(_OWNER) != self._owner:
                return False
            return now + 2 * (now - began) < self._until

    def holder(self) -> str:
        """See Lock."""
        try:
            item = self._item()
        except (BotoCoreError, ClientError) as e:
            return f"a writer that is not known ({_short(e)})"
        if item is None or "isReleased" in item:
            return "nobody"
        return f"{item.get(_OWNER, 'a writer that left no name')}, with a lease of {item.get(_LEASE, '?')} ms"

    def release(self) -> None:
        """See Lock."""
        heartbeats, self._heartbeats = self._heartbeats, None
        if heartbeats is not None:
            heartbeats.end()
        with self._guard:
            version, self._version = self._version, None
            if version is None:
                return
            try:
                self._call("delete_item", Key=self._key, **_if_still(version, self._owner))
            except (BotoCoreError, ClientError) as e:
                if _code(e) == _CONDITION:
                    # A repeated request, whose first answer was lost, finds no item either.
                    LOG.warning("the lock at %s was taken over, or is gone already", self.place)
                else:
                    LOG.warning(
                        "the lock at %s could not be released (%s); it ends with its lease", self.place, _short(e)
                    )

    def close(self) -> None:
        """See Lock."""
        self.release()
        self._client.close()

    def _look(self) -> bool:
        item = self._item()
        if item is None:
            condition: dict[str, Any] = {
                "ConditionExpression": "attribute_not_exists(#k)",
                "ExpressionAttributeNames": {"#k": "key"},
            }
        else:
            version = item.get(_VERSION, "")
            if "isReleased" not in item and not self._has_ended(version, item):
                return False
            condition = _if_still(version)
        with self._guard:
            if not self._put(condition):
                return False
        self._heartbeats = Renewals(self._settings.lease_ms / 1000 / _HEARTBEATS, self._beat)
        return True

    def _has_ended(self, version: str, item: Mapping[str, str]) -> bool:
        """Whether the number has been the same for a whole lease of its holder, by this process's clock."""
        now = self._here.clock()
        if self._seen[0] != version:
            self._seen = version, now
        lease = item.get(_LEASE, "")
        if not lease.isdigit():
            raise LockError(
                f"the lock at {self.place} has the {_LEASE} {lease!r}, which is not a number of milliseconds: delete the "
                "item when no writer is running",
                may_pass=False,
            )
        return now - self._seen[1] >= int(lease) / 1000

    def _put(self, condition: Mapping[str, Any]) -> bool:
        """Write the item with a new number. The lease counts from before the request: nobody has seen the number then."""
        began, version = self._here.clock(), self._here.new_id()
        values = {"key": self._settings.key, _OWNER: self._owner, _LEASE: str(self._settings.lease_ms)}
        item = {name: {"S": value} for name, value in {**values, _VERSION: version}.items()}
        try:
            self._call("put_item", Item=item, **condition)
        except ClientError as e:
            if _code(e) != _CONDITION:
                raise
            # boto3 repeats a request that got no answer: the first one may have been executed.
            found = self._item()
            if found is None or found.get(_VERSION) != version:
                return False
        self._version, self._until = version, began + self._settings.lease_ms / 1000
        return True

    def _beat(self) -> bool:
        """Make the lease longer. False when it is lost; an error that may pass is left to the next heartbeat."""
        with self._guard:
            if self._version is None:
                return False
            try:
                if self._put(_if_still(self._version, self._owner)):
                    return True
            except (BotoCoreError, ClientError) as e:
                LOG.warning("the lock at %s was not renewed (%s); it is tried again", self.place, _short(e))
                return True
            LOG.error("the lock at %s was taken over by another writer: nothing more is published", self.place)
            self._version = None
            return False

    def _make_table(self) -> None:
        if self._status() is None:
            settings = self._settings
            capacity = {"ReadCapacityUnits": settings.read_capacity, "WriteCapacityUnits": settings.write_capacity}
            try:
                self._call(
                    "create_table",
                    KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
                    AttributeDefinitions=[{"AttributeName": "key", "AttributeType": "S"}],
                    BillingMode=settings.billing_mode,
                    **({"ProvisionedThroughput": capacity} if settings.billing_mode == "PROVISIONED" else {}),
                )
            except ClientError as e:
                if _code(e) != _IN_USE:  # another writer creates it at this moment
                    raise
        limit_s = self._settings.creation_timeout_ms / 1000
        if not self._here.try_for(lambda: self._status() in ("ACTIVE", "UPDATING"), limit_s, _CREATION_POLL_S):
            raise LockError(f"the lock at {self.place}: the new table cannot be used after {limit_s:.0f} s; try again")

    def _status(self) -> str | None:
        try:
            found: str = self._call("describe_table")["Table"]["TableStatus"]
        except ClientError as e:
            if _code(e) == _MISSING:
                return None
            raise
        return found

    def _item(self) -> dict[str, str] | None:
        """The item's texts; None when there is none."""
        found = self._call("get_item", Key=self._key, ConsistentRead=True).get("Item")
        return None if found is None else {name: str(value.get("S", "")) for name, value in found.items()}

    @property
    def _key(self) -> dict[str, Any]:
        return {"key": {"S": self._settings.key}}

    def _call(self, name: str, **arguments: Any) -> Any:
        call: Callable[..., Any] = getattr(self._client, name)
        return call(TableName=self._settings.table, **arguments)

    def _refused(self, error: BotoCoreError | ClientError) -> LockError:
        final = _code(error) in _FINAL or isinstance(error, NoCredentialsError)
        advice = (
            "give the credentials the permissions dynamodb:DescribeTable, CreateTable, GetItem, PutItem and DeleteItem on "
            "that table"
            if final
            else "check region, network and hoodie.write.lock.dynamodb.endpoint_url"
        )
        return LockError(f"the lock at {self.place} cannot be taken ({_short(error)}): {advice}", may_pass=not final)


def _if_still(version: str, owner: str | None = None) -> dict[str, Any]:
    """The condition that the item has this number, and this owner."""
    names, values, text = {"#r": _VERSION}, {":r": {"S": version}}, "#r = :r"
    if owner is not None:
        names, values, text = {**names, "#o": _OWNER}, {**values, ":o": {"S": owner}}, "#r = :r AND #o = :o"
    return {
        "ConditionExpression": text,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }


def _client(settings: DynamoDbSettings) -> Any:
    # Requests that take longer than a fifth of the lease are repeated, so that a heartbeat is not late.
    limit_s = max(1.0, settings.lease_ms / 5000)
    config = Config(connect_timeout=min(5.0, limit_s), read_timeout=limit_s, retries={"total_max_attempts": 4})
    endpoint = settings.endpoint
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        endpoint = f"https://{endpoint}"
    try:
        return boto3.client("dynamodb", region_name=settings.region, endpoint_url=endpoint, config=config)
    except (BotoCoreError, ValueError) as e:
        raise ConfigError(
            f"hoodie.write.lock.dynamodb: no client for region {settings.region} and endpoint {endpoint}: {e}; correct "
            "them, or the profile of the credentials"
        ) from e


def _code(error: Exception) -> str:
    return str(error.response["Error"]["Code"]) if isinstance(error, ClientError) else ""


def _short(error: Exception) -> str:
    return str(error).splitlines()[0][:300] if str(error) else type(error).__name__
