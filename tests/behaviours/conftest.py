"""The options that each index needs beside its name, the storages, and the places of locks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tagstream.table.storage.opening import open_storage
from tagstream.table.storage.storage import Storage
from tests.behaviours import lock_places
from tests.behaviours import storages as s
from tests.behaviours.index_cases import CONSISTENT
from tests.support.hbase import LOOPBACK, HbaseServer

_numbers = count()


_SERVERS = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in s.SERVERS]


@pytest.fixture(params=[*s.IMPLEMENTATIONS, *_SERVERS])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """One of every kind, empty."""
    if request.param in s.SERVERS:
        return open_storage(request.getfixturevalue(s.SERVERS[request.param]))
    return s.IMPLEMENTATIONS[request.param](tmp_path)


@pytest.fixture
def conf_of(request: pytest.FixtureRequest) -> Callable[[str], dict[str, str]]:
    """Options by index type. HBASE gets a table of its own on the running server, which starts when first asked for."""
    made: dict[str, dict[str, str]] = {}

    def options(index: str) -> dict[str, str]:
        if index not in made:
            kind = "BUCKET" if index == CONSISTENT else index
            made[index] = {"hoodie.index.type": kind, **_more(index, request)}
        return made[index]

    return options


def _more(index: str, request: pytest.FixtureRequest) -> dict[str, str]:
    if index == "BUCKET":
        return {"hoodie.bucket.index.num.buckets": "3"}
    if index == CONSISTENT:
        return {"hoodie.bucket.index.num.buckets": "3", "hoodie.index.bucket.engine": "CONSISTENT_HASHING"}
    if index == "RECORD_INDEX":
        return {
            "hoodie.record.index.update.partition.path": "true",
            "hoodie.metadata.record.index.min.filegroup.count": "2",
        }
    if index == "RECORD_LEVEL_INDEX":
        return {
            "hoodie.write.table.version": "9",  # 6 has none of this form
            "hoodie.metadata.record.level.index.min.filegroup.count": "2",
        }
    if index != "HBASE":
        return {}
    server: HbaseServer = request.getfixturevalue("hbase_server")
    name = f"behaviour{next(_numbers)}"
    server.make_table(name, 2)
    return {
        "hoodie.index.hbase.table": name,
        "tagstream.hbase.thrift.host": LOOPBACK,
        "tagstream.hbase.thrift.port": str(server.thrift_port),
        "hoodie.index.hbase.qps.fraction": "1.0",
        "hoodie.index.hbase.max.qps.per.region.server": "1000000",
        "hoodie.hbase.index.update.partition.path": "true",
    }


@pytest.fixture(scope="module", params=lock_places.marked(*lock_places.KINDS))
def lock_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The kind of a lock, and the options of all locks of its server, which runs."""
    with lock_places.server(request.param, tmp_path_factory.mktemp("server")) as options:
        yield request.param, options


@pytest.fixture
def place(lock_server: tuple[str, dict[str, Any]], tmp_path: Path) -> Iterator[lock_places.Place]:
    """The lock of a new table."""
    kind, options = lock_server
    made = lock_places.Place(kind, options, lock_places.base_path(kind, tmp_path))
    yield made
    made.close()
