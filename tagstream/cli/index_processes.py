"""Processes that share the work on an index: they read, divide and load its key groups in parallel.

One process handles about 220,000 keys per second. The others are forks of a process that has only loaded the modules. A
fork of a process with threads of Arrow and RocksDB may hang, and loading the modules again takes a second or two.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TypeVar, cast

from tagstream.cli.index_load import GroupLoader, RecordSpiller, SpilledRecords
from tagstream.cli.index_reader import entries_of, open_index
from tagstream.state.index_loads import GroupStart
from tagstream.state.layout import StateLayout
from tagstream.table.storage.storage import Storage

LEAST_KEYS = 2_000_000  # with fewer keys, starting processes takes longer than the work
T = TypeVar("T")
_of_this_process: list[Callable[[int, int], object]] = []


def processes_for(keys: int, groups: int, asked: int | None) -> int:
    """Number of processes, at most one per group, for ``groups`` key groups with ``keys`` keys; ``asked``: by the user."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(groups, asked if asked is not None else cores if keys >= LEAST_KEYS else 1))


@dataclass(frozen=True)
class GroupReader:
    """Reads key groups of the index in ``checkpoint`` and divides them for a new index. ``committed``: see `open_index`.

    ``layout`` and ``groups``: of the new index. ``folder``: for its spill files.
    """

    checkpoint: Storage
    committed: Collection[str] | None
    layout: StateLayout
    groups: int
    folder: str

    def read(self, group: int, label: int) -> SpilledRecords:
        """Write the records of one key group to a spill file."""
        spiller = RecordSpiller(self.layout, self.groups, self.folder, group)
        with open_index(self.checkpoint, self.committed) as index, index.group(label) as store:
            for entries in entries_of(store, index.layout, label):
                spiller.add(entries)
            spiller.copies.add(store, label)
        return spiller.close()


def read_groups(
    reader: GroupReader, labels: Sequence[int], processes: int, progress: Callable[[str], None]
) -> Iterator[SpilledRecords]:
    """All key groups of an index, one after another when read."""
    return _each(reader.read, labels, processes, lambda n: progress(f"read {n} of {len(labels)} key groups"))


def load_groups(
    loader: GroupLoader, labels: Sequence[int], processes: int, progress: Callable[[str], None]
) -> list[GroupStart]:
    """Load every key group of the new index and return their starts."""
    return list(_each(loader.load, labels, processes, lambda n: progress(f"wrote {n} of {len(labels)} key groups")))


def _each(
    work: Callable[[int, int], T], labels: Sequence[int], processes: int, done: Callable[[int], None]
) -> Iterator[T]:
    """``work`` on each key group (number and label), in order. An error of one ends all."""
    if processes == 1:
        for number, label in enumerate(labels):
            yield work(number, label)
            done(number + 1)
        return
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_begin, initargs=(work,)) as pool:
        try:
            results = cast("Iterator[T]", pool.map(_work, range(len(labels)), labels))
            for number, result in enumerate(results):
                yield result
                done(number + 1)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _begin(work: Callable[[int, int], object]) -> None:
    """Set the work of a new process. It is sent once, and not with each key group."""
    _of_this_process[:] = [work]


def _work(group: int, label: int) -> object:
    return _of_this_process[0](group, label)
