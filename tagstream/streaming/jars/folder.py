"""A folder of jars that a user names by ``TAGSTREAM_JARS``, in place of the cache. The jars lie in it side by side.

Whoever fills it: ``tagstream fetch-jars``, the first start that needs a jar, or a user's copy. Jars that are not on a list
do not matter there.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tagstream.streaming.errors import SourceError
from tagstream.streaming.jars.download import download, repository
from tagstream.streaming.jars.listed import Jar

FOLDER = "TAGSTREAM_JARS"


def given_folder(env: Mapping[str, str]) -> Path | None:
    """What ``TAGSTREAM_JARS`` names, made absolute; None where it says nothing."""
    return Path(env[FOLDER]).absolute() if env.get(FOLDER) else None


def check_folder(folder: Path, jars: Sequence[Jar], env: Mapping[str, str]) -> None:
    """SourceError when jars are neither in the folder nor could be put there; nothing is fetched."""
    missing = [jar for jar in jars if not (folder / jar.name).is_file()]
    if missing and not _can_be_made(folder):
        raise SourceError(_missing(folder, missing, env))


def jars_in(folder: Path, jars: Sequence[Jar], env: Mapping[str, str]) -> list[Path]:
    """Those jars in the folder, sorted; what is missing is fetched into it.

    SourceError when one is missing and can't be fetched, or is not the file of the list.
    """
    missing = [jar for jar in jars if not (folder / jar.name).is_file()]
    for jar in jars:
        if jar not in missing and hashlib.sha256((folder / jar.name).read_bytes()).hexdigest() != jar.sha256:
            raise SourceError(
                f"{folder / jar.name} is not the released file: half of it, or another build. Delete it and run "
                "`tagstream fetch-jars`, or give Spark your own jars with --jars"
            )
    if missing:
        check_folder(folder, missing, env)
        folder.mkdir(parents=True, exist_ok=True)
        download(missing, folder, env)
    return sorted(folder / jar.name for jar in jars)


def _can_be_made(folder: Path) -> bool:
    """Whether files can be put there: it, or the nearest folder above that there is, takes new names."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _missing(folder: Path, missing: Sequence[Jar], env: Mapping[str, str]) -> str:
    url, _ = repository(env)
    names = "".join(f"\n  {url}/{jar.path}" for jar in missing)
    return (
        f"{folder} lacks {len(missing)} jars and can't be written to. Run `tagstream fetch-jars` as a user who may, or name "
        f"by {FOLDER} a folder that has these files:{names}"
    )
