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


def test_another_process_with_the_same_pid_is_not_the_owner(storage: Storage) -> None:
    lease.acquire(storage, replace(ME, process_start=ME.process_start - 1), 0, TTL)
    assert lease.acquire(storage, ME, 1, TTL).owner == ME


def test_an_earlier_boot_of_this_host_is_dead(storage: Storage) -> None:
    lease.acquire(storage, replace(ME, boot_id="before"), 0, TTL)
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


def test_a_damaged_lease_is_named(storage: Storage) -> None:
    storage.write_new(".hoodie/.tagstream_lease.1", b"{")
    with pytest.raises(CorruptFileError, match="tagstream_lease"):
        lease.acquire(storage, ME, 0, TTL)
