"""Renews this process's lease of the table in the background, and tells the sink when it is lost.

Alone, the process has the table's only lease. A stream that takes the table's lock shares the table with other streams: it
has a lease of its own, and roles that one of the streams has at a time (``table.timeline.job_leases``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tagstream.table.errors import LeaseLostError
from tagstream.table.locks.renewals import Renewals
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline import job_leases
from tagstream.table.timeline import lease as leases
from tagstream.table.timeline.job_leases import Role, Share
from tagstream.table.timeline.lease import Lease, LeaseOwner, delete_heartbeat, write_heartbeat

LEASE_TTL_MS = 60_000
# The leases that this process holds: two streams with one name in one process have the same owner.
_held: set[tuple[str, str, LeaseOwner]] = set()
_guard = threading.Lock()


class LeaseKeeper:
    """Holds the lease from :meth:`acquire` to :meth:`release`, and renews it three times per time to live.

    ``share``: the stream that shares the table with others; None for a process that is its only writer. ``seen_ms``: when
    a previous holder that did not release the lease last renewed it; None: it was released.
    """

    def __init__(
        self, storage: Storage, clock_ms: Callable[[], int], ttl_ms: int = LEASE_TTL_MS, share: Share | None = None
    ) -> None:
        self._storage = storage
        self._clock_ms = clock_ms
        self._ttl_ms = ttl_ms
        self._share = share
        self.seen_ms: int | None = None
        self._lease: Lease | None = None
        self._lost: LeaseLostError | None = None
        self._instant: str | None = None
        self._renewals: Renewals | None = None
        self._services: Role | None = None
        self._turn: Role | None = None
        self._place: tuple[str, str, LeaseOwner] | None = None

    @property
    def is_shared(self) -> bool:
        """Whether other streams may write to the table at the same time."""
        return self._share is not None

    def acquire(self, label: str) -> None:
        """Take the lease and begin to renew it. LeaseLostError names the holder when another process writes that this
        one cannot write next to.
        """
        owner, share = LeaseOwner.this_process(label), self._share
        place = (self._storage.root, leases.LEASE_FILE if share is None else share.file, owner)
        with _guard:
            if place in _held:
                raise LeaseLostError(
                    f"table {self._storage.root} is being written by another query of this process ({label}): stop that "
                    "query, or give each of them a lock (hoodie.write.lock.provider), a checkpoint and a name of its own "
                    "(hoodie.datasource.write.streaming.checkpoint.identifier)"
                )
            _held.add(place)
        self._place = place
        try:
            self._acquire(owner, share)
        except BaseException:
            self._forget_place()
            raise

    def _forget_place(self) -> None:
        if self._place is not None:
            with _guard:
                _held.discard(self._place)

    def _acquire(self, owner: LeaseOwner, share: Share | None) -> None:
        if share is None:
            held = leases.check_free(self._storage, owner, self._clock_ms())
            job_leases.refuse_streams(self._storage, owner, self._clock_ms())
            lease = leases.take(self._storage, owner, self._clock_ms(), self._ttl_ms, held)
        else:
            held = job_leases.refuse_others(self._storage, owner, share, self._clock_ms(), own=None)
            lease = leases.take(self._storage, owner, self._clock_ms(), self._ttl_ms, held, share.file, share.about)
        try:  # one that has taken its lease at the same moment
            if share is None:
                job_leases.refuse_streams(self._storage, owner, self._clock_ms())
            else:
                job_leases.refuse_others(self._storage, owner, share, self._clock_ms(), own=lease)
                self._services = Role(self._storage, job_leases.SERVICES, owner, self._ttl_ms)
                self._turn = Role(self._storage, job_leases.TURN, owner, self._ttl_ms)
        except LeaseLostError:
            leases.release(self._storage, lease)
            raise
        self._lease = lease
        if held is not None and not held.released:
            self.seen_ms = held.renewed_ms
        self._renewals = Renewals(self._ttl_ms / 3000, self._renew, "table-lease")

    def check(self) -> None:
        """LeaseLostError unless this process still holds the lease."""
        if self._lost is not None:
            raise self._lost
        assert self._lease is not None
        leases.check(self._storage, self._lease)
        if self._share is not None:
            job_leases.refuse_only_writer(self._storage, self._lease.owner, self._clock_ms())

    def leads(self) -> bool:
        """Whether this stream does the table services. Of several streams the first that asks does them, to its end."""
        return self._services is None or self._services.take(self._clock_ms())

    def others_lead(self) -> bool:
        """Whether another live stream does the table services, so that their plans are not this stream's."""
        return self._services is not None and self._services.is_with_another(self._clock_ms())

    def take_turn(self) -> bool:
        """Ask the other streams not to begin a batch until :meth:`end_turn`. False if another stream has asked."""
        return self._turn is None or self._turn.take(self._clock_ms())

    def end_turn(self) -> None:
        """The batch that others waited for is committed, or waits itself."""
        if self._turn is not None:
            self._turn.release()

    def must_wait(self) -> bool:
        """Whether another stream has asked the others not to begin a batch."""
        return self._turn is not None and self._turn.is_with_another(self._clock_ms())

    def is_alive(self, stream_id: str) -> bool:
        """Whether another stream with this name has a process that is alive."""
        share, lease = self._share, self._lease
        if share is None or lease is None:
            return False
        running = job_leases.live_streams(self._storage, lease.owner, self._clock_ms())
        return any(
            other.file != share.file and share.is_same_stream(job_leases.stream_of(other), stream_id)
            for other in running
        )

    def beat(self, instant: str | None) -> None:
        """Write heartbeats for a pending write from now on, or (None) stop.

        Hudi writers with the lazy clean policy roll back a pending write without a heartbeat.
        """
        before, self._instant = self._instant, instant
        if before is not None:
            delete_heartbeat(self._storage, before)
        if instant is not None:
            write_heartbeat(self._storage, instant)

    def release(self) -> None:
        """Stop renewing and release the lease."""
        if self._renewals is not None:
            self._renewals.end()
        try:
            for role in (self._turn, self._services):
                if role is not None:
                    role.release()
            if self._lease is not None:
                leases.release(self._storage, self._lease)
        finally:
            self._forget_place()

    def _renew(self) -> bool:
        """False when the lease is lost."""
        try:
            assert self._lease is not None
            self._lease = leases.renew(self._storage, self._lease, self._clock_ms())
            for role in (self._turn, self._services):
                if role is not None:
                    role.renew(self._clock_ms())
            if (instant := self._instant) is not None:
                write_heartbeat(self._storage, instant)
        except LeaseLostError as e:
            self._lost = e
            return False
        except OSError:
            pass  # a full disk or a slow mount: the next round tries again; the lease may expire meanwhile
        return True
