"""Which copy of this package a process runs: its folder, its version, and a checksum of its sources.

A Spark worker that finds another copy than the driver would run other code on the same table. A process computes the
checksum once, in about 20 ms. A worker that the job's own daemon forks inherits the daemon's result.
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
    """``folder``: of the package, in a zip if it was shipped. ``sources``: checksum of their names and bytes."""

    folder: str
    version: str
    sources: int

    def check_here(self) -> None:
        """EnvironmentProblemError when this process runs another copy than this one."""
        here = this_copy()
        if here != self and not here.same_code(self):
            raise EnvironmentProblemError(difference(self, here.folder, here.version))

    def same_code(self, other: CopyPrint) -> bool:
        """Whether both have the same sources, whatever their folders."""
        return (self.version, self.sources) == (other.version, other.sources)


def difference(driver: CopyPrint, folder: str, version: str) -> str:
    """The problem in one line. ``folder`` and ``version``: of the worker's copy."""
    return (
        f"Spark's workers run another copy of this program than the driver: they found {folder} (version {version}), the "
        f"driver {driver.folder} (version {driver.version}). Start the job from a folder that has no tagstream/ in it, "
        "install the driver's version in the workers' Python, or ship it with spark-submit --py-files"
    )


@cache
def this_copy() -> CopyPrint:
    """The copy of this process. It is computed once."""
    return CopyPrint(os.path.abspath(PACKAGE), VERSION, sources_print(str(PACKAGE)))


def sources_print(folder: str) -> int:
    """Checksum of the sources of the package in ``folder``, which may be in a zip; 0 without sources."""
    archive = getattr(__spec__.loader, "archive", None)
    # Both are paths as on sys.path, which Spark may give as ./name.zip.
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
    """Names and checksums, from the zip's directory."""
    with zipfile.ZipFile(archive) as opened:
        for entry in opened.infolist():
            if entry.filename.startswith(f"{inside}/") and entry.filename.endswith(_SOURCE):
                yield entry.filename.removeprefix(f"{inside}/"), entry.CRC
