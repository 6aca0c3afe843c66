"""A container, as far as files and rights go: a read-only root with an image in it, volumes, a user without rights.

What a container runtime does with mounts and ids is done here by ``unshare``, ``chroot`` and ``setpriv``. The system under
the image is this host's; network and process ids are those of all. It takes the right to mount, or to make a user
namespace; in the latter the user stays the one who runs the tests.
"""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.dist import build
from tests.support.environment import bare_environment
from tests.support.machine import SPARK_HOME

IMAGE = "/opt/tagstream"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
# Arguments: the root, then SOURCE=TARGET=ro or =rw of what is mounted, then --, the working folder, and the command.
_ENTER = """set -e
root=$1; shift
mount --rbind "$root" "$root"
while [ "$1" != -- ]; do
    mode=${1##*=}; both=${1%=*}; source=${both%%=*}; target=$root${both#*=}; shift
    if [ -d "$source" ]; then mkdir -p "$target"; else mkdir -p "${target%/*}"; : >"$target"; fi
    mount --rbind "$source" "$target"
    [ "$mode" = rw ] || mount -o remount,bind,ro "$target"
done; shift
mkdir -p "$root/proc" "$root/dev"
mount --rbind /proc "$root/proc"; mount --rbind /dev "$root/dev"; mount -t tmpfs -o mode=1777 none "$root/dev/shm"
mount -o remount,bind,ro "$root"
folder=$1; shift
told=$PATH; PATH=$PATH:/usr/sbin:/sbin
exec chroot "$root" /bin/sh -c 'cd "$1"; export PATH="$2"; shift 2; exec "$@"' - "$folder" "$told" "$@"
"""


class Container:
    """``files``: folders and files of the image by their places; ``volumes``: what may be written to, by their places.

    ``uid`` and ``gid``: who runs there; the volumes become theirs, as a platform's ``fsGroup`` does.
    """

    def __init__(
        self, root: Path, files: Mapping[str, Path], volumes: Mapping[str, Path], *, uid: int, gid: int
    ) -> None:
        self.root = root
        root.mkdir(parents=True)
        # A copy, so that there may be a folder of the test's own in it.
        shutil.copytree("/etc", root / "etc", symlinks=True, ignore=_secret)
        python = Path(sys.base_prefix)
        packages = SPARK_HOME.parent
        mounts = {name: Path(name) for name in _SYSTEM if os.path.isdir(name) and not os.path.islink(name)}
        mounts |= {str(path): path for path in (python, packages) if not path.is_relative_to("/usr")}
        for name in _SYSTEM:
            if os.path.islink(name):
                (root / name.lstrip("/")).symlink_to(os.readlink(name))
        self._mounts = [f"{source}={place}=ro" for place, source in {**mounts, **files}.items()]
        for place, source in volumes.items():
            source.mkdir(parents=True, exist_ok=True)
            self._mounts.append(f"{source}={place}=rw")
            if not os.geteuid():
                for path in (source, *source.rglob("*")):
                    os.chown(path, uid, gid)
        self._user = [f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]

    def command(self, command: Sequence[str | Path], *, folder: str = "/") -> list[str | Path]:
        """The command, to be run there as the user."""
        mine = ["--user", "--map-root-user"] if os.geteuid() else []
        user = [] if os.geteuid() else self._user
        enter: list[str | Path]
        enter = ["unshare", "--mount", *mine, "sh", "-c", _ENTER, "container", self.root, *self._mounts, "--", folder]
        return [*enter, "setpriv", *user, "--no-new-privs", *command]


def _secret(folder: str, names: list[str]) -> list[str]:
    """Leave out what only the superuser may read, and sockets and devices."""
    paths = {name: Path(folder, name) for name in names}
    return [n for n, p in paths.items() if (not p.is_symlink() and not (p.is_dir() or p.is_file())) or _closed(p)]


def _closed(path: Path) -> bool:
    return not path.is_symlink() and not path.stat().st_mode & 0o004


def install(folder: Path, name: str = "venv") -> Path:
    """What an image has below ``/opt/tagstream``: an environment ``name`` with the wheel of this checkout, and the program.

    The packages that it depends on are those of the environment of the tests.
    """
    wheel, _ = build(folder / "dist")
    packages = bare_environment(folder / name)
    (packages / "dependencies.pth").write_text(f"{SPARK_HOME.parent}\n")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(packages)
    console = folder / name / "bin" / "tagstream"
    console.write_text(
        f"#!{IMAGE}/{name}/bin/python\nimport sys\nfrom tagstream.cli.main import console\nsys.exit(console())\n"
    )
    console.chmod(0o755)
    (packages / "pyspark").symlink_to(SPARK_HOME)
    (folder / "dist" / "run_stream.py").rename(folder / "run_stream.py")
    return folder
