"""Which copy of this package a process runs: its folder, its version, and a checksum of its sources.

A worker of Spark's that finds another copy than the driver would run other code on the same table. A process looks once,
some 20 ms, and a worker that the job's own daemon forks has what the daemon found.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from tagstream.streaming.errors import EnvironmentProblemError
from tagstream.version import PACKAGE, VERSION

_SOURCE = ".py"


@dataclass(frozen=True)
class CopyPrint:
    """``folder``: where the package is, in a zip if it was shipped. ``sources``: checksum of the names and bytes of all."""

    folder: str
    version: str
    sources: int

    def check_here(self) -> None:
        """EnvironmentProblemError when this process runs another copy than the one that this was taken of."""
        here = this_copy()
        if here != self and not here.same_code(self):
            raise EnvironmentProblemError(difference(self, here.folder, here.version))

    def same_code(self, other: CopyPrint) -> bool:
        """Whether both have the same sources, wherever they are."""
        return (self.version, self.sources) == (other.version, other.sources)


def difference(driver: CopyPrint, folder: str, version: str) -> str:
    """What is wrong, in one line: the worker's copy is in ``folder`` and has this version."""
    return (
        f"Spark's workers run another copy of this program than the driver: they found {folder} (version {version}), the "
        f"driver {driver.folder} (version {driver.version}). Start the job from a folder that has no tagstream/ in it, "
        "install the driver's version in the workers' Python, or ship it with spark-submit --py-files"
    )


@cache
def this_copy() -> CopyPrint:
    """Of this process; looked at the first time only."""
    return CopyPrint(os.path.abspath(PACKAGE), VERSION, sources_print(str(PACKAGE)))


def sources_print(folder: str) -> int:
    """Checksum of the sources of the package in ``folder``, which may be in a zip; 0 where it has none."""
    archive = getattr(__spec__.loader, "archive", None)
    # Both are as they stand on the path of modules, which Spark may give as ./name.zip.
    found = _in_folder(folder) if archive is None else _in_zip(archive, os.path.relpath(folder, archive))
    total = 0
    for name, crc in sorted(found):
        total = zlib.crc32(f"{name} {crc}\n".encode(), total)
    return total


def _in_folder(folder: str) -> Iterable[tuple[str, int]]:
    for place, _, names in os.walk(folder):
        for name in names:
            if name.endswith(_SOURCE):
                path = os.path.join(place, name)
                with open(path, "rb") as file:
                    yield os.path.relpath(path, folder).replace(os.sep, "/"), zlib.crc32(file.read())


def _in_zip(archive: str, inside: str) -> Iterable[tuple[str, int]]:
    """A zip has the checksums in its directory."""
    with zipfile.ZipFile(archive) as opened:
        for entry in opened.infolist():
            if entry.filename.startswith(f"{inside}/") and entry.filename.endswith(_SOURCE):
                yield entry.filename.removeprefix(f"{inside}/"), entry.CRC
