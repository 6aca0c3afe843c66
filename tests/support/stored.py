"""Files of a test as the readers take them: a storage and a name in it; and a whole storage as a local folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.storage.settings import VARIABLE, keep_settings
from tagstream.table.storage.storage import Storage, each


@contextmanager
def reaching(settings: Mapping[str, str]) -> Iterator[None]:
    """While the block runs this process, and what it starts, reaches the store that these settings are of."""
    env: dict[str, str] = {}
    keep_settings(settings, env)
    with mock.patch.dict(os.environ, {VARIABLE: env.get(VARIABLE, "")}):
        yield


def copy_down(storage: Storage, target: Path) -> Path:
    """All files of a storage, in a new local folder, which is returned."""
    shutil.rmtree(target, ignore_errors=True)

    def fetch(rel: str) -> None:
        (target / rel).parent.mkdir(parents=True, exist_ok=True)
        storage.fetch(rel, str(target / rel))

    each(fetch, storage.walk_files(""))
    return target


def newest_extra(table: Path | str) -> dict[str, str]:
    """What the newest completed write of a table tells beside its statistics."""
    opened = HoodieTable.open(str(table))
    timeline = opened.timeline()
    return dict(timeline.metadata(opened.storage, timeline.completed_writes[-1]).extra)


def stored(path: Path | str) -> tuple[PosixStorage, str]:
    """The storage of the file's folder, and the file's name."""
    folder, name = os.path.split(os.path.abspath(path))
    return PosixStorage(folder), name
