"""A NameNode that closes files whose last block is not complete yet: what is read a moment later is whole all the same."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tagstream.table.storage.opening import open_storage
from tests.support.hdfs import HdfsServer

FILES = 400

pytestmark = pytest.mark.hdfs


def test_a_file_is_read_whole_as_soon_as_it_is_written(tmp_path: Path) -> None:
    """hdfs-native 0.14.7 gives some of them as empty, without an error."""
    early = {"dfs.namenode.file.close.num-committed-allowed": "1"}
    with HdfsServer(tmp_path / "server", site=early) as server:
        storage = open_storage(f"{server.url}/files")

        def write_and_read(number: int) -> bool:
            rel, data = f"f{number}", b"%d" % number * (1 + number % 300)
            storage.write_new(rel, data)
            kind = number % 4
            if kind == 0:
                return storage.read(rel) == data
            if kind == 1:
                return storage.read_range(rel, 0, 1 << 20) == data
            if kind == 2:
                with storage.open_input(rel) as file:
                    return bytes(file.read()) == data
            storage.fetch(rel, str(tmp_path / rel))
            return (tmp_path / rel).read_bytes() == data

        with ThreadPoolExecutor(4) as pool:
            whole = list(pool.map(write_and_read, range(FILES)))
    assert whole == [True] * FILES
