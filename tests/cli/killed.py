"""Run an admin command in a process of its own, which dies by SIGKILL at one of its changes."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Sequence
from pathlib import Path

from tagstream.cli.main import main
from tagstream.table.storage.opening import OPENERS
from tagstream.table.storage.storage import Storage
from tests.support.faulty_storage import CHANGES, Faults, FaultyStorage


def killed_at(n: int, argv: Sequence[object], place: Path, faults: Path) -> int:
    """Exit code of the command that is killed before change ``n`` (from 1) of the folder ``place``.

    ``faults``: a folder of its own, for the count.
    """
    words = [str(word) for word in argv]
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(n, words, str(place), str(faults)))
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def _run(n: int, argv: list[str], place: str, faults: str) -> None:
    plain = OPENERS["file"]

    def opened(url: str) -> Storage:
        storage = plain(url)
        return FaultyStorage(storage, Faults(faults, kill=n, only=CHANGES)) if storage.root == place else storage

    OPENERS["file"] = opened
    sys.exit(main(argv))
