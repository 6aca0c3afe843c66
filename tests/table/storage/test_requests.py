"""What object stores do on the way: answers that are lost, connections that break, keys that are refused, forks."""

from __future__ import annotations

import json
import os
import pickle
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tagstream.table.errors import StaleVersionError, StoreError
from tagstream.table.storage.object_store import ObjectStorage
from tagstream.table.storage.opening import open_storage
from tests.support.http_proxy import LOSE, PASS, REFUSE, RESET, HttpProxy, Request
from tests.support.s3_server import KEY, SECRET, S3Server

pytestmark = pytest.mark.s3
CONDITIONAL = "PUT_IF"


@pytest.fixture
def storage(s3_folder: str, s3_server: S3Server, proxy: HttpProxy) -> ObjectStorage:
    return ObjectStorage.of_url(s3_folder, s3_server.settings(proxy.url), {})


def first(kind: str, what: str) -> Callable[[Request], str]:
    return lambda request: what if (request.kind, request.nth) == (kind, 1) else PASS


@pytest.mark.parametrize("what", [LOSE, REFUSE, RESET])
def test_a_first_writer_is_told_so_whatever_became_of_the_answer(
    storage: ObjectStorage, proxy: HttpProxy, what: str
) -> None:
    proxy.rule = first(CONDITIONAL, what)
    storage.write_new("a", b"mine")
    assert (storage.read("a"), proxy.counts[CONDITIONAL]) == (b"mine", 2)
    proxy.reset()
    proxy.rule = first(CONDITIONAL, what)
    with pytest.raises(FileExistsError):
        storage.write_new("a", b"another's")
    assert storage.read("a") == b"mine"


@pytest.mark.parametrize("what", [LOSE, REFUSE, RESET])
def test_a_swap_is_told_so_whatever_became_of_the_answer(storage: ObjectStorage, proxy: HttpProxy, what: str) -> None:
    proxy.rule = first(CONDITIONAL, what)
    version = storage.swap("r", b"1", None)
    proxy.reset()
    proxy.rule = first(CONDITIONAL, what)
    newer = storage.swap("r", b"2", version)
    proxy.reset()
    proxy.rule = first(CONDITIONAL, what)
    with pytest.raises(StaleVersionError):
        storage.swap("r", b"3", version)
    found = storage.read_register("r")
    assert found is not None
    assert (found.data, found.version) == (b"2", newer)


def each_call(storage: ObjectStorage, local: Path) -> None:
    """Every kind of request, each right."""
    local.write_bytes(b"y" * 10)
    storage.write_new("new", b"1")
    storage.replace("over", b"2")
    with storage.open_output("big") as out:
        out.write(b"x" * (20 << 20))
    storage.put("put", str(local))
    storage.publish([("over", "final"), ("new", "final2")])
    assert storage.read("final") == b"2"
    assert storage.size("big") == 20 << 20
    storage.fetch("big", str(local))
    assert local.read_bytes() == b"x" * (20 << 20)
    with storage.open_input("big") as f:
        assert f.read_at(10, 5) == b"x" * 10
    assert storage.names("") == ("big", "final", "final2", "new", "over", "put")
    storage.delete_many(["new", "over"])
    storage.delete_tree("big")
    storage.delete("put")
    storage.swap("register", b"1", None)
    assert storage.exists("final")
    assert not storage.exists("none")


@pytest.mark.parametrize("every", [2, 3])
@pytest.mark.parametrize("what", [REFUSE, RESET])
def test_a_store_that_breaks_off_now_and_then_is_asked_again(
    storage: ObjectStorage, proxy: HttpProxy, tmp_path: Path, what: str, every: int
) -> None:
    proxy.rule = lambda request: what if request.number % every == 0 else PASS
    each_call(storage, tmp_path / "local")


def test_a_store_that_is_busy_for_some_seconds_is_waited_for(
    storage: ObjectStorage, proxy: HttpProxy, tmp_path: Path
) -> None:
    busy_until = time.monotonic() + 3
    proxy.rule = lambda _: REFUSE if time.monotonic() < busy_until else PASS
    each_call(storage, tmp_path / "local")
    assert time.monotonic() > busy_until


def test_what_a_call_costs(storage: ObjectStorage, proxy: HttpProxy, tmp_path: Path) -> None:
    def of(action: Callable[[], object]) -> dict[str, int]:
        proxy.reset()
        action()
        return dict(proxy.counts)

    assert of(lambda: storage.write_new("t/a", b"1")) == {CONDITIONAL: 1}
    assert of(lambda: storage.replace("t/b", b"1")) == {"PUT": 1}
    assert of(lambda: storage.read("t/a")) == {"GET": 1}
    assert of(lambda: storage.read_range("t/a", 0, 1)) == {"GET": 1}
    assert of(lambda: storage.fetch("t/a", str(tmp_path / "a"))) == {"GET": 1}
    assert of(lambda: storage.exists("t/a")) == {"HEAD": 1}
    assert of(lambda: storage.exists("t")) == {"HEAD": 1, "LIST": 1}
    assert of(lambda: storage.names("t")) == {"LIST": 1}
    assert of(lambda: [*storage.walk_files("")]) == {"LIST": 1}
    assert of(lambda: storage.open_input("t/a").close()) == {"GET": 1}
    assert of(lambda: storage.publish([("t/a", "x"), ("t/b", "y")])) == {"HEAD": 2, "COPY": 2}
    assert of(lambda: storage.publish([("t/a", "x"), ("t/b", "y")], are_free=True)) == {"COPY": 2}
    many = ["t/a", "t/b", *(f"t/{n}" for n in range(1500))]
    assert of(lambda: storage.delete_many([*many, "t/a"])) == {"DELETE_MANY": 2}
    assert of(lambda: storage.delete_tree("t")) == {"LIST": 1}
    version = storage.swap("r", b"1", None)
    assert of(lambda: storage.swap("r", b"2", version)) == {CONDITIONAL: 1}
    assert of(lambda: storage.read_register("r")) == {"GET": 1}


def test_folders_that_hadoop_marks_by_empty_objects_are_no_files(storage: ObjectStorage, s3_server: S3Server) -> None:
    storage.write_new("t/.hoodie/x", b"")
    for name in ("t/.hoodie/.temp", "t/p=1"):
        s3_server.make_folder(f"{storage.prefix}/{name}")
    assert [*storage.walk_files("t")] == ["t/.hoodie/x"]
    assert [(e.name, e.is_dir) for e in storage.list("t")] == [(".hoodie", True), ("p=1", True)]
    assert [(e.name, e.is_dir) for e in storage.list("t/.hoodie")] == [(".temp", True), ("x", False)]
    assert storage.list("t/p=1") == []
    storage.delete_tree("t")
    assert [*storage.walk_files("t")] == []


def test_parquet_is_read_by_ranges(storage: ObjectStorage, proxy: HttpProxy) -> None:
    data = os.urandom(40 << 20)
    with storage.open_output("x") as out:
        out.write(data)
    proxy.reset()
    with storage.open_input("x") as f:
        assert f.size() == len(data)
        assert f.read_at(100, len(data) - 100) == data[-100:]
        assert proxy.counts == {"GET": 1}
        assert f.read_at(5 << 20, 1 << 20) == data[1 << 20 : 6 << 20]
        assert f.read_at(8, 3 << 20) == data[3 << 20 : (3 << 20) + 8]
        assert proxy.counts == {"GET": 2}


def test_an_upload_in_parts_that_an_exception_leaves_is_never_there(storage: ObjectStorage) -> None:
    with pytest.raises(ZeroDivisionError), storage.open_output("big") as out:
        out.write(b"x" * (20 << 20))
        raise ZeroDivisionError
    assert [*storage.walk_files("")] == []


def test_keys_are_in_no_pickle_and_in_no_error(storage: ObjectStorage, s3_server: S3Server) -> None:
    data = pickle.dumps(storage)
    assert KEY.encode() not in data.replace(s3_server.bucket.encode(), b"")
    assert SECRET.encode() not in data + repr(storage).encode()


def test_keys_that_the_store_does_not_know(
    storage: ObjectStorage, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = s3_server.settings() | {"fs.s3a.secret.key": "wrong-and-secret"}
    monkeypatch.setenv("TAGSTREAM_STORE_SETTINGS", json.dumps(settings))
    bucket = replace(storage.bucket, options=(*storage.bucket.options, ("allow_http", "true")))  # a client of its own
    wrong = ObjectStorage(bucket, storage.prefix)
    for action in (lambda: wrong.read("a"), lambda: wrong.write_new("a", b""), lambda: wrong.names("")):
        with pytest.raises(StoreError) as e:
            action()
        assert "wrong-and-secret" not in str(e.value)
        assert "credentials" in str(e.value)
        assert str(e.value).startswith(storage.root)


def test_a_bucket_that_is_not_there(s3_folder: str) -> None:
    with pytest.raises(StoreError, match="s3a://none/x/a: the bucket .* does not exist"):
        open_storage("s3a://none/x").read("a")


def test_a_child_of_a_process_that_has_used_the_store_is_told_so(storage: ObjectStorage) -> None:
    """It would hang for ever otherwise."""
    storage.replace("a", b"1")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            storage.read("a")
        except StoreError as e:
            os.write(write, str(e).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        assert "forked" in answer.read()
    assert os.waitpid(child, 0)[1] == 0
    assert storage.read("a") == b"1"
