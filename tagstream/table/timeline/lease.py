"""Which writers are alive: the writer lease, which one process at a time has, and the heartbeats of Hudi's writers.

The lease is a register of the storage (``.hoodie/.tagstream_lease``) with JSON content. Jobs that take the table's lock
have a lease each instead (``table.timeline.job_leases``). Taking, renewing and
releasing it are swaps that name the version that was read. So of two processes that take it one fails, and an owner
that was paused finds another version. A lease is free when it was released, when its process has ended (known only on
the same host, boot and PID namespace), or when it expired. A heartbeat is an empty file
``.hoodie/.heartbeat/<instant>`` whose modification time shows that a writer is alive. Hudi's writers with the lazy
clean policy touch it each minute and count as dead after three missed beats.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from tagstream.table.errors import CorruptFileError, LeaseLostError, StaleVersionError
from tagstream.table.storage.storage import META_FOLDER, Register, Storage


def process_stat(pid: int) -> list[str] | None:
    """The fields of ``/proc/PID/stat`` from the state on (the third of proc(5)); None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            # The command name may contain blanks and brackets: fields count from the last bracket.
            return f.read().rpartition(")")[2].split()
    except OSError:
        return None


LEASE_FILE = f"{META_FOLDER}/.tagstream_lease"


@dataclass(frozen=True)
class LeaseOwner:
    """A process, identified uniquely: ``process_start`` in clock ticks since boot, as the kernel counts.

    ``pid_namespace``: the namespace of ``pid``; empty where it is not known.
    """

    host: str
    boot_id: str
    pid: int
    process_start: int
    label: str = ""
    machine_id: str = ""
    pid_namespace: str = ""

    @staticmethod
    def this_process(label: str = "") -> LeaseOwner:
        """The calling process; ``label`` is for messages (for example the query's name)."""
        pid = os.getpid()
        return LeaseOwner(
            host=socket.gethostname(),
            boot_id=_first_line("/proc/sys/kernel/random/boot_id"),
            pid=pid,
            process_start=_process_start(pid) or 0,
            label=label,
            machine_id=_first_line("/etc/machine-id"),
            pid_namespace=_pid_namespace(),
        )


@dataclass(frozen=True)
class Lease:
    """A lease that ``owner`` has (or had) until ``expires_ms``; ``version`` is that of the register ``file``.

    Times are since 1970. ``about``: what a job that shares its table says of itself.
    """

    number: int
    owner: LeaseOwner
    expires_ms: int
    ttl_ms: int
    released: bool = False
    version: str = ""
    file: str = LEASE_FILE
    about: Mapping[str, str] | None = None

    @property
    def renewed_ms(self) -> int:
        """When the owner last renewed the lease, in milliseconds since 1970."""
        return self.expires_ms - self.ttl_ms


def acquire(storage: Storage, owner: LeaseOwner, now_ms: int, ttl_ms: int) -> Lease:
    """Take the lease for ``ttl_ms``; LeaseLostError naming the owner while another live process has it."""
    return take(storage, owner, now_ms, ttl_ms, check_free(storage, owner, now_ms))


def take(
    storage: Storage,
    owner: LeaseOwner,
    now_ms: int,
    ttl_ms: int,
    held: Lease | None,
    file: str = LEASE_FILE,
    about: Mapping[str, str] | None = None,
) -> Lease:
    """Take a lease that was free when it was read as ``held``; LeaseLostError when another process was first."""
    try:
        return _write(storage, Lease(0, owner, now_ms + ttl_ms, ttl_ms, file=file, about=about), held)
    except StaleVersionError:
        raise LeaseLostError(
            f"another process took the lease of {storage.root} at the same moment: try again"
        ) from None


def check_free(storage: Storage, owner: LeaseOwner, now_ms: int) -> Lease | None:
    """The newest lease, which is not changed; LeaseLostError naming the owner while another live process has it."""
    held = current(storage)
    if held is not None and held.owner != owner and not is_free(held, owner, now_ms):
        raise LeaseLostError(
            f"{taken(storage, held, now_ms)}: stop that writer, or wait. Streams that take the same lock "
            "(hoodie.write.lock.provider) may write at the same time (docs/operations/concurrency.md)"
        )
    return held


def taken(storage: Storage, held: Lease, now_ms: int) -> str:
    """Who has a lease and for how long, as the beginning of a message."""
    return (
        f"table {storage.root} is being written by {_name(held.owner)}; its lease lasts until "
        f"{_time_of_day(held.expires_ms)} ({max(0, held.expires_ms - now_ms) // 1000} s from now) and is renewed while that "
        "process lives"
    )


def renew(storage: Storage, lease: Lease, now_ms: int) -> Lease:
    """Extend the lease to ``ttl_ms`` after now; LeaseLostError when another process has taken it."""
    renewed = replace(lease, expires_ms=now_ms + lease.ttl_ms)
    try:
        return _write(storage, renewed, lease)
    except StaleVersionError:
        # An earlier renewal may have been written and still have raised an error: its version is not known here.
        newest = check(storage, lease)
    try:
        return _write(storage, renewed, newest)
    except StaleVersionError:
        raise _lost(storage, current(storage, lease.file)) from None


def check(storage: Storage, lease: Lease) -> Lease:
    """The newest lease; LeaseLostError unless it is its owner's. An expired lease that nobody has taken is not lost."""
    newest = current(storage, lease.file)
    if newest is None or newest.owner != lease.owner:
        raise _lost(storage, newest)
    return newest


def release(storage: Storage, lease: Lease) -> None:
    """Release the lease. A lease that was lost already is not changed."""
    with suppress(StaleVersionError):
        _write(storage, replace(lease, released=True), lease)


def current(storage: Storage, file: str = LEASE_FILE) -> Lease | None:
    """The newest lease in any state; None when the table never had one."""
    found = storage.read_register(file)
    return None if found is None else _parse(found, storage.where(file), file)


def _write(storage: Storage, lease: Lease, before: Lease | None) -> Lease:
    """Replace ``before`` by ``lease``; the number makes each content unique."""
    lease = replace(lease, number=before.number + 1 if before is not None else 1)
    content = asdict(lease)
    del content["version"], content["file"]
    if lease.about is None:
        del content["about"]  # earlier versions refuse it
    version = storage.swap(lease.file, json.dumps(content, indent=1).encode(), before.version if before else None)
    return replace(lease, version=version)


def is_free(lease: Lease, asking: LeaseOwner, now_ms: int) -> bool:
    """Whether a lease was released, has expired, or belongs to a process of this host that has ended."""
    if lease.released or now_ms >= lease.expires_ms:
        return True
    return same_processes(lease.owner, asking) and _process_start(lease.owner.pid) != lease.owner.process_start


def same_processes(one: LeaseOwner, other: LeaseOwner) -> bool:
    """Whether both owners see each other's processes: only then a missing process is dead.

    Hosts share names, clones share machine ids, and containers share host name and boot. Leases of earlier versions do
    not name their PID namespace: they end by expiry.
    """
    if not one.boot_id or not one.pid_namespace:
        return False
    mine = (one.host, one.boot_id, one.machine_id, one.pid_namespace)
    return mine == (other.host, other.boot_id, other.machine_id, other.pid_namespace)


def _parse(found: Register, where: str, file: str) -> Lease:
    try:
        content: dict[str, Any] = json.loads(found.data)
        return Lease(**{**content, "owner": LeaseOwner(**content["owner"])}, version=found.version, file=file)
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptFileError(
            f"{where} (version {found.version}) cannot be read as a lease ({error}): remove it when no writer is running"
        ) from None


def _lost(storage: Storage, newest: Lease | None) -> LeaseLostError:
    by = f" ({_name(newest.owner)})" if newest is not None else ""
    return LeaseLostError(
        f"the writer lease of {storage.root} was taken over by another process{by}: this process must not write any "
        "more and stops"
    )


def _time_of_day(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):  # no date of the calendar
        return f"{ms} ms after 1970"


def _name(owner: LeaseOwner) -> str:
    label = f" ({owner.label})" if owner.label else ""
    return f"process {owner.pid} on {owner.host}{label}"


def _first_line(path: str) -> str:
    try:
        with open(path) as f:
            return f.readline().strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _process_start(pid: int) -> int | None:
    """Start of a process in clock ticks since boot; None when there is no such process, or only a zombie."""
    fields = process_stat(pid)
    return None if fields is None or fields[0] in ("Z", "X") else int(fields[19])


HEARTBEAT_FOLDER = f"{META_FOLDER}/.heartbeat"
DEFAULT_TIMEOUT_MS = 180_000


def is_alive(storage: Storage, instant: str, now_ms: int, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> bool:
    """True when the heartbeat of a pending instant's writer is at most ``timeout_ms`` old."""
    beats = [entry.mtime_ms for entry in storage.list(HEARTBEAT_FOLDER) if entry.name == instant]
    return any(now_ms - beat <= timeout_ms for beat in beats)


def write_heartbeat(storage: Storage, instant: str) -> None:
    """Write the heartbeat of a pending instant: its writer is alive."""
    storage.replace(f"{HEARTBEAT_FOLDER}/{instant}", b"")


def delete_heartbeat(storage: Storage, instant: str) -> None:
    """Delete the heartbeat of an instant that is completed or rolled back."""
    storage.delete(f"{HEARTBEAT_FOLDER}/{instant}")
