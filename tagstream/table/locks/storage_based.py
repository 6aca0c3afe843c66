"""Hudi's StorageBasedLockProvider (RFC-91): one small object in the table's store, changed by conditional puts.

The file ``table_lock.json`` in ``.hoodie/.locks`` is ``{"expired":false,"validUntil":<ms since 1970>,"owner":"<text>"}``.
A free or expired lock is taken by a put that names the version that was read. The holder renews it. Others take it when
their clock is more than 500 ms after ``validUntil``. The object is never deleted.

When ``audit_enabled.json`` there asks for it, each holder writes a file ``audit/<ms>_<owner>.jsonl`` with a line for each
time that it takes, renews and releases the lock.
"""

from __future__ import annotations

import errno
import json
import re
import threading
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from tagstream.table.errors import CorruptFileError, LockError, StaleVersionError
from tagstream.table.locks.lock import LOG, Surroundings
from tagstream.table.locks.renewals import Renewals
from tagstream.table.storage.storage import META_FOLDER, Register, Storage

LOCKS_FOLDER = f"{META_FOLDER}/.locks"
LOCK_FILE = f"{LOCKS_FOLDER}/table_lock.json"
AUDIT_SWITCH = f"{LOCKS_FOLDER}/audit_enabled.json"
_AUDIT_FIELD = "STORAGE_LOCK_AUDIT_SERVICE_ENABLED"
_DRIFT_MS = 500  # the difference of two clocks that Hudi allows
_POLL_S = 1.0
_FINAL = (errno.EACCES, errno.ENOENT)  # no rights, no bucket: the same call gets the same error


@dataclass(frozen=True)
class _Content:
    """The lock file. ``version``: its ETag, which the next put must name."""

    expired: bool
    valid_until_ms: int
    owner: str | None
    version: str = ""

    def encoded(self) -> bytes:
        """The bytes that Hudi writes."""
        found = {"expired": self.expired, "validUntil": self.valid_until_ms, "owner": self.owner}
        return json.dumps(found, separators=(",", ":")).encode()


class StorageBasedLock:
    """See Lock. ``storage``: the table's, on an object store; ``validity_s``, ``renew_s``: seconds."""

    def __init__(self, storage: Storage, validity_s: float, renew_s: float, surroundings: Surroundings) -> None:
        self.place = storage.where(LOCK_FILE)
        self._storage = storage
        self._validity_ms = round(validity_s * 1000)
        self._renew_s = renew_s
        self._here = surroundings
        # A part of a file's name, too.
        self._owner = re.sub(r"[^\w.-]+", "-", f"{surroundings.writer}-{surroundings.new_id()}")
        self._guard = threading.Lock()  # of `_held`, between this handle's thread and the renewals
        self._held: _Content | None = None
        self._renewals: Renewals | None = None
        self._audit: _Audit | None = None
        self._is_audited: bool | None = None

    def try_acquire(self, wait_s: float) -> bool:
        """See Lock."""
        try:
            return self._here.try_for(self._look, wait_s, _POLL_S)
        except OSError as e:
            raise LockError(
                f"the lock file {self.place} cannot be read or written: {e}",
                may_pass=e.errno not in _FINAL,
            ) from e

    def is_held(self) -> bool:
        """See Lock. The file must be the one that was written last, and valid for the next two requests."""
        with self._guard:
            held = self._held
            if held is None:
                return False
            began = self._here.clock()
            try:
                found = self._storage.read_register(LOCK_FILE)
            except OSError:
                return False
            request_ms = (self._here.clock() - began) * 1000
            if found is None or found.version != held.version or found.data != held.encoded():
                return False
            return self._here.wall_ms() + 2 * request_ms + _DRIFT_MS < held.valid_until_ms

    def holder(self) -> str:
        """See Lock."""
        try:
            found = self._read()
        except (OSError, CorruptFileError) as e:
            return f"a writer that is not known ({e})"
        if found is None or not self._is_valid(found):
            return "nobody"
        left = (found.valid_until_ms - self._here.wall_ms()) / 1000
        return f"{found.owner or 'a writer that left no name'}, valid for {left:.0f} s more and renewed while it lives"

    def release(self) -> None:
        """See Lock."""
        renewals, self._renewals = self._renewals, None
        if renewals is not None:
            renewals.end()
        with self._guard:
            held, self._held = self._held, None
            if held is None:
                return
            try:
                self._storage.swap(LOCK_FILE, replace(held, expired=True).encoded(), held.version)
                self._record("END", self._here.wall_ms())
            except StaleVersionError:
                LOG.warning("the lock %s was taken over by another writer before it was released", self.place)
            except OSError as e:
                LOG.warning("the lock %s could not be released (%s); it ends when it expires", self.place, e)

    def close(self) -> None:
        """See Lock."""
        self.release()

    def _look(self) -> bool:
        found = self._read()
        if found is not None and self._is_valid(found):
            return False
        now = self._here.wall_ms()
        with self._guard:
            taken = self._put(now, found.version if found is not None else None)
            if taken is None:
                return False
            self._held, self._audit = taken, self._new_audit(now)
            self._record("START", now)
        self._renewals = Renewals(self._renew_s, self._renew)
        return True

    def _put(self, now: int, version: str | None) -> _Content | None:
        """A lock file that is valid from ``now`` on; None when another writer was first."""
        made = _Content(False, now + self._validity_ms, self._owner)
        try:
            return replace(made, version=self._storage.swap(LOCK_FILE, made.encoded(), version))
        except StaleVersionError:
            return None

    def _renew(self) -> bool:
        """Make the lock valid for longer. False when it is lost; an error that may pass is left to the next renewal."""
        with self._guard:
            held, now = self._held, self._here.wall_ms()
            if held is None:
                return False
            if now + self._validity_ms <= held.valid_until_ms:  # the same content would have the same ETag
                return True
            try:
                renewed = self._put(now, held.version)
            except OSError as e:
                LOG.warning("the lock %s was not renewed (%s); it is tried again", self.place, e)
                return True
            if renewed is None:
                LOG.error("the lock %s was taken over by another writer: nothing more is published", self.place)
            else:
                self._record("RENEW", now)
            self._held = renewed
            return renewed is not None

    def _read(self) -> _Content | None:
        found = self._storage.read_register(LOCK_FILE)
        return None if found is None else _parse(found, self.place)

    def _is_valid(self, found: _Content) -> bool:
        return not found.expired and self._here.wall_ms() <= found.valid_until_ms + _DRIFT_MS

    def _new_audit(self, now: int) -> _Audit | None:
        if self._is_audited is None:
            self._is_audited = _asks_for_audit(self._storage)
        return _Audit(self._storage, self._owner, now) if self._is_audited else None

    def _record(self, state: str, at_ms: int) -> None:
        if self._audit is not None:
            self._audit.record(state, at_ms, at_ms + self._validity_ms)


def _parse(found: Register, where: str) -> _Content:
    """The lock file, as Hudi reads it: unknown members are ignored, missing ones are an error."""
    try:
        content: dict[str, Any] = json.loads(found.data)
        expired, until, owner = content["expired"], content["validUntil"], content["owner"]
        if not isinstance(expired, bool) or type(until) is not int or not isinstance(owner, str | None):
            raise TypeError("a member has a wrong type")
    except (ValueError, TypeError, KeyError) as e:
        raise CorruptFileError(
            f"{where} is not a lock of Hudi ({type(e).__name__}: {e}), which stops every writer of the table: delete it "
            "when no writer is running"
        ) from None
    return _Content(expired, until, owner, found.version)


def _asks_for_audit(storage: Storage) -> bool:
    with suppress(OSError, ValueError, AttributeError):
        return json.loads(storage.read(AUDIT_SWITCH)).get(_AUDIT_FIELD) is True
    return False


@dataclass
class _Audit:
    """The audit file of one time that the lock was held; ``began`` in milliseconds since 1970."""

    storage: Storage
    owner: str
    began: int
    lines: list[str] = field(default_factory=list)

    def record(self, state: str, at_ms: int, expires_ms: int) -> None:
        """Add a line and write the whole file. An error is only logged: it must not fail the lock."""
        # Hudi's order of members, which is that of a Java hash map.
        line = {
            "transactionStartTime": self.began,
            "lockHeld": True,
            "state": state,
            "lockExpiration": expires_ms,
            "ownerId": self.owner,
            "timestamp": at_ms,
        }
        self.lines.append(json.dumps(line, separators=(",", ":")) + "\n")
        name = f"{LOCKS_FOLDER}/audit/{self.began}_{self.owner}.jsonl"
        try:
            self.storage.replace(name, "".join(self.lines).encode())
        except OSError as e:
            LOG.warning("the audit file %s of the table's lock was not written: %s", self.storage.where(name), e)
