"""The implementations of a storage that one suite runs over, and what its races do in processes of their own."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tagstream.table.errors import StaleVersionError
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.storage.storage import Storage
from tests.support.faulty_storage import Faults, FaultyStorage

BIG = 3 << 20


def _synced(folder: Path) -> Storage:
    return PosixStorage(str(folder / "root"))


def _unsynced(folder: Path) -> Storage:
    return PosixStorage(str(folder / "root"), sync=False)


def _wrapped(folder: Path) -> Storage:
    return FaultyStorage(_unsynced(folder), Faults(str(folder / "faults")))


def _copying(folder: Path) -> Storage:
    return FaultyStorage(_unsynced(folder), Faults(str(folder / "faults"), copies=True))


IMPLEMENTATIONS: dict[str, Callable[[Path], Storage]] = {
    "posix": _synced,
    "posix, unsynced": _unsynced,
    "wrapped": _wrapped,
    "publishes by copy": _copying,
}
# Those behind a server: the fixture that has it running and knows the URL of a folder of a test's own.
SERVERS = {"s3": "s3_folder", "hdfs": "hdfs_folder"}


def leaves_scratch(storage: Storage) -> bool:
    """Whether a killed writer leaves something hidden: not where a file is kept elsewhere until it is whole."""
    return "://" not in storage.root


@contextmanager
def workers(kind: str, count: int) -> Iterator[Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], list[Any]]]:
    """Runs a function with several argument tuples at once, in threads or in processes that share nothing."""
    if kind == "threads":
        with ThreadPoolExecutor(count) as pool:
            yield lambda work, all_of: [f.result() for f in [pool.submit(work, *each) for each in all_of]]
        return
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as pool:
        yield lambda work, all_of: [f.result() for f in [pool.submit(work, *each) for each in all_of]]


def create_numbers(storage: Storage, who: int, names: int) -> list[int]:
    """Create the same names as all others; returns those that this one won."""
    won = []
    for name in range(names):
        try:
            storage.write_new(f"race/{name}", bytes([who]) * 1000)
        except FileExistsError:
            continue
        won.append(name)
    return won


def count_up(storage: Storage, who: int, times: int) -> list[int]:
    """Raise a counter in a register; returns the numbers that this one set."""
    done: list[int] = []
    while len(done) < times:
        before = storage.read_register("counter")
        number = int(before.data.split()[0]) + 1 if before is not None else 1
        try:
            storage.swap("counter", f"{number} of {who}".encode(), before.version if before is not None else None)
        except StaleVersionError:
            continue
        done.append(number)
    return done


def publish_own(storage: Storage, who: int, names: int) -> list[int]:
    """Stage and publish a file under each of the names that all others want; returns those that this one won."""
    won = []
    for name in range(names):
        staged = f".hoodie/.temp/{who}/{name}"
        storage.replace(staged, bytes([who]) * 1000)
        try:
            storage.publish([(staged, f"p=1/{name}")])
        except FileExistsError:
            continue
        won.append(name)
    return won


def look_often(storage: Storage, rel: str, sizes: Sequence[int], end: str) -> int:
    """Read a file again and again until the name ``end`` is there; returns how often it was neither gone nor whole."""
    wrong = 0
    while not storage.exists(end):
        try:
            data = storage.read(rel)
        except FileNotFoundError:
            continue
        wrong += len(data) not in sizes or len(set(data)) > 1
    return wrong


def write_half_and_wait(storage: Storage, rel: str) -> None:
    """The program of a process that is killed while it writes."""
    with storage.open_output(rel) as out:
        out.write(b"x" * BIG)
        out.flush()
        print("half", flush=True)
        sys.stdin.read()
