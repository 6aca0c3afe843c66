"""The folder of a table and its checkpoint when a store is measured: this disk, S3 or HDFS on loopback behind a proxy."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from tagstream.table.storage.opening import open_storage
from tests.support.hdfs import HdfsServer
from tests.support.http_proxy import HttpProxy
from tests.support.s3_server import S3Server
from tests.support.stored import copy_down, reaching
from tests.support.tcp_proxy import TcpProxy

LOCAL, S3, HDFS = "local", "s3", "hdfs"
# With this NameNode option a file can be closed when its DataNodes have confirmed the last block to the writer. Otherwise
# one of them must also have reported it to the NameNode, and a client that asks too early asks again half a second later.
HDFS_COMMITTED = "hdfs-committed"
_COMMITTED = {"dfs.namenode.file.close.num-committed-allowed": "1"}
_COPIES = 16  # at once


@dataclass(frozen=True)
class Place:
    """``url``: the folder. ``near``: the store's settings without the proxy. ``proxy``: counts the requests to S3."""

    kind: str
    delay_ms: float
    url: str
    settings: Mapping[str, str] = field(default_factory=dict)
    near: Mapping[str, str] = field(default_factory=dict)
    near_url: str = ""
    proxy: HttpProxy | None = None

    @property
    def name(self) -> str:
        """Name in reports."""
        return self.kind if self.kind == LOCAL else f"{self.kind}, {self.delay_ms:g} ms"

    def options(self) -> dict[str, str]:
        """The job's options for access to the store."""
        return {f"spark.hadoop.{name}": value for name, value in self.settings.items()}

    def copy_up(self, folder: Path, name: str) -> None:
        """Copy all files of a local folder to the store, without the proxy."""
        with reaching(self.near):
            there = open_storage(f"{self.near_url}/{name}")
            paths = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".crc"]
            with ThreadPoolExecutor(_COPIES) as pool:
                list(pool.map(lambda path: there.put(str(path.relative_to(folder)), str(path)), paths))

    def copy_down(self, name: str, folder: Path) -> None:
        """Copy a folder of the store to a new local folder."""
        with reaching(self.near):
            copy_down(open_storage(f"{self.near_url}/{name}"), folder)


@contextmanager
def place(kind: str, delay_ms: float, folder: Path, *, counted: bool = True) -> Iterator[Place]:
    """A place of this kind while the block runs. On HDFS only the NameNode is delayed; data goes to the DataNodes directly.

    ``counted``: the proxy counts the requests to S3. Without it there is a proxy only for a delay. SIGTERM ends the block
    like Ctrl-C, so that no server continues to run.
    """
    with ExitStack() as stack:
        before = signal.signal(signal.SIGTERM, _end)
        stack.callback(signal.signal, signal.SIGTERM, before)
        if kind == S3:
            stack.callback(shutil.rmtree, folder / "server", ignore_errors=True)
            s3 = stack.enter_context(S3Server(folder / "server"))
            url = f"s3a://{s3.bucket}/bench"
            proxy = stack.enter_context(HttpProxy(s3.port, delay_ms)) if counted or delay_ms else None
            settings = s3.settings(None if proxy is None else proxy.url)
            yield Place(kind, delay_ms, url, settings, s3.settings(), url, proxy)
        elif kind in (HDFS, HDFS_COMMITTED):
            site = _COMMITTED if kind == HDFS_COMMITTED else {}
            hdfs = stack.enter_context(HdfsServer(folder / "server", site=site))
            far = stack.enter_context(TcpProxy(hdfs.port, delay_ms)).port if delay_ms else hdfs.port
            url = f"hdfs://127.0.0.1:{far}/bench"
            yield Place(kind, delay_ms, url, hdfs.settings(), hdfs.settings(), f"{hdfs.url}/bench")
        else:
            yield Place(kind, 0, str(folder / "local"), near_url=str(folder / "local"))
            shutil.rmtree(folder / "local", ignore_errors=True)


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    raise SystemExit(128 + number)
