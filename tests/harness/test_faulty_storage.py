"""The storage that goes wrong does so at the call it was told, once in all processes, and nowhere else."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tagstream.table.errors import StaleVersionError
from tagstream.table.storage.posix import PosixStorage
from tests.support.faulty_storage import CHANGES, Faults, FaultyStorage, InjectedError


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., FaultyStorage]:
    def made(**faults: object) -> FaultyStorage:
        settings = replace(Faults(str(tmp_path / "faults")), **faults)  # type: ignore[arg-type]
        return FaultyStorage(PosixStorage(str(tmp_path / "root"), sync=False), settings)

    return made


def write(storage: FaultyStorage, kind: str, rel: str) -> None:
    """One change of a kind, of a file that is then there."""
    if kind == "write_new":
        storage.write_new(rel, b"1")
    elif kind == "replace":
        storage.replace(rel, b"1")
    elif kind == "open_output":
        with storage.open_output(rel) as out:
            out.write(b"1")
    elif kind == "put":
        storage.put(rel, __file__)
    elif kind == "publish":
        storage.publish([("staged", rel)])
    else:
        storage.swap(rel, b"1", None)


WRITES = ("write_new", "replace", "open_output", "put", "publish", "swap")


@pytest.mark.parametrize("kind", WRITES)
@pytest.mark.parametrize("copies", [False, True])
def test_a_call_that_fails_has_no_effect(make: Callable[..., FaultyStorage], kind: str, copies: bool) -> None:
    storage = make(fail=2, copies=copies, only=(kind,))
    storage.inner.replace("staged", b"1")
    write(storage, kind, "a")
    before = sorted(storage.inner.walk_files(""))
    with pytest.raises(InjectedError, match=f"call 2, {kind}"):
        write(storage, kind, "b")
    assert sorted(storage.inner.walk_files("")) == before
    write(storage, kind, "b")
    assert len(sorted(storage.inner.walk_files(""))) == len(before) + 1


@pytest.mark.parametrize("kind", WRITES)
def test_a_call_whose_answer_is_lost_took_effect(make: Callable[..., FaultyStorage], kind: str) -> None:
    storage = make(lose=1, only=CHANGES)
    storage.inner.replace("staged", b"1")
    before = sorted(storage.inner.walk_files(""))
    with pytest.raises(InjectedError, match="lost"):
        write(storage, kind, "a")
    assert len(sorted(storage.inner.walk_files(""))) == len(before) + 1


@pytest.mark.parametrize(
    ("kind", "error"), [("write_new", FileExistsError), ("publish", FileExistsError), ("swap", StaleVersionError)]
)
def test_a_call_that_is_sent_again_meets_its_own_file(
    make: Callable[..., FaultyStorage], kind: str, error: type[Exception]
) -> None:
    storage = make(repeat=1, only=(kind,))
    storage.inner.replace("staged", b"1")
    with pytest.raises(error):
        write(storage, kind, "a")
    assert storage.exists("a") or storage.read_register("a") is not None


def test_reads_fail_too(make: Callable[..., FaultyStorage]) -> None:
    storage = make(fail=2)
    storage.write_new("a", b"1")
    with pytest.raises(InjectedError, match="call 2, read"):
        storage.read("a")
    assert storage.read("a") == b"1"
    assert storage.faults.calls() == [(kind, storage.where("a")) for kind in ("write_new", "read", "read")]


def test_new_names_are_listed_late(make: Callable[..., FaultyStorage]) -> None:
    storage = make(late=3, only=("read",))
    for rel in ("t/a", "t/b"):
        storage.write_new(rel, b"1")
    seen = []
    for _ in range(5):
        seen.append((storage.names("t"), tuple(e.name for e in storage.list("t")), len([*storage.walk_files("")])))
        storage.read("t/a")
    assert seen == [((), (), 0)] * 4 + [(("a", "b"), ("a", "b"), 2)]


def calls(storage: FaultyStorage, count: int) -> int:
    """Make calls; returns how many failed."""
    failed = 0
    for _ in range(count):
        try:
            storage.exists("x")
        except InjectedError:
            failed += 1
    return failed


def test_calls_are_counted_over_all_processes(make: Callable[..., FaultyStorage]) -> None:
    storage = make(fail=45)
    with ProcessPoolExecutor(3, multiprocessing.get_context("spawn")) as pool:
        failed = [f.result() for f in [pool.submit(calls, storage.below("deeper"), 20) for _ in range(3)]]
    assert (sum(failed), len(storage.faults.calls())) == (1, 60)
