"""Hudi's FileSystemBasedLockProvider: the file ``lock`` in ``.hoodie``, which only one writer can create.

Hudi creates the file without content, never renews it, and deletes it. The provider's ``close()`` deletes the file even if
another writer's is there (Hudi 1.2.0). On a local disk Hadoop checks and then creates, so it can empty a file that
appears in between. So the file of this writer has a content of its own, and the lock is held while the file has it.
Hudi shows the content in its messages and does not parse it.
"""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress

from tagstream.table.errors import LockError
from tagstream.table.locks.lock import LOG, Surroundings
from tagstream.table.storage.storage import FileEntry, Storage, create

LOCK_NAME = "lock"
_POLL_S = 0.1
_POLL_REMOTE_S = 1.0
# Seconds before the lock file expires when its holder counts it as lost: it must be able to publish in that time.
_MARGIN_S = 10.0
# Errors that the same call gets again.
_FINAL = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG})


class FileSystemLock:
    """See Lock.

    ``folder``: the storage of the lock's folder; ``expire_min``: minutes until a file counts as abandoned, 0: never.
    """

    def __init__(self, folder: Storage, expire_min: int, surroundings: Surroundings) -> None:
        self.place = folder.where(LOCK_NAME)
        self._folder = folder
        self._expire_s = expire_min * 60.0
        self._here = surroundings
        self._content: bytes | None = None
        self._since = 0.0

    def try_acquire(self, wait_s: float) -> bool:
        """See Lock."""
        pause = _POLL_REMOTE_S if self._folder.is_remote else _POLL_S
        try:
            return self._here.try_for(self._look, wait_s, pause)
        except OSError as e:
            raise self._refused(e) from e

    def is_held(self) -> bool:
        """See Lock. The file must have this handle's content, and not expire before a commit is published."""
        if self._content is None:
            return False
        if self._expire_s and self._here.clock() - self._since > self._expire_s - min(_MARGIN_S, self._expire_s / 2):
            return False
        return self._read() == self._content

    def holder(self) -> str:
        """See Lock."""
        content, entry = self._read(), self._entry()
        if content is None or entry is None:
            return "nobody"
        age = f"for {max(0, self._here.wall_ms() - entry.mtime_ms) // 1000} s"
        if not content:
            return f"a writer that left no name, as Hudi's do, {age}"
        return f"{_name_in(content)}, {age}"

    def release(self) -> None:
        """See Lock. A file that another writer has created since is kept."""
        if self._content is None:
            return
        ours, self._content = self._content, None
        try:
            if self._read() == ours:
                self._folder.delete(LOCK_NAME)
        except OSError as e:
            LOG.warning("the lock file %s cannot be removed (%s): remove it by hand", self.place, e)

    def close(self) -> None:
        """See Lock."""
        self.release()

    def _look(self) -> bool:
        entry = self._entry()
        if entry is not None:
            if not self._is_expired(entry):
                return False
            # Another writer may have replaced it since: only a file that is still the old one is deleted.
            if self._entry() == entry:
                LOG.warning("the lock file %s is abandoned (%s) and is removed", self.place, self.holder())
                self._folder.delete(LOCK_NAME)
        since, content = self._here.clock(), self._made_content()
        if not create(self._folder, LOCK_NAME, content):
            return False
        self._since, self._content = since, content
        return True

    def _is_expired(self, entry: FileEntry) -> bool:
        return bool(self._expire_s) and self._here.wall_ms() - entry.mtime_ms > self._expire_s * 1000

    def _made_content(self) -> bytes:
        """In the form of Hudi's FileSystemBasedLockProvider.LockInfo, with an id that is never used again."""
        found = {
            "lockCreateTime": str(self._here.wall_ms()),
            "lockThreadName": self._here.writer,
            "lockStackInfo": [self._here.new_id()],
        }
        return json.dumps(found).encode()

    def _entry(self) -> FileEntry | None:
        return next((e for e in self._folder.list("", (LOCK_NAME,)) if e.name == LOCK_NAME), None)

    def _read(self) -> bytes | None:
        with suppress(OSError):
            return self._folder.read(LOCK_NAME)
        return None

    def _refused(self, error: OSError) -> LockError:
        reason = error.strerror or str(error)
        advice = (
            f"let user {os.geteuid()} create and delete files there, or set hoodie.write.lock.filesystem.path"
            if error.errno in _FINAL
            else "check the file system; the call is repeated"
        )
        return LockError(
            f"the lock file {self.place} cannot be created: {reason}; {advice}", may_pass=error.errno not in _FINAL
        )


def _name_in(content: bytes) -> str:
    """The holder's name in a lock file of this project; the first characters of any other content."""
    with suppress(ValueError, TypeError, KeyError):
        return str(json.loads(content)["lockThreadName"])
    return repr(content[:80].decode("utf-8", "replace"))
