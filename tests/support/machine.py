"""A host of its own, as far as files go: a mount namespace and a root folder in which there is nothing but a system.

Its processes see the system's programs, one Java, one bare Python and one Spark, all read-only, and folders of the
machine's own. Nothing else exists there: no checkout and no packages, no folder of the test, none of another machine's.
So what lies on the machine's disk is lost with it, and whoever relies on a folder that all hosts share fails. Network and
process ids are those of all. It takes the right to mount, or to make a user namespace.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pyspark

SPARK_HOME = Path(pyspark.__file__).parent
SPARK = "/opt/spark"  # where it is on a machine
_TEMPORARY, _HOME, _DATA = "/tmp", "/home", "/data"
_SYSTEM = ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64")
# Arguments: the root, then SOURCE=TARGET of what is mounted read-only, then --, then folders that are hidden, then --,
# then the command. Flags of a mount can only be narrowed by a second one.
_ENTER = """set -e
root=$1; shift
while [ "$1" != -- ]; do
    mkdir -p "$root${1#*=}"; mount --rbind "${1%%=*}" "$root${1#*=}"; mount -o remount,bind,ro "$root${1#*=}"; shift
done; shift
mkdir -p "$root/proc" "$root/dev"
mount --rbind /proc "$root/proc"; mount --rbind /dev "$root/dev"; mount -t tmpfs none "$root/dev/shm"
while [ "$1" != -- ]; do mount -t tmpfs none "$root$1"; shift; done; shift
exec chroot "$root" "$@"
"""


class Machine:
    """``root`` is its disk, which is seen from outside, too: :meth:`at`. Its mounts last as long as its processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for own in (_TEMPORARY, _HOME, _DATA):
            self.at(own).mkdir(parents=True)
        for name in _SYSTEM:
            if os.path.islink(name):
                self.at(name).symlink_to(os.readlink(name))

    def at(self, path: str | Path) -> Path:
        """Where a path of the machine is, seen from outside."""
        return self.root / str(path).lstrip("/")

    def command(self, command: Sequence[str | Path]) -> list[str | Path]:
        """The command, to be run on the machine."""
        java, python = _java_home(), Path(sys.base_prefix)
        mounts = [f"{name}={name}" for name in _SYSTEM if os.path.isdir(name) and not os.path.islink(name)]
        mounts += [f"{path}={path}" for path in (java, python) if not path.is_relative_to("/usr")]
        mounts += [f"{SPARK_HOME}={SPARK}"]
        packages = python / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
        mine = ["--user", "--map-root-user"] if os.geteuid() else []
        enter: list[str | Path]
        enter = ["unshare", "--mount", *mine, "sh", "-c", _ENTER, "machine", self.root, *mounts, "--", packages, "--"]
        return [*enter, *command]

    def environment(self) -> dict[str, str]:
        """The environment there, which has nothing of this process's."""
        java = _java_home()
        return {
            "PATH": f"{java}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "JAVA_HOME": str(java),
            "HOME": _HOME,
            "TMPDIR": _TEMPORARY,
            "SPARK_HOME": SPARK,
            "SPARK_LOCAL_DIRS": f"{_DATA}/local",
            "SPARK_WORKER_DIR": f"{_DATA}/work",
        }

    def lose(self) -> None:
        """Its disk is gone. When nothing runs on it any more."""
        shutil.rmtree(self.root)


def _java_home() -> Path:
    java = shutil.which("java")
    assert java is not None, "there is no java on the PATH"
    return Path(java).resolve().parents[1]
