"""A job whose table and checkpoint lie on a server: ``url`` is their folder. What is asked of the table is asked there."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tagstream.table.storage.opening import open_storage
from tagstream.table.storage.storage import Storage
from tests.drills.stream_job import Outcome, StreamJob
from tests.support.compare import compare
from tests.support.events import Event
from tests.support.hdfs import HdfsServer
from tests.support.hudi_rs import read_table
from tests.support.process import POLL_SECONDS, session_members
from tests.support.s3_server import S3Server
from tests.support.stored import copy_down, reaching

_SPARK = "spark.hadoop."
Chunks = Sequence[Sequence[Event]]


@dataclass
class StoreJob(StreamJob):
    """``settings`` are Hadoop's, for the server; ``reader`` those of hudi-rs, which reads the URL itself where it has some.

    The job gets them as Spark's in a properties file, and this process keeps them while it looks at the table.
    ``source_too``: the folder of input files is there as well.
    """

    url: str = field(kw_only=True)
    settings: dict[str, str] = field(default_factory=dict, kw_only=True)
    reader: dict[str, str] = field(default_factory=dict, kw_only=True)
    source_too: bool = field(default=False, kw_only=True)

    @classmethod
    def at(
        cls, server: S3Server | HdfsServer, url: str, folder: Path, table_type: str, chunks: Chunks, **more: Any
    ) -> StoreJob:
        """A job on a running server, whose table and checkpoint are below ``url``."""
        reach = {"settings": server.settings(), "reader": server.reader}
        return cls(folder, table_type, chunks, url=url, **(reach | more))

    @property
    def table_url(self) -> str:
        return f"{self.url}/table"

    def write_input(self, first: int = 0, last: int | None = None) -> None:
        super().write_input(first, last)
        if self.source_too:
            with self.reached_by():
                there = open_storage(f"{self.url}/in")
                for path in sorted((self.folder / "in").iterdir()):
                    if path.name not in there.names(""):
                        there.put(path.name, str(path))

    def source(self) -> tuple[list[str], dict[str, str]]:
        flags, keys = super().source()
        return flags, {name: f"{self.url}/in" if self.source_too else value for name, value in keys.items()}

    def arguments(self, *more: str) -> list[str]:
        places = {str(self.table): self.table_url, str(self.checkpoint): f"{self.url}/checkpoint"}
        arguments = [places.get(argument, argument) for argument in super().arguments(*more)]
        self.properties.write_text("".join(f"{_SPARK}{name}={value}\n" for name, value in self.settings.items()))
        return ["--props", str(self.properties), *arguments]

    @property
    def properties(self) -> Path:
        """The file that has the keys, too."""
        return self.folder / "store.properties"

    def watched(self) -> str:
        """Run to the end of the input; everything that stood on the command line of any of its processes."""
        seen: set[bytes] = set()
        with self.start() as process:
            while process.returncode is None:
                for pid in session_members(process.pid):
                    with suppress(OSError):
                        seen.add(Path(f"/proc/{pid}/cmdline").read_bytes())
                time.sleep(POLL_SECONDS)
            assert process.returncode == 0, process.output()[-6000:]
        return b"\n".join(seen).decode(errors="replace")

    def storage(self) -> Storage:
        """The table's files."""
        with self.reached_by():
            return open_storage(self.table_url)

    def reached_by(self) -> Any:
        """While it is open, this process reaches the server."""
        return reaching(self.settings)

    def commits(self) -> list[dict[str, Any]]:
        with self.reached_by():
            table = HoodieTable.open(self.table_url) if self.storage().exists(".hoodie/hoodie.properties") else None
            if table is None:
                return []
            timeline = table.timeline()
            extra = [timeline.metadata(table.storage, i).extra for i in timeline.completed_writes]
            return [json.loads(e["tagstream.commit"]) for e in extra if "tagstream.commit" in e]

    def compare(self) -> Outcome:
        """The table on the server, read by hudi-rs, against the oracle."""
        expected = self.expected()
        found = self.rows() if self.commits() else expected.slice(0, 0)
        if self.commits():
            with self.reached_by():
                assert not (wrong := validate_metadata(HoodieTable.open(self.table_url))), wrong
        return Outcome(expected.num_rows, found.num_rows, compare(expected, found, ["id"]))

    def rows(self) -> pa.Table:
        """The snapshot by hudi-rs: from the server itself, or from a copy."""
        if self.reader:
            return read_table(self.table_url, meta_columns=False, options=self.reader)
        with self.reached_by():
            return read_table(copy_down(self.storage(), self.folder / "copy"), meta_columns=False)

    def unnamed_files(self) -> list[str]:
        """Data files that no commit names; and what a check of the whole table says."""
        with self.reached_by():
            table = HoodieTable.open(self.table_url)
            assert validate(table) == []
            timeline = table.timeline()
            named = {s.path for i in timeline.completed_writes for s in timeline.metadata(table.storage, i).all_stats()}
            there = {rel for rel in table.storage.walk_files("") if not rel.startswith(".hoodie/")}
            return sorted(rel for rel in there - named if not rel.endswith(".hoodie_partition_metadata"))

    def files_of_batches(self) -> list[list[str]]:
        """The data files that each commit names."""
        with self.reached_by():
            table = HoodieTable.open(self.table_url)
            timeline = table.timeline()
            return [
                [s.path for s in timeline.metadata(table.storage, i).all_stats()] for i in timeline.completed_writes
            ]
