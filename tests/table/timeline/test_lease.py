"""One writer a table: a lease that a live process keeps and a dead one does not."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Thread

import pytest

from tagstream.table.errors import CorruptFileError, LeaseLostError
from tagstream.table.storage.opening import open_storage
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline import lease
from tagstream.table.timeline.lease import LeaseOwner

ME = LeaseOwner.this_process("query a")
ELSEWHERE = replace(ME, host="another-host", label="query b")
TTL = 60_000


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    (tmp_path / ".hoodie").mkdir()
    return open_storage(str(tmp_path))


def test_a_live_owner_keeps_it_until_it_expires(storage: Storage) -> None:
    held = lease.acquire(storage, ME, 0, TTL)
    with pytest.raises(LeaseLostError, match=r"query a.*59 s"):
        lease.acquire(storage, ELSEWHERE, 10, TTL)
    held = lease.renew(storage, held, 30_000)
    with pytest.raises(LeaseLostError):
        lease.acquire(storage, ELSEWHERE, TTL + 1, TTL)
    taken = lease.acquire(storage, ELSEWHERE, 30_000 + TTL, TTL)
    lease.check(storage, taken)
    for step in (lambda: lease.check(storage, held), lambda: lease.renew(storage, held, 31_000)):
        with pytest.raises(LeaseLostError, match="taken over"):
            step()
    lease.release(storage, held)  # the loser's release must not free the winner's lease
    with pytest.raises(LeaseLostError, match="query b"):
        lease.acquire(storage, ME, 95_000, TTL)


def test_expiry_alone_loses_nothing(storage: Storage) -> None:
    held = lease.acquire(storage, ME, 0, TTL)
    lease.check(storage, held)
    assert lease.renew(storage, held, 10 * TTL).expires_ms == 11 * TTL


def test_released_is_free_at_once(storage: Storage) -> None:
    lease.release(storage, lease.acquire(storage, ME, 0, TTL))
    assert lease.acquire(storage, ELSEWHERE, 1, TTL).owner == ELSEWHERE


def test_a_dead_process_of_this_host_is_taken_over_at_once(storage: Storage) -> None:
    script = (
        "import dataclasses, json; from tagstream.table.timeline.lease import LeaseOwner; "
        "print(json.dumps(dataclasses.asdict(LeaseOwner.this_process())))"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stdin=subprocess.PIPE) as process:
        output, _ = process.communicate()
    dead = LeaseOwner(**json.loads(output))
    assert dead.pid == process.pid
    lease.acquire(storage, dead, 0, TTL)
    assert lease.acquire(storage, ME, 1, TTL).owner == ME


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"host": "another-host"},
        {"boot_id": "another machine of the same name, or an earlier boot"},
        {"machine_id": "another machine"},
        {"pid_namespace": "pid:[4711]"},
        {"pid_namespace": ""},  # of an earlier version of this program
        {"boot_id": "", "pid_namespace": ""},
    ],
)
def test_a_process_that_could_not_be_seen_is_not_taken_for_dead(storage: Storage, elsewhere: dict[str, str]) -> None:
    gone = replace(ME, pid=ME.pid, process_start=ME.process_start - 1, **elsewhere)
    lease.acquire(storage, gone, 0, TTL)
    with pytest.raises(LeaseLostError, match="query a"):
        lease.acquire(storage, ME, TTL - 1, TTL)
    assert lease.acquire(storage, ME, TTL, TTL).owner == ME


def test_this_process_tells_where_it_is() -> None:
    assert ME.pid_namespace.startswith("pid:[")
    assert ME.boot_id


def test_another_process_with_the_same_pid_is_not_the_owner(storage: Storage) -> None:
    lease.acquire(storage, replace(ME, process_start=ME.process_start - 1), 0, TTL)
    assert lease.acquire(storage, ME, 1, TTL).owner == ME


def test_only_one_of_many_takers_gets_it(storage: Storage) -> None:
    lease.acquire(storage, ELSEWHERE, 0, TTL)
    barrier, won, lost = Barrier(8), [], []

    def take(n: int) -> None:
        barrier.wait()
        try:
            won.append(lease.acquire(storage, replace(ELSEWHERE, pid=n, host=f"h{n}"), TTL, TTL))
        except LeaseLostError:
            lost.append(n)

    threads = [Thread(target=take, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert len(lost) == 7
    lease.check(storage, won[0])


def test_a_lease_of_an_earlier_version_is_kept_and_taken_over(storage: Storage) -> None:
    """A file with a number; its owner tells neither machine nor name space, and a renewal rewrote it in its place."""
    owner = {"host": "h", "boot_id": "b", "pid": 1, "process_start": 2, "label": "old"}
    old = {"number": 7, "owner": owner, "expires_ms": TTL, "ttl_ms": TTL, "released": False}
    storage.write_new(".hoodie/.tagstream_lease.7", json.dumps(old).encode())
    with pytest.raises(LeaseLostError, match="old"):
        lease.acquire(storage, ME, 1, TTL)
    assert lease.acquire(storage, ME, TTL, TTL).number == 8
    assert [e.name for e in storage.list(".hoodie")] == [".tagstream_lease.8"]  # the old one finds a greater number


def test_a_renewal_that_failed_after_it_was_carried_out(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    held = lease.acquire(storage, ME, 0, TTL)
    real = PosixStorage.swap

    def swap(self: PosixStorage, rel: str, data: bytes, expected: str | None) -> str:
        real(self, rel, data, expected)
        raise OSError("no answer")

    monkeypatch.setattr(PosixStorage, "swap", swap)
    with pytest.raises(OSError, match="no answer"):
        lease.renew(storage, held, 10)
    monkeypatch.undo()
    lease.check(storage, held)
    assert lease.renew(storage, held, 20).expires_ms == 20 + TTL


def test_every_renewal_has_another_content(storage: Storage) -> None:
    held = lease.acquire(storage, ME, 0, TTL)
    seen = {storage.read(f".hoodie/.tagstream_lease.{held.number}")}
    for _ in range(3):
        held = lease.renew(storage, held, 0)
        seen.add(storage.read(f".hoodie/.tagstream_lease.{held.number}"))
    assert len(seen) == 4


def test_a_damaged_lease_is_named(storage: Storage) -> None:
    storage.write_new(".hoodie/.tagstream_lease.1", b"{")
    with pytest.raises(CorruptFileError, match="tagstream_lease"):
        lease.acquire(storage, ME, 0, TTL)
