"""A disk of a few megabytes, to be full at will. Mounting needs the right to mount (root, or CAP_SYS_ADMIN)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType

FILLER = ".filler"
_PIECE = 4096


class SmallDisk:
    """A tmpfs at ``folder``, which is made and must be empty. As a context manager: mounted, and gone at the end."""

    def __init__(self, folder: Path, megabytes: int = 64) -> None:
        self.folder = folder
        self._megabytes = megabytes

    def fill(self, leave: int) -> None:
        """Leave no more than ``leave`` bytes free."""
        with (self.folder / FILLER).open("ab", buffering=0) as out:
            while self.free() >= leave + _PIECE:
                out.write(bytes(min(1 << 20, (self.free() - leave) // _PIECE * _PIECE)))

    def clear(self) -> None:
        """Remove everything."""
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def make_room(self) -> None:
        """Free what :meth:`fill` took."""
        (self.folder / FILLER).unlink()

    def free(self) -> int:
        """Bytes free."""
        at = os.statvfs(self.folder)
        return at.f_bavail * at.f_frsize

    def __enter__(self) -> SmallDisk:
        self.folder.mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "-o", f"size={self._megabytes}m", "small-disk", str(self.folder))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _run("umount", "--lazy", str(self.folder))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command)}: {done.stderr.strip()} (a full disk is tried out on a tmpfs: run as root)"
        )
