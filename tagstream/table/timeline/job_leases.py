"""The leases of jobs that write to one table at the same time, under its lock.

Each stream has a lease of its own (``.hoodie/.tagstream_leases/<hash of the stream's name>``), so a stream has one process.
A writer that takes no lock has the table's only lease (``.hoodie/.tagstream_lease``) and excludes all streams. Each side
writes its own lease before it reads the other's, so of two that start at the same moment at least one finds the other.

Two more leases of the folder are roles, which one stream at a time has: ``services`` plans and executes table services,
``turn`` may finish a batch before others begin a new one.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass

from tagstream.table.errors import LeaseLostError
from tagstream.table.storage.storage import META_FOLDER, Storage, each
from tagstream.table.timeline import lease as leases
from tagstream.table.timeline.lease import Lease, LeaseOwner, is_free, same_processes, taken

FOLDER = f"{META_FOLDER}/.tagstream_leases"
SERVICES, TURN = f"{FOLDER}/services", f"{FOLDER}/turn"
_STREAM, _CHECKPOINT, _LOCK = "stream", "checkpoint", "lock"
_IDENTIFIER = "hoodie.datasource.write.streaming.checkpoint.identifier"


@dataclass(frozen=True)
class Share:
    """A stream that shares its table: its name, its checkpoint's folder, and the place of the lock that it takes.

    ``is_local``: the lock excludes only threads of this process. ``is_same_stream`` and ``is_same_folder`` compare names.
    """

    stream_id: str
    checkpoint: str
    lock: str
    is_local: bool
    is_same_stream: Callable[[str, str], bool]
    is_same_folder: Callable[[str, str], bool]

    @property
    def file(self) -> str:
        """The register of this stream's lease."""
        return f"{FOLDER}/{hashlib.sha256(self.stream_id.encode()).hexdigest()[:16]}"

    @property
    def about(self) -> dict[str, str]:
        """What the lease says of the stream."""
        return {_STREAM: self.stream_id, _CHECKPOINT: self.checkpoint, _LOCK: self.lock}


def live_streams(storage: Storage, asking: LeaseOwner, now_ms: int) -> list[Lease]:
    """The leases of streams whose processes are alive, with that of the asking one."""
    names = {name.partition(".")[0] for name in storage.names(FOLDER)}
    files = [file for name in sorted(names) if (file := f"{FOLDER}/{name}") not in (SERVICES, TURN)]
    found = each(lambda file: leases.current(storage, file), files)
    return [lease for lease in found if lease is not None and not is_free(lease, asking, now_ms)]


def stream_of(lease: Lease) -> str:
    """The name of the stream that has a lease; empty for one that names none."""
    return (lease.about or {}).get(_STREAM, "")


def refuse_streams(storage: Storage, owner: LeaseOwner, now_ms: int) -> None:
    """LeaseLostError while a stream that shares the table is alive, for a writer that takes no lock."""
    for held in live_streams(storage, owner, now_ms):
        raise LeaseLostError(
            f"{taken(storage, held, now_ms)}. That job takes the lock at {(held.about or {}).get(_LOCK)}, and this program "
            "takes none: stop that job, or give this one the same hoodie.write.lock.provider, if it is a stream"
        )


def refuse_only_writer(storage: Storage, owner: LeaseOwner, now_ms: int) -> None:
    """LeaseLostError while a program that takes no lock writes to the table."""
    only = leases.current(storage)
    if only is not None and not is_free(only, owner, now_ms):
        raise LeaseLostError(
            f"{taken(storage, only, now_ms)}. That program takes no lock, so this job cannot write at the same time: stop "
            "it, wait, or give it the same hoodie.write.lock.provider as this job, if it is a stream"
        )


def refuse_others(storage: Storage, owner: LeaseOwner, share: Share, now_ms: int, *, own: Lease | None) -> Lease | None:
    """LeaseLostError while a writer is alive that this stream cannot share the table with. Returns this stream's newest
    lease.

    ``own``: this process's lease, None before it has one.
    """
    refuse_only_writer(storage, owner, now_ms)
    for held in live_streams(storage, owner, now_ms):
        if own is not None and (held.file, held.owner) == (own.file, own.owner):
            continue
        about = held.about or {}
        if share.is_same_stream(about.get(_STREAM, ""), share.stream_id):
            raise LeaseLostError(
                f"{taken(storage, held, now_ms)}. It is the same stream, {share.stream_id}: stop that process, wait, or "
                f"give this stream another name ({_IDENTIFIER}) and a checkpoint of its own"
            )
        if share.is_same_folder(about.get(_CHECKPOINT, ""), share.checkpoint):
            raise LeaseLostError(
                f"{taken(storage, held, now_ms)}, with the same checkpoint {share.checkpoint}: each stream needs a "
                "checkpoint of its own (--checkpoint-dir)"
            )
        same = about.get(_LOCK) == share.lock and (not share.is_local or same_processes(held.owner, owner))
        if not same or (share.is_local and held.owner.pid != owner.pid):
            raise LeaseLostError(
                f"{taken(storage, held, now_ms)}. That job takes the lock at {about.get(_LOCK)}, and this one the lock at "
                f"{share.lock}: all writers of a table must take the same lock (hoodie.write.lock.provider and its keys)"
            )
    return leases.current(storage, share.file)


class Role:
    """A lease that one stream at a time has, for as long as it wants."""

    def __init__(self, storage: Storage, file: str, owner: LeaseOwner, ttl_ms: int) -> None:
        self._storage, self._file, self._owner, self._ttl_ms = storage, file, owner, ttl_ms
        self._lease: Lease | None = None
        self._one_at_a_time = threading.Lock()  # a thread renews it

    def take(self, now_ms: int) -> bool:
        """Whether this stream has the role now; it takes the role if nobody has it."""
        with self._one_at_a_time:
            held = leases.current(self._storage, self._file)
            if self._lease is not None and held is not None and held.owner == self._owner and not held.released:
                return True
            self._lease = None
            if held is not None and held.owner != self._owner and not is_free(held, self._owner, now_ms):
                return False
            try:
                self._lease = leases.take(self._storage, self._owner, now_ms, self._ttl_ms, held, self._file)
            except LeaseLostError:
                return False
            return True

    def is_with_another(self, now_ms: int) -> bool:
        """Whether another live stream has the role."""
        held = leases.current(self._storage, self._file)
        return held is not None and held.owner != self._owner and not is_free(held, self._owner, now_ms)

    def renew(self, now_ms: int) -> None:
        """Extend the role, if this stream has it. Nothing happens when another one has taken it."""
        with self._one_at_a_time:
            if self._lease is not None:
                try:
                    self._lease = leases.renew(self._storage, self._lease, now_ms)
                except LeaseLostError:
                    self._lease = None

    def release(self) -> None:
        """Give the role back."""
        with self._one_at_a_time:
            lease, self._lease = self._lease, None
            if lease is not None:
                leases.release(self._storage, lease)
