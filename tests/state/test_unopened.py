"""Stores of key groups that moved away are removed; one that somebody has open, or opens at that moment, is not."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from tagstream.state import local_store as unopened
from tagstream.state.durable_files import Pointer
from tagstream.state.errors import LockedStoreError
from tagstream.state.layout import StateLayout
from tagstream.state.local_store import look_around, open_at, remove_unopened
from tagstream.state.rocks_store import RocksStore, alone
from tagstream.state.tag_group import tag_key_group
from tagstream.table.storage.posix import PosixStorage
from tests.state.tagging import LABEL, Event, FakeTable, make_batch, make_profile
from tests.support.process import in_thread

DAY, HOUR = 86_400, 3_600


@pytest.fixture
def layout(tmp_path: Path) -> StateLayout:
    durable = PosixStorage(str(tmp_path / "durable"), sync=False)
    return StateLayout(durable, str(tmp_path / "local"), snapshot_every=2, lock_wait_s=0.2)


def age(path: str | Path, seconds: float) -> None:
    """Make a file, or a folder with what is in it, older."""
    for one in (Path(path), *Path(path).rglob("*")):
        at = one.stat().st_mtime - seconds
        os.utime(one, (at, at))


def opened(layout: StateLayout, label: int) -> Path:
    """The store of another key group, opened and closed just now."""
    path = Path(layout.group_dir(label), "store-0")
    RocksStore(str(path), merges=True).close()
    return path


def look(layout: StateLayout, path: Path) -> bool:
    """Look around and wait for it; whether there was a look."""
    thread = look_around(layout.local_dir, str(path))
    if thread is not None:
        thread.join()
    return thread is not None


def stores(layout: StateLayout) -> list[str]:
    return sorted(str(p.relative_to(layout.local_dir)) for p in Path(layout.local_dir).glob("*/store-*"))


def test_each_opening_changes_the_folder_of_a_store(layout: StateLayout) -> None:
    path = opened(layout, 1)
    age(path, DAY)
    before = path.stat().st_mtime
    opened(layout, 1)
    assert path.stat().st_mtime > before + DAY / 2


def test_what_no_task_has_opened_for_a_day_goes_and_the_rest_stays(layout: StateLayout) -> None:
    for label in (1, 2, 3):
        opened(layout, label)
    here = opened(layout, 4)
    (Path(layout.group_dir(1)) / "kept.000000000001-x.sst").touch()
    (Path(layout.group_dir(1)) / "store-0.snapshot.1").mkdir()
    assert not look(layout, here), "the first one: since when this host works on the checkpoint is not known"
    age(layout.group_dir(1), DAY + HOUR + 60)
    age(layout.group_dir(2), DAY + HOUR - 60)
    age(Path(layout.group_dir(3), "store-0"), 3 * DAY)
    (Path(layout.group_dir(3)) / "delta.1.1").touch()  # somebody is at work there
    assert not look(layout, here), "within the hour"
    assert len(stores(layout)) == 5
    age(Path(layout.local_dir, "looked"), HOUR + 30)
    assert look(layout, here)
    assert stores(layout) == ["2/store-0", "3/store-0", "4/store-0"]
    assert not os.listdir(layout.group_dir(1)), "nothing is left beside it"
    assert not look(layout, here)


def test_a_stream_that_rested_finds_its_stores(layout: StateLayout) -> None:
    """A day without a batch is none in which a store was not opened."""
    for label in (1, 2):
        opened(layout, label)
    age(opened(layout, 3), 2 * DAY)
    look(layout, Path(layout.group_dir(1), "store-0"))
    age(layout.local_dir, 7 * DAY)
    assert look(layout, opened(layout, 1))
    assert stores(layout) == ["1/store-0", "2/store-0"], (
        "but for the one that was not opened in the day before the rest"
    )
    assert not look(layout, opened(layout, 1))


def test_a_look_that_cannot_be_noted_is_none(layout: StateLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk: else each opening would be followed by one."""
    here = opened(layout, 1)
    look(layout, here)
    age(Path(layout.local_dir, "looked"), 2 * HOUR)

    def full(path: str) -> None:
        raise OSError(errno.ENOSPC, "full", path)

    monkeypatch.setattr(unopened.scratch, "renew", full)
    assert not look(layout, here)
    monkeypatch.undo()
    assert look(layout, here)


def test_a_clock_that_was_ahead_removes_nothing_of_use(layout: StateLayout) -> None:
    opened(layout, 1)
    here = opened(layout, 2)
    look(layout, here)
    age(Path(layout.local_dir, "looked"), -400 * DAY)
    age(layout.group_dir(1), DAY - 60)
    assert look(layout, here)
    assert len(stores(layout)) == 2
    assert not look(layout, here)


HOLDER = """
import fcntl, os, sys
from tagstream.state.rocks_store import RocksStore
store = RocksStore(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


def test_a_store_that_another_process_has_open_stays(layout: StateLayout) -> None:
    path = opened(layout, 1)
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin and holder.stdout
    try:
        assert holder.stdout.readline() == b"open\n"
        age(layout.group_dir(1), 9 * DAY)
        assert remove_unopened(layout.local_dir, path.stat().st_mtime + 1) == []
        assert stores(layout) == ["1/store-0"]
    finally:
        holder.stdin.close()
        holder.wait()
        holder.stdout.close()
    age(path, 9 * DAY)
    assert remove_unopened(layout.local_dir, path.stat().st_mtime + DAY) == [str(path)]


def test_a_store_that_this_process_has_open_stays_and_stays_locked(layout: StateLayout) -> None:
    path = opened(layout, 1)
    with RocksStore(str(path)) as store:
        age(layout.group_dir(1), 9 * DAY)
        assert remove_unopened(layout.local_dir, path.stat().st_mtime + 1) == []
        script = HOLDER.replace("sys.stdin.read()", "")
        other = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=False)
        assert "LockedStoreError" in other.stderr, "a look at the lock has not given it up"
        assert store.get([b"x"]) == [None]
    with alone(str(path)) as free:
        assert free


def test_who_comes_while_a_store_is_removed_waits_and_builds_it_again(layout: StateLayout) -> None:
    """Another process finds it locked; a thread of this one waits."""
    path = opened(layout, 1)
    seen = []
    with alone(str(path)) as free:
        assert free
        script = HOLDER.replace("sys.stdin.read()", "")
        other = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=False)
        assert LockedStoreError.__name__ in other.stderr
        thread = threading.Thread(target=lambda: seen.append(opened(layout, 1)))
        thread.start()
        os.rename(path, f"{path}.gone")
        assert not seen
    thread.join()
    assert seen == [path]
    assert sorted(os.listdir(path.parent)) == ["store-0", "store-0.gone"]


def test_one_that_was_opened_between_two_looks_at_it_stays(
    layout: StateLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = opened(layout, 1)
    age(layout.group_dir(1), 9 * DAY)
    before = path.stat().st_mtime + DAY
    real = unopened.alone

    def late(at: str) -> object:
        opened(layout, 1)
        return real(at)

    monkeypatch.setattr(unopened, "alone", late)
    assert remove_unopened(layout.local_dir, before) == []
    assert stores(layout) == ["1/store-0"]


def test_what_a_killed_process_was_removing_or_restoring_goes(layout: StateLayout) -> None:
    path = opened(layout, 1)
    shutil.copytree(path, f"{path}.gone")
    half = Path(layout.group_dir(2), "store-0")
    half.mkdir(parents=True)
    (half / "000001.sst").touch()
    for label in (1, 2):
        age(layout.group_dir(label), 9 * DAY)
    assert remove_unopened(layout.local_dir, path.stat().st_mtime + DAY) == [str(path)]
    assert stores(layout) == ["2/store-0"], "one without a lock file may be in the making, by an earlier version"
    (half / "LOCK").touch()
    age(half, 9 * DAY)
    assert remove_unopened(layout.local_dir, half.stat().st_mtime + DAY) == [str(half)]
    assert remove_unopened(f"{layout.local_dir}/missing", 0) == []


def test_only_folders_of_key_groups_are_looked_at(layout: StateLayout) -> None:
    theirs = Path(layout.local_dir, "theirs", "store-0")
    load = Path(layout.local_dir, "3.load.1.1", "store-0")
    for path in (theirs, load):
        path.mkdir(parents=True)
        age(path, 400 * DAY)
    opened(layout, 1)
    assert remove_unopened(layout.local_dir, theirs.stat().st_mtime + DAY) == []
    assert theirs.is_dir() and load.is_dir()


REMOVER = """
import sys
from tagstream.state.local_store import remove_unopened
print("ready", flush=True)
while True:
    for path in remove_unopened(sys.argv[1], float(sys.argv[2])):
        print(path, flush=True)
"""


@pytest.mark.parametrize("kind", ["another process", "a thread"])
def test_stores_are_opened_while_somebody_removes_them_all_the_time(layout: StateLayout, kind: str) -> None:
    """The key group was elsewhere for two days before each batch: its store is found, or built from the checkpoint."""
    before = opened(layout, LABEL).stat().st_mtime - DAY
    ended, removed = threading.Event(), list[str]()

    def remove() -> None:
        while not ended.is_set():
            removed.extend(remove_unopened(layout.local_dir, before))

    process = None
    if kind == "a thread":
        thread = in_thread(remove)
    else:
        command = [sys.executable, "-c", REMOVER, layout.local_dir, str(before)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        lines = process.stdout
        assert lines is not None and lines.readline() == "ready\n"
        thread = in_thread(lambda: removed.extend(lines))
    pointer, table = None, FakeTable()
    try:
        for batch_id in range(3_000):
            if batch_id >= 30 and len(removed) > 3:
                break  # a slow machine takes more batches until so many were removed
            some = [Event(f"k{i}", f"p{(i + batch_id) % 5}", batch_id) for i in range(20)]
            with suppress(FileNotFoundError):  # on its way out
                age(layout.group_dir(LABEL), 2 * DAY)
            batch = make_batch(some, layout)
            result = tag_key_group(LABEL, pointer, batch, make_profile(batch_id), layout)
            pointer = result.pointer
            table.apply(result)
    finally:
        ended.set()
        if process is not None:
            process.kill()
            process.wait()
        thread.join()
        if process is not None and process.stdout is not None:
            process.stdout.close()
    assert len(removed) > 3
    assert len(table.rows) == 20
    assert pointer is not None
    store, meta = open_at(layout, LABEL, Pointer.from_bytes(pointer, LABEL))
    store.close()
    assert (meta.live, meta.tombstones) == (20, 0)
