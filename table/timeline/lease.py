"""The writer lease: one process at a time may commit to a table.

``.hoodie/.tagstream_lease.<n>`` is a JSON file; the greatest ``n`` is the lease. Only its owner rewrites it, and
taking it over is the exclusive creation of ``n + 1``: two takers cannot both succeed, and an owner that was paused
sees the greater number when it looks. A lease is free when it was released, when its process is gone (known on the
same host and boot only), or when it has not been renewed before it expired.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict, dataclass, replace
from typing import Any

from tagstream.table.errors import CorruptFileError, LeaseLostError
from tagstream.table.storage.storage import META_FOLDER, Storage

LEASE_PREFIX = ".tagstream_lease."


@dataclass(frozen=True)
class LeaseOwner:
    """A process, told from every other one: ``process_start`` in clock ticks since boot, as the kernel counts."""

    host: str
    boot_id: str
    pid: int
    process_start: int
    label: str = ""

    @staticmethod
    def this_process(label: str = "") -> LeaseOwner:
        """The calling process; ``label`` is shown to people (for example the query's name)."""
        pid = os.getpid()
        return LeaseOwner(socket.gethostname(), _boot_id(), pid, _process_start(pid) or 0, label)


@dataclass(frozen=True)
class Lease:
    """A lease held (or last held) by ``owner`` until ``expires_ms``."""

    number: int
    owner: LeaseOwner
    expires_ms: int
    ttl_ms: int
    released: bool = False


def acquire(storage: Storage, owner: LeaseOwner, now_ms: int, ttl_ms: int) -> Lease:
    """Take the lease; LeaseLostError naming the holder while it is another live process's."""
    held = current(storage)
    if held is not None and held.owner != owner and not _is_free(held, owner, now_ms):
        raise LeaseLostError(
            f"table {storage.root} is being written by {_name(held.owner)}; its lease lasts until {held.expires_ms} ms "
            f"({max(0, held.expires_ms - now_ms) // 1000} s from now): stop that writer or wait"
        )
    lease = Lease((held.number if held else 0) + 1, owner, now_ms + ttl_ms, ttl_ms)
    try:
        storage.write_new(_path(lease.number), _dump(lease))
    except FileExistsError:
        raise LeaseLostError(
            f"another process took the lease of {storage.root} at the same moment: try again"
        ) from None
    check(storage, lease)
    for number in _numbers(storage):
        if number < lease.number:
            storage.delete(_path(number))
    return lease


def renew(storage: Storage, lease: Lease, now_ms: int) -> Lease:
    """Push the expiry ``ttl_ms`` past now; LeaseLostError when someone else has taken the lease."""
    check(storage, lease)
    renewed = replace(lease, expires_ms=now_ms + lease.ttl_ms)
    storage.replace(_path(lease.number), _dump(renewed))
    check(storage, lease)
    return renewed


def check(storage: Storage, lease: Lease) -> None:
    """LeaseLostError unless this is still the newest lease. Expiry alone loses nothing while nobody took over."""
    newest = max(_numbers(storage), default=0)
    if newest != lease.number:
        raise LeaseLostError(
            f"the writer lease of {storage.root} was taken over by another process (lease {newest}, this process had "
            f"{lease.number}): this one must not write any more and stops"
        )


def release(storage: Storage, lease: Lease) -> None:
    """Give the lease back; one that was lost already is left alone."""
    if max(_numbers(storage), default=0) == lease.number:
        storage.replace(_path(lease.number), _dump(replace(lease, released=True)))


def current(storage: Storage) -> Lease | None:
    """The newest lease, whatever its state; None when the table never had one."""
    for number in sorted(_numbers(storage), reverse=True):
        try:
            data = storage.read(_path(number))
        except FileNotFoundError:
            continue  # cleaned by a newer owner between the listing and the read
        return _parse(data, storage.where(_path(number)))
    return None


def _is_free(lease: Lease, asking: LeaseOwner, now_ms: int) -> bool:
    if lease.released or now_ms >= lease.expires_ms:
        return True
    owner = lease.owner
    if owner.host != asking.host:
        return False
    # Another boot of the same host: nothing that ran then is alive.
    return owner.boot_id != asking.boot_id or _process_start(owner.pid) != owner.process_start


def _numbers(storage: Storage) -> list[int]:
    tails = (entry.name[len(LEASE_PREFIX) :] for entry in storage.list(META_FOLDER, (LEASE_PREFIX,)))
    return [int(tail) for tail in tails if tail.isdigit()]


def _path(number: int) -> str:
    return f"{META_FOLDER}/{LEASE_PREFIX}{number}"


def _dump(lease: Lease) -> bytes:
    return json.dumps(asdict(lease), indent=1).encode()


def _parse(data: bytes, where: str) -> Lease:
    try:
        content: dict[str, Any] = json.loads(data)
        return Lease(**{**content, "owner": LeaseOwner(**content["owner"])})
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptFileError(f"{where} is no readable lease ({error}): remove it when no writer is running") from None


def _name(owner: LeaseOwner) -> str:
    label = f" ({owner.label})" if owner.label else ""
    return f"process {owner.pid} on {owner.host}{label}"


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as f:
            return f.read().strip()
    except OSError:
        return ""


def _process_start(pid: int) -> int | None:
    """Start of a process in clock ticks since boot; None when there is no such process (a zombie counts as none)."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            # The command name before may hold blanks and brackets: fields count from the last bracket.
            fields = f.read().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else int(fields[19])
