"""The demo's table and checkpoint on a real server: S3 (MinIO) or HDFS, started on loopback for the run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from rich.console import Console

from tagstream.table.storage.opening import open_storage
from tagstream.table.storage.settings import keep_settings
from tests.support.hdfs import HdfsServer
from tests.support.hudi_rs import read_table
from tests.support.s3_server import S3Server
from tests.support.stored import copy_down


@dataclass(frozen=True)
class Store:
    """A folder for table and checkpoint: its ``url``, and Hadoop's ``settings`` for the access to it.

    ``reader``: the settings for hudi-rs; None if hudi-rs does not read the URL. ``properties``: path of a file to write.
    """

    url: str
    settings: Mapping[str, str]
    properties: Path
    reader: Mapping[str, str] | None

    def reached(self, arguments: Sequence[str]) -> list[str]:
        """A job's arguments. The settings go into its properties file, because secrets must not be on a command line."""
        at = list(arguments).index("--props") + 1
        lines = [f"include={arguments[at]}", *(f"spark.hadoop.{name}={value}" for name, value in self.settings.items())]
        self.properties.write_text("\n".join(lines) + "\n")
        return [*arguments[:at], str(self.properties), *arguments[at + 1 :]]

    @property
    def table(self) -> str:
        """The table's URL."""
        return f"{self.url}/flights"

    @property
    def checkpoint(self) -> str:
        """The checkpoint's URL."""
        return f"{self.url}/flights-checkpoint"

    def rows(self, scratch: Path) -> pa.Table:
        """The rows by hudi-rs: from the store itself, or from a copy in ``scratch``."""
        if self.reader is not None:
            return read_table(self.table, options=self.reader)
        return read_table(copy_down(open_storage(self.table), scratch))


@contextmanager
def running(kind: str, folder: Path, console: Console) -> Iterator[Store]:
    """A server of this kind, ``s3`` or ``hdfs``, while the block runs."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    server: S3Server | HdfsServer
    if kind == "s3":
        console.print("starting MinIO on loopback (Go builds it the first time, which takes minutes)")
        server = S3Server(folder / "server")
        url, reader = f"s3a://{server.bucket}", server.reader
    else:
        console.print("starting HDFS on loopback (Maven fetches its jars the first time)")
        server = HdfsServer(folder / "server")
        url, reader = server.url, None
    with server:
        settings = server.settings()
        keep_settings(settings, os.environ)
        yield Store(f"{url}/demo", settings, folder / "store.properties", reader)
