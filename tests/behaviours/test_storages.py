"""Every promise of a storage, held by every implementation: what table and checkpoint may rely on, wherever they lie."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tagstream.table.errors import InvalidPartitionPathError, StaleVersionError
from tagstream.table.storage.storage import Storage, create
from tests.behaviours import storages as s
from tests.support.paths import ROOT


def all_files(storage: Storage) -> list[str]:
    return [*storage.walk_files("")]


# Names


def test_a_place_is_named_from_its_root(storage: Storage) -> None:
    below = storage.below("a").below("b")
    below.write_new("c", b"1")
    assert below.where("c") == storage.where("a/b/c") == f"{storage.root}/a/b/c"
    assert (below.root, storage.read("a/b/c"), storage.below("a/b")) == (storage.where("a/b"), b"1", below)


@pytest.mark.parametrize("rel", ["../x", "a/../../x", "/etc/passwd", "a//b", "a/./b", "..", "a\0b", "a/..", "a/"])
def test_nothing_outside_the_root_can_be_named(storage: Storage, rel: str, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_bytes(b"")
    actions: list[Callable[[], object]] = [
        lambda: storage.where(rel),
        lambda: storage.below(rel),
        lambda: storage.exists(rel),
        lambda: storage.size(rel),
        lambda: storage.list(rel),
        lambda: storage.names(rel),
        lambda: list(storage.walk_files(rel)),
        lambda: storage.read(rel),
        lambda: storage.read_range(rel, 0, 1),
        lambda: storage.open_input(rel),
        lambda: storage.fetch(rel, str(tmp_path / "to")),
        lambda: storage.write_new(rel, b""),
        lambda: storage.replace(rel, b""),
        lambda: storage.put(rel, str(local)),
        lambda: storage.publish([("staged", rel)]),
        lambda: storage.publish([(rel, "final")]),
        lambda: storage.delete(rel),
        lambda: storage.delete_many([rel]),
        lambda: storage.delete_tree(rel),
        lambda: storage.delete_empty(rel),
    ]
    storage.replace("staged", b"")
    for action in actions:
        with pytest.raises(InvalidPartitionPathError):
            action()


def test_it_is_a_value_that_tasks_get(storage: Storage) -> None:
    copy = pickle.loads(pickle.dumps(storage))  # noqa: S301 (what Spark does with it)
    copy.write_new("x", b"1")
    assert (copy, storage.read("x")) == (storage, b"1")


def test_a_program_is_started_by_a_process_that_uses_it(storage: Storage) -> None:
    """With code between fork and exec, as pyspark starts its JVM: nothing of the storage may hang in that child."""
    storage.replace("x", b"1")
    done = subprocess.run(["true"], preexec_fn=lambda: None, timeout=60, check=False)
    assert (done.returncode, storage.read("x")) == (0, b"1")


# Looking


def test_listings_are_sorted_and_tell_files_from_folders(storage: Storage) -> None:
    before = int(time.time() * 1000) - 5_000
    for rel in ("t/b", "t/a/inner", "t/ab", "t/.hidden", "other"):
        storage.write_new(rel, rel.encode())
    assert storage.names("t") == (".hidden", "a", "ab", "b")
    assert [(e.name, e.is_dir) for e in storage.list("t")] == [
        (".hidden", False),
        ("a", True),
        ("ab", False),
        ("b", False),
    ]
    assert {e.name: e.size for e in storage.list("t") if not e.is_dir} == {".hidden": 9, "ab": 4, "b": 3}
    files = [e for e in storage.list("t") if not e.is_dir]  # a folder has no time of its own on every store
    assert all(before <= e.mtime_ms <= time.time() * 1000 + 5_000 for e in files)
    assert [e.name for e in storage.list("t", ("a", ".h"))] == [".hidden", "a", "ab"]
    assert sorted(storage.walk_files("t")) == ["t/.hidden", "t/a/inner", "t/ab", "t/b"]
    assert sorted(storage.walk_files("")) == ["other", "t/.hidden", "t/a/inner", "t/ab", "t/b"]
    assert storage.below("t").names("") == storage.names("t")


def test_a_missing_folder_is_an_empty_one(storage: Storage) -> None:
    storage.write_new("file", b"1")
    for rel in ("none", "none/at/all", "file/below"):
        assert (storage.list(rel), storage.names(rel), [*storage.walk_files(rel)]) == ([], (), [])
        assert not storage.exists(rel)


def test_what_is_there_and_what_is_not(storage: Storage) -> None:
    storage.write_new("a/b/c", b"123")
    assert [storage.exists(rel) for rel in ("a", "a/b", "a/b/c", "a/b/c2", "a/b/", "b")[:4]] == [
        True,
        True,
        True,
        False,
    ]
    assert storage.size("a/b/c") == 3
    with pytest.raises(FileNotFoundError):
        storage.size("a/b/c2")


def test_a_stamp_changes_with_the_names_of_a_folder(storage: Storage) -> None:
    storage.write_new("t/a", b"1")
    before = storage.stamp("t")
    assert storage.stamp("t") == before
    storage.write_new("t/b", b"1")
    between = storage.stamp("t")
    storage.delete("t/a")
    stamps = [before, between, storage.stamp("t")]
    assert stamps == [None] * 3 or len(set(stamps)) == 3


# Reading


def test_reading(storage: Storage, tmp_path: Path) -> None:
    data = bytes(range(256)) * 10
    storage.write_new("x", data)
    storage.write_new("empty", b"")
    assert (storage.read("x"), storage.read("empty")) == (data, b"")
    assert storage.read_range("x", 5, 7) == data[5:12]
    assert storage.read_range("x", len(data) - 3, 100) == data[-3:]
    assert (storage.read_range("x", len(data), 5), storage.read_range("empty", 0, 5)) == (b"", b"")
    storage.fetch("x", str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == data
    storage.fetch("empty", str(tmp_path / "none"))
    assert (tmp_path / "none").read_bytes() == b""
    with storage.open_input("x") as f:
        assert (f.size(), f.read()) == (len(data), data)


def test_arrow_reads_a_file_in_place(storage: Storage) -> None:
    table = pa.table({"a": range(1000), "b": [str(i) for i in range(1000)]})
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=100)
    storage.write_new("x.parquet", sink.getvalue())
    with storage.open_input("x.parquet") as f, pq.ParquetFile(f) as file:
        assert file.read_row_group(3, columns=["b"]).column("b").to_pylist() == [str(i) for i in range(300, 400)]
        assert file.read() == table


def test_a_missing_file_is_named(storage: Storage, tmp_path: Path) -> None:
    actions: list[Callable[[], object]] = [
        lambda: storage.read("none"),
        lambda: storage.read_range("none", 0, 1),
        lambda: storage.open_input("none"),
        lambda: storage.fetch("none", str(tmp_path / "copy")),
    ]
    for action in actions:
        with pytest.raises(FileNotFoundError) as e:
            action()
        assert storage.where("none") in str(e.value)
    assert not (tmp_path / "copy").exists() or not storage.exists("none")


# Writing


def test_the_first_writer_of_a_name_wins(storage: Storage) -> None:
    storage.write_new("a/b", b"one")
    with pytest.raises(FileExistsError):
        storage.write_new("a/b", b"two")
    assert (storage.read("a/b"), storage.names("a")) == (b"one", ("b",))


def test_an_output_appears_whole_at_the_end(storage: Storage) -> None:
    with storage.open_output("a/b") as out:
        for _ in range(3):
            out.write(b"x" * 100_000)
        assert (storage.exists("a/b"), storage.names("a"), all_files(storage)) == (False, (), [])
    assert storage.read("a/b") == b"x" * 300_000
    with storage.open_output("a/b") as out:
        out.write(b"again")
        assert storage.size("a/b") == 300_000
    assert (storage.read("a/b"), storage.names("a")) == (b"again", ("b",))


def test_an_output_that_an_exception_leaves_never_appears(storage: Storage) -> None:
    storage.write_new("kept", b"before")
    for rel in ("new", "kept"):
        with pytest.raises(ZeroDivisionError), storage.open_output(rel) as out:
            out.write(b"x" * s.BIG)
            raise ZeroDivisionError
    assert (storage.read("kept"), all_files(storage)) == (b"before", ["kept"])


def test_what_a_killed_process_was_writing_never_appears(storage: Storage) -> None:
    program = (
        "import pickle, sys; from tests.behaviours.storages import write_half_and_wait as w; "
        f"w(pickle.loads(bytes.fromhex('{pickle.dumps(storage).hex()}')), 'a/b')"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, cwd=ROOT
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"half\n"
        process.kill()
        process.wait()
    assert (storage.exists("a/b"), storage.names("a"), storage.list("a"), all_files(storage)) == (False, (), [], [])
    later = int(time.time() * 1000) + 60_000
    storage.clear_scratch("", later - 3_600_000)  # younger than that: may still be at work
    assert storage.clear_scratch("a", later) == s.leaves_scratch(storage)
    assert storage.clear_scratch("", later) == 0


def test_a_local_file_is_put(storage: Storage, tmp_path: Path) -> None:
    local = tmp_path / "local"
    for size in (0, 10, s.BIG):
        local.write_bytes(b"y" * size)
        storage.put("a/b", str(local))
        assert storage.read("a/b") == b"y" * size
    with pytest.raises(FileNotFoundError):
        storage.put("a/c", str(tmp_path / "none"))
    assert storage.names("a") == ("b",)


# Publishing


def test_staged_files_get_their_names(storage: Storage) -> None:
    pairs = [(f".temp/{i}", f"p={i % 2}/{i}") for i in range(6)]
    for staged, _ in pairs:
        storage.replace(staged, staged.encode())
    storage.publish(pairs)
    assert {final: storage.read(final) for _, final in pairs} == {final: staged.encode() for staged, final in pairs}
    storage.delete_tree(".temp")
    assert storage.read("p=1/3") == b".temp/3"
    storage.publish([])


def test_nothing_is_published_of_a_staged_file_that_was_taken_away(storage: Storage) -> None:
    storage.replace(".temp/a", b"1")
    storage.delete(".temp/a")
    with pytest.raises(FileNotFoundError):
        storage.publish([(".temp/a", "p/a")])
    storage.replace(".temp/T/b", b"1")
    storage.delete_tree(".temp/T")
    with pytest.raises(FileNotFoundError):
        storage.publish([(".temp/T/b", "p/b")])
    assert storage.names("p") == ()


def test_a_final_name_that_is_taken_stays_as_it_is(storage: Storage) -> None:
    storage.write_new("p/a", b"before")
    storage.replace(".temp/a", b"after")
    with pytest.raises(FileExistsError):
        storage.publish([(".temp/a", "p/a")])
    assert storage.read("p/a") == b"before"


# Registers


def test_a_register_is_changed_by_its_newest_version_only(storage: Storage) -> None:
    assert storage.read_register("a/r") is None
    with pytest.raises(StaleVersionError):
        storage.swap("a/r", b"0", "1")
    first = storage.swap("a/r", b"1", None)
    with pytest.raises(StaleVersionError):
        storage.swap("a/r", b"x", None)
    second = storage.swap("a/r", b"2", first)
    with pytest.raises(StaleVersionError):
        storage.swap("a/r", b"x", first)
    found = storage.read_register("a/r")
    assert found is not None
    assert (found.data, found.version, first != second) == (b"2", second, True)
    assert storage.read_register("a/r2") is None


# Removing


def test_removing(storage: Storage) -> None:
    for rel in ("a", "b", "c", "t/x", "t/u/y", "t2"):
        storage.write_new(rel, b"1")
    assert storage.delete("a")
    storage.delete("a")
    storage.delete_many(["b", "none", "t/none"])
    storage.delete_many([])
    assert storage.names("") == ("c", "t", "t2")
    storage.delete_tree("t")
    storage.delete_tree("t")
    storage.delete_tree("none/at/all")
    assert (storage.names(""), all_files(storage), storage.exists("t")) == (("c", "t2"), ["c", "t2"], False)
    with pytest.raises(ValueError, match="never deleted"):
        storage.delete_tree("")
    storage.write_new("a", b"2")
    assert storage.read("a") == b"2"


def test_removing_folders_without_files(storage: Storage) -> None:
    for rel in ("t/u/v/x", "t/w/y", "k/z"):
        storage.write_new(rel, b"1")
    storage.delete("t/u/v/x")
    storage.delete_empty("t")
    storage.delete_empty("none/at/all")
    assert (all_files(storage), storage.exists("t/u"), storage.exists("t/w")) == (["k/z", "t/w/y"], False, True)
    storage.delete("t/w/y")
    storage.delete_empty("t")
    assert (storage.names(""), storage.exists("t")) == (("k",), False)
    with pytest.raises(ValueError, match="never deleted"):
        storage.delete_empty("")


# Answers that are told twice


def test_a_file_of_ones_own_counts_as_created(storage: Storage) -> None:
    assert create(storage, "runs/1", b"me")
    assert create(storage, "runs/1", b"me")  # as after an answer that was lost
    assert not create(storage, "runs/1", b"another")
    assert storage.read("runs/1") == b"me"
