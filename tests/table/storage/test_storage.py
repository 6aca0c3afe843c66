"""Files below a base path: nothing outside it, nothing half written, no stale checksum files."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tagstream.table.errors import ConfigError, InvalidPartitionPathError
from tagstream.table.storage.opening import canonical, open_storage, path_of, uri


@pytest.mark.parametrize("url", ["ftp://host/t", "wasbs://x@y/t", "abfss://x@y/t", "s3a:///t", "gs://", "s3://b/../t"])
def test_other_file_systems_and_wrong_urls_are_refused_by_name(url: str) -> None:
    with pytest.raises(ConfigError, match=url.split(":")[0] + "://"):
        open_storage(url)


def test_a_package_that_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("tagstream.table.storage.object")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(ConfigError, match=r"s3a://b/t: the package obstore is missing .*tagstream\[s3\]"):
        open_storage("s3a://b/t")


def test_paths_and_file_urls_are_the_same_place(tmp_path: Path) -> None:
    assert open_storage(str(tmp_path)) == open_storage(f"file://{tmp_path}") == open_storage(f"file:{tmp_path}")
    assert open_storage(f"file://{tmp_path}/a%20b").root == f"{tmp_path}/a b"
    with pytest.raises(ConfigError, match="empty"):
        open_storage("")


@pytest.mark.parametrize(
    ("place", "known"),
    [
        ("/a//b/../c/", "/a/c"),
        ("file:///a%20b", "/a b"),
        ("s3://b//x/", "s3a://b/x"),
        ("s3a://b", "s3a://b"),
        ("hdfs://nn:8020//x/y/", "hdfs://nn:8020/x/y"),
        ("hdfs:///x", "hdfs:///x"),
        ("ftp://h/x/", "ftp://h/x/"),
    ],
)
def test_a_place_has_one_spelling(place: str, known: str) -> None:
    assert canonical(place) == known
    assert canonical(known) == known


@pytest.mark.parametrize("where", ["/a b/p=1%/x", "s3a://b/a b/p=1%/x", "hdfs://nn:8020/ü/x"])
def test_spark_names_files_by_uris(where: str) -> None:
    assert " " not in uri(where)
    assert path_of(uri(where)) == where


@pytest.mark.parametrize("rel", ["../x", "a/../../x", "/etc/passwd", "a//b", "a/./b", "..", "a\0b", "a/.."])
def test_no_path_leaves_the_table(rel: str, tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path / "t"))
    for action in (storage.where, storage.read, storage.delete, storage.list, storage.names):
        with pytest.raises(InvalidPartitionPathError):
            action(rel)


def test_write_new_is_exclusive_and_leaves_no_traces(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    storage.write_new("a/b", b"one")
    with pytest.raises(FileExistsError):
        storage.write_new("a/b", b"two")
    assert storage.read("a/b") == b"one"
    assert os.listdir(tmp_path / "a") == ["b"]


def test_checksum_files_are_neither_listed_nor_left_stale(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    for rel in ("new", "replaced", "deleted"):
        (tmp_path / f".{rel}.crc").write_bytes(b"crc")
    storage.replace("replaced", b"x")
    storage.delete("deleted")
    storage.write_new("new", b"y")
    (tmp_path / ".kept.crc").write_bytes(b"crc")
    assert [e.name for e in storage.list("")] == ["new", "replaced"]
    assert sorted(os.listdir(tmp_path)) == [".kept.crc", "new", "replaced"]


def test_missing_folders_are_empty_and_trees_can_go(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    assert storage.list("none") == []
    storage.replace("x/y/z", b"")
    assert list(storage.walk_files("x")) == ["x/y/z"]
    storage.delete_tree("x")
    storage.delete_tree("x")
    assert not storage.exists("x")
    with pytest.raises(ValueError, match="as a whole"):
        storage.delete_tree("")
