"""A job under drill: its folders, its command, and what its table must hold at any moment.

How much a batch takes is not certain (a kill between Spark's log of files and its log of offsets makes the next batch take
two files). So each commit says itself how far it reaches, and the table must be the oracle of exactly that. The table is
read by hudi-rs, batch ids and reach come from the commit files.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tagstream.state.checkpoint import current_query_folder
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate_metadata import validate_metadata
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tests.support import events as ev
from tests.support.compare import Differences, compare
from tests.support.hudi_rs import read_table
from tests.support.paths import ROOT
from tests.support.process import Process
from tests.support.table_version import timeline_of

PROJECT = ROOT
PROGRAM = (sys.executable, PROJECT / "run_stream.py")
DEADLINE_S = 240


@dataclass
class Job:
    """A stream's folders, its process and its commits; a subclass says what it reads."""

    folder: Path
    table_type: str
    conf: dict[str, str] = field(default_factory=dict, kw_only=True)
    env: dict[str, str] = field(default_factory=dict, kw_only=True)
    runs: int = field(default=0, kw_only=True)

    @property
    def table(self) -> Path:
        return self.folder / "table"

    @property
    def root(self) -> Path:
        """Of the checkpoint's query: where Spark's folders and its index are."""
        return Path(current_query_folder(PosixStorage(str(self.checkpoint))).files.root)

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def local(self) -> Path:
        """The local stores' folder."""
        return self.folder / "local"

    def source(self) -> tuple[list[str], dict[str, str]]:
        """Flags and keys that name the source."""
        raise NotImplementedError

    def reached(self, offsets: Any) -> list[ev.Event]:
        """The events up to a commit's end offsets."""
        raise NotImplementedError

    def arguments(self, *more: str) -> list[str]:
        """The command line behind the program's name."""
        schema = self.folder / "event.avsc"
        schema.parent.mkdir(parents=True, exist_ok=True)
        schema.write_text(json.dumps(ev.AVRO_SCHEMA))
        flags, keys = self.source()
        conf = {
            **ev.properties(self.conf),
            **keys,
            "hoodie.streamer.schemaprovider.source.schema.file": str(schema),
            "hoodie.index.bloom.num_entries": "1000",
            "index.local.dir": str(self.local),
            "hoodie.archive.automatic": "false",  # what became of each batch is read from the commits
            "spark.driver.memory": "1g",
            "spark.local.dir": str(self.folder / "spark"),
            **self.conf,
        }
        out = [*flags, "--target-base-path", str(self.table), "--target-table", "drill"]
        out += ["--table-type", self.table_type, "--checkpoint-dir", str(self.checkpoint), *more]
        for key, value in conf.items():
            out += ["--hoodie-conf", f"{key}={value}"]
        return out

    def start(self, *more: str, crash: str = "", program: Sequence[str | Path] = PROGRAM, **env: str) -> Process:
        """The job as a process of its own session; ``crash`` is ``<crash point>@<batch>``, ``env`` is added."""
        self.runs += 1
        log = self.folder / "log" / f"run-{self.runs:03d}.log"
        hooks = {"TAGSTREAM_CRASH": crash, "TAGSTREAM_CRASH_NOTE": str(log.with_suffix(".note"))}
        environment = {**os.environ, **self.env, **hooks, **env}
        log.parent.mkdir(parents=True, exist_ok=True)
        return Process([*program, *self.arguments(*more)], log, cwd=self.folder, env=environment)

    def crash(self, point: str, batch: int | str) -> None:
        """One start that must die at a crash point: by SIGKILL, with the note that the point leaves."""
        with self.start(crash=f"{point}@{batch}") as process:
            code = process.wait(DEADLINE_S)
            assert code == -9, f"{point}@{batch}: ended with {code}\n{process.output()[-4000:]}"
            note = process.log.with_suffix(".note")
            assert note.read_text() == f"{point}@{batch}\n", f"{point}@{batch}: killed, but not there"

    def finish(self, *more: str, **env: str) -> str:
        """Run to the end of the input and return the log; AssertionError with it when the run fails."""
        with self.start(*more, **env) as process:
            code = process.wait(DEADLINE_S)
            assert code == 0, process.output()[-6000:]
            return process.output()

    def fails(self, *more: str, **env: str) -> str:
        """A run that must end with exit code 1 and one line for people, which is returned."""
        with self.start(*more, **env) as process:
            code = process.wait(DEADLINE_S)
            return error_line(process, code)

    def commits(self) -> list[dict[str, Any]]:
        """What each commit of the job on the timeline says of its batch, in the order of the instants."""
        extra = (CommitMetadata.from_bytes(p.read_bytes(), str(p)).extra for p in self.completed())
        return [json.loads(e["tagstream.commit"]) for e in extra if "tagstream.commit" in e]

    def completed(self) -> list[Path]:
        """The completed instants' files, oldest first."""
        return sorted(timeline_of(self.table).glob("*.*commit")) if self.table.exists() else []

    def expected(self) -> pa.Table:
        """The oracle's rows of what is committed now."""
        done = self.commits()
        return ev.rows(ev.oracle(self.reached(done[-1]["end_offsets"]) if done else []).values())

    def compare(self) -> Outcome:
        """The table, read by hudi-rs, against the oracle."""
        expected = self.expected()
        found = read_table(self.table, meta_columns=False) if self.completed() else expected.slice(0, 0)
        if self.completed():
            assert not (wrong := validate_metadata(HoodieTable.open(str(self.table)))), wrong
        return Outcome(expected.num_rows, found.num_rows, compare(expected, found, ["id"]))


@dataclass
class CountedJob(Job):
    """A job whose source knows how much of it the table's commits cover."""

    def committed(self) -> int:
        """Records of the source below the newest commit's end; AssertionError when a batch was skipped or taken twice."""
        raise NotImplementedError

    def all_taken(self) -> bool:
        """Everything that the source has is committed."""
        raise NotImplementedError

    def batches(self) -> int:
        """Batches that are committed."""
        return len(self.commits())


@dataclass(frozen=True)
class Outcome:
    """Rows of the oracle, rows of the table, and what is wrong."""

    expected: int
    found: int
    differences: Differences


def error_line(process: Process, code: int) -> str:
    """The line with which a run that failed explains itself; AssertionError when there is none."""
    assert code == 1, f"ended with {code}\n{process.output()[-6000:]}"
    lines = [line for line in process.output().splitlines() if line.startswith("tagstream: error: ")]
    assert len(lines) == 1, process.output()[-6000:]
    return lines[0].removeprefix("tagstream: error: ")


@dataclass
class StreamJob(CountedJob):
    """From files: ``chunks[i]`` are the events of file i. A batch takes one file."""

    chunks: Sequence[Sequence[ev.Event]]

    def write_input(self, first: int = 0, last: int | None = None) -> None:
        """Put the files first..last (excluded) where the source finds them."""
        for number, chunk in list(enumerate(self.chunks))[first:last]:
            ev.write_files(chunk, self.folder / "in", len(chunk), first=number)

    def source(self) -> tuple[list[str], dict[str, str]]:
        flags = ["--source-class", "JsonDFSSource", "--source-limit", "1"]
        return flags, {"hoodie.streamer.source.dfs.root": str(self.folder / "in")}

    def reached(self, offsets: Any) -> list[ev.Event]:
        return [event for chunk in self.chunks[: int(offsets["log"]) + 1] for event in chunk]

    def committed(self) -> int:
        """Files that are committed; AssertionError when one was skipped or taken twice."""
        done = self.commits()
        assert [c["batch_id"] for c in done] == list(range(len(done))), f"batches on the timeline: {done}"
        reach = [-1, *(int(c["end_offsets"]["log"]) for c in done)]
        assert [c["start_offsets"]["log"] for c in done] == reach[:-1], f"files skipped or taken twice: {done}"
        return reach[-1] + 1

    def all_taken(self) -> bool:
        """Every file of the source is committed."""
        return self.committed() == sum(1 for _ in (self.folder / "in").iterdir())

    def check(self) -> int:
        """The table is the oracle of the files committed so far, each batch once; returns how many files that are."""
        files = self.committed()
        if files and (wrong := self.compare().differences):
            raise AssertionError(f"after {files} files: {wrong}")
        return files


def chunks_of(events: Sequence[ev.Event], size: int) -> list[list[ev.Event]]:
    """Events cut in chunks of ``size``."""
    return [list(events[i : i + size]) for i in range(0, len(events), size)]
