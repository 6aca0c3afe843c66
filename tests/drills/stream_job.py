"""A stream under drill: its folders, its command, and what its table must hold at any moment.

A batch takes one event file; a kill between Spark's log of files and its log of offsets makes the next batch take two.
So each commit says itself how far into the files it reaches, and the table must be the oracle of exactly those. The table
is read by hudi-rs, batch ids and reach come from the commit files.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import events as ev
from tests.support.compare import Differences, compare
from tests.support.hudi_rs import read_table
from tests.support.process import Process

PROJECT = Path(__file__).resolve().parents[2]
DEADLINE_S = 240


@dataclass
class StreamJob:
    """``chunks[i]`` are the events of file i."""

    folder: Path
    table_type: str
    chunks: Sequence[Sequence[ev.Event]]
    conf: dict[str, str] = field(default_factory=dict)
    runs: int = 0

    @property
    def table(self) -> Path:
        return self.folder / "table"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def write_input(self, first: int = 0, last: int | None = None) -> None:
        """Put the files first..last (excluded) where the source finds them."""
        for number, chunk in list(enumerate(self.chunks))[first:last]:
            ev.write_files(chunk, self.folder / "in", len(chunk), first=number)
        (self.folder / "event.avsc").write_text(json.dumps(ev.AVRO_SCHEMA))

    def command(self, *more: str) -> list[str]:
        conf = {
            **ev.PROPERTIES,
            "hoodie.streamer.source.dfs.root": str(self.folder / "in"),
            "hoodie.streamer.schemaprovider.source.schema.file": str(self.folder / "event.avsc"),
            "hoodie.index.bloom.num_entries": "1000",
            "index.local.dir": str(self.folder / "local"),
            "spark.driver.memory": "1g",
            "spark.local.dir": str(self.folder / "spark"),
            **self.conf,
        }
        out = [sys.executable, str(PROJECT / "run_stream.py"), "--source-class", "JsonDFSSource", "--source-limit", "1"]
        out += ["--target-base-path", str(self.table), "--target-table", "drill", "--table-type", self.table_type]
        out += ["--checkpoint-dir", str(self.checkpoint), *more]
        for key, value in conf.items():
            out += ["--hoodie-conf", f"{key}={value}"]
        return out

    def start(self, *more: str, crash: str = "") -> Process:
        """The job as a process of its own session; ``crash`` is ``<crash point>@<batch>``."""
        self.runs += 1
        env = {**os.environ, "TAGSTREAM_CRASH": crash}
        return Process(self.command(*more), self.folder / "log" / f"run-{self.runs:03d}.log", cwd=self.folder, env=env)

    def finish(self) -> None:
        """Run to the end of the input; AssertionError with the log when it fails."""
        with self.start() as process:
            code = process.wait(DEADLINE_S)
            assert code == 0, process.output()[-6000:]

    def commits(self) -> list[dict[str, Any]]:
        """What each commit on the timeline says of its batch, in the order of the instants."""
        paths = sorted((self.table / ".hoodie").glob("*.*commit")) if self.table.exists() else []
        return [json.loads(json.loads(p.read_text())["extraMetadata"]["tagstream.commit"]) for p in paths]

    def check(self) -> int:
        """The table is the oracle of the files committed so far, each batch once; returns how many files that are."""
        done = self.commits()
        assert [c["batch_id"] for c in done] == list(range(len(done))), f"batches on the timeline: {done}"
        if not done:
            return 0
        reach = [c["end_offsets"]["log"] for c in done]
        assert [c["start_offsets"]["log"] for c in done] == [-1, *reach[:-1]], f"files skipped or taken twice: {done}"
        files = int(reach[-1]) + 1
        wrong = self.differences(files)
        assert not wrong, f"after {files} files: {wrong}"
        return files

    def differences(self, files: int) -> Differences:
        """The table against the oracle of the first ``files`` files."""
        live = ev.oracle(event for chunk in self.chunks[:files] for event in chunk)
        return compare(ev.rows(live.values()), read_table(self.table, meta_columns=False), ["id"])


def chunks_of(events: Sequence[ev.Event], size: int) -> list[list[ev.Event]]:
    """Events cut in chunks of ``size``."""
    return [list(events[i : i + size]) for i in range(0, len(events), size)]
