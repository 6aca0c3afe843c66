"""The lock object: its bytes, renewals, and what a store that fails does to it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tagstream.table.errors import LockError, StaleVersionError, StoreError
from tagstream.table.locks.lock import Surroundings
from tagstream.table.locks.storage_based import AUDIT_SWITCH, LOCK_FILE, StorageBasedLock
from tagstream.table.storage.storage import Register

NOW = 1_700_000_000_000


class Store:
    """The part of a storage that the lock uses, in memory. ``failing``: raised by each call; ``delay_s``: of a request."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.versions = itertools.count(1)
        self.version = ""
        self.failing: Exception | None = None
        self.delay_s = 0.0
        self.now_s = 0.0

    def where(self, rel: str) -> str:
        return f"s3a://b/{rel}"

    def _request(self) -> None:
        self.now_s += self.delay_s
        if self.failing is not None:
            raise self.failing

    def read(self, rel: str) -> bytes:
        self._request()
        if rel not in self.files:
            raise FileNotFoundError(rel)
        return self.files[rel]

    def replace(self, rel: str, data: bytes) -> None:
        self._request()
        self.files[rel] = data

    def read_register(self, rel: str) -> Register | None:
        self._request()
        return Register(self.files[rel], self.version) if rel in self.files else None

    def swap(self, rel: str, data: bytes, expected: str | None) -> str:
        self._request()
        if (expected or "") != self.version:
            raise StaleVersionError(rel)
        assert data != self.files.get(rel)
        self.files[rel], self.version = data, str(next(self.versions))
        return self.version

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def store() -> Store:
    return Store()


def made(store: Any, writer: str = "my job/1", skew_ms: int = 0) -> StorageBasedLock:
    here = Surroundings(
        writer=writer,
        new_id=lambda: "id",
        wall_ms=lambda: NOW + skew_ms + round(store.now_s * 1000),
        clock=lambda: store.now_s,
        sleep=store.sleep,
    )
    return StorageBasedLock(store, 10, 3600, here)  # no renewal in the time of a test


def test_bytes_are_those_of_hudi(store: Store) -> None:
    lock = made(store)
    assert lock.try_acquire(0)
    assert store.files[LOCK_FILE] == b'{"expired":false,"validUntil":1700000010000,"owner":"my-job-1-id"}'
    lock.release()
    assert store.files[LOCK_FILE] == b'{"expired":true,"validUntil":1700000010000,"owner":"my-job-1-id"}'


def test_a_renewal_makes_it_valid_for_longer(store: Store) -> None:
    lock = made(store)
    assert lock.try_acquire(0)
    assert lock._renew()  # at the same millisecond: the ETag would be the same
    store.sleep(3)
    assert lock._renew()
    assert store.files[LOCK_FILE] == b'{"expired":false,"validUntil":1700000013000,"owner":"my-job-1-id"}'
    store.sleep(9)
    assert lock.is_held()
    lock.release()
    assert not lock._renew()


def test_it_is_not_held_shortly_before_its_end(store: Store) -> None:
    """Two requests and the difference of two clocks must be left."""
    lock = made(store)
    assert lock.try_acquire(0)
    store.delay_s = 0.5
    store.sleep(7.9)
    assert lock.is_held()
    store.sleep(0.2)
    assert not lock.is_held()
    store.delay_s = 0
    assert lock.is_held()
    store.sleep(1)
    assert not lock.is_held()


@pytest.mark.parametrize(("after_s", "taken"), [(10.5, False), (10.501, True)])
def test_others_wait_for_the_difference_of_clocks(store: Store, after_s: float, taken: bool) -> None:
    assert made(store).try_acquire(0)
    store.sleep(after_s)
    assert made(store, "other").try_acquire(0) is taken


def test_a_clock_that_is_late_does_not_make_it_held(store: Store) -> None:
    late, other = made(store, skew_ms=-3_600_000), made(store, "other")
    assert late.try_acquire(0)
    assert other.try_acquire(0)  # its end is an hour ago
    assert not late.is_held()
    late.release()
    assert other.is_held()


def test_an_expired_lock_that_nobody_took_is_valid_again(store: Store) -> None:
    lock = made(store)
    assert lock.try_acquire(0)
    store.sleep(60)
    assert not lock.is_held()
    assert lock._renew()
    assert lock.is_held()


def test_a_lock_that_another_took_cannot_be_renewed(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    lock, other = made(store), made(store, "other")
    assert lock.try_acquire(0)
    store.sleep(11)
    assert other.try_acquire(0)
    assert not lock._renew()
    assert "taken over by another writer" in caplog.text
    store.sleep(1)
    assert not lock._renew()
    lock.release()
    assert other.is_held()


def test_a_store_that_fails_for_a_while(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    lock = made(store)
    assert lock.try_acquire(0)
    store.failing = StoreError(5, "the store is overloaded", "s3a://b/x")
    store.sleep(1)
    assert lock._renew()  # the next one may succeed
    assert not lock.is_held()
    assert "not known" in lock.holder()
    with pytest.raises(LockError, match="overloaded") as error:
        made(store, "other").try_acquire(5)
    assert error.value.may_pass
    store.failing = None
    assert lock.is_held()
    store.failing = StoreError(5, "the store is overloaded", "s3a://b/x")
    lock.release()
    assert "it ends when it expires" in caplog.text


def test_rights_that_are_missing(store: Store) -> None:
    store.failing = StoreError(13, "the store refused the request", "s3a://b/x")
    with pytest.raises(LockError, match="refused") as error:
        made(store).try_acquire(5)
    assert not error.value.may_pass


def test_the_audit_file(store: Store) -> None:
    store.files[AUDIT_SWITCH] = b'{"STORAGE_LOCK_AUDIT_SERVICE_ENABLED": true}'
    lock = made(store)
    assert lock.try_acquire(0)
    store.sleep(2)
    assert lock._renew()
    lock.release()
    (name,) = (name for name in store.files if "/audit/" in name)
    assert name == f".hoodie/.locks/audit/{NOW}_my-job-1-id.jsonl"
    assert store.files[name].decode().splitlines() == [
        '{"transactionStartTime":1700000000000,"lockHeld":true,"state":"START","lockExpiration":1700000010000,'
        '"ownerId":"my-job-1-id","timestamp":1700000000000}',
        '{"transactionStartTime":1700000000000,"lockHeld":true,"state":"RENEW","lockExpiration":1700000012000,'
        '"ownerId":"my-job-1-id","timestamp":1700000002000}',
        '{"transactionStartTime":1700000000000,"lockHeld":true,"state":"END","lockExpiration":1700000012000,'
        '"ownerId":"my-job-1-id","timestamp":1700000002000}',
    ]


@pytest.mark.parametrize("switch", [b"", b"[]", b'{"STORAGE_LOCK_AUDIT_SERVICE_ENABLED": false}', b'{"x": true}'])
def test_no_audit_file(store: Store, switch: bytes) -> None:
    store.files[AUDIT_SWITCH] = switch
    lock = made(store)
    assert lock.try_acquire(0)
    lock.release()
    assert set(store.files) == {AUDIT_SWITCH, LOCK_FILE}
