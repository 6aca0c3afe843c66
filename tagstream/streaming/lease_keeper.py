"""Keeps the table's writer lease alive in the background while a batch runs, and tells the sink when it is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tagstream.table.errors import LeaseLostError
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline import lease as leases
from tagstream.table.timeline.lease import Lease, LeaseOwner, delete_heartbeat, write_heartbeat

LEASE_TTL_MS = 60_000


class LeaseKeeper:
    """Holds the lease from :meth:`acquire` to :meth:`release`; renewed three times per time to live.

    ``seen_ms``: the last sign of life of a holder that never gave it back; None: the one before did.
    """

    def __init__(self, storage: Storage, clock_ms: Callable[[], int], ttl_ms: int = LEASE_TTL_MS) -> None:
        self._storage = storage
        self._clock_ms = clock_ms
        self._ttl_ms = ttl_ms
        self.seen_ms: int | None = None
        self._lease: Lease | None = None
        self._lost: LeaseLostError | None = None
        self._end = threading.Event()
        self._instant: str | None = None
        self._thread = threading.Thread(target=self._keep, name="table-lease", daemon=True)

    def acquire(self, label: str) -> None:
        """Take the lease and begin to renew it; LeaseLostError names the holder when another process writes."""
        owner = LeaseOwner.this_process(label)
        now_ms = self._clock_ms()
        held = leases.check_free(self._storage, owner, now_ms)
        self._lease = leases.take(self._storage, owner, now_ms, self._ttl_ms, held)
        if held is not None and not held.released:
            self.seen_ms = held.renewed_ms
        self._thread.start()

    def check(self) -> None:
        """LeaseLostError unless this process still is the one writer."""
        if self._lost is not None:
            raise self._lost
        assert self._lease is not None
        leases.check(self._storage, self._lease)

    def beat(self, instant: str | None) -> None:
        """Give signs of life for a pending write from now on, or (None) stop.

        Writers of Hudi with the lazy clean policy roll back a pending write without a heartbeat.
        """
        before, self._instant = self._instant, instant
        if before is not None:
            delete_heartbeat(self._storage, before)
        if instant is not None:
            write_heartbeat(self._storage, instant)

    def release(self) -> None:
        """Stop renewing and give the lease back."""
        self._end.set()
        if self._lease is None:
            return
        self._thread.join()
        leases.release(self._storage, self._lease)

    def _keep(self) -> None:
        while not self._end.wait(self._ttl_ms / 3000):
            try:
                assert self._lease is not None
                self._lease = leases.renew(self._storage, self._lease, self._clock_ms())
                if (instant := self._instant) is not None:
                    write_heartbeat(self._storage, instant)
            except LeaseLostError as e:
                self._lost = e
                return
            except OSError:
                continue  # a full disk or a slow mount: the next turn tries again, expiry decides
