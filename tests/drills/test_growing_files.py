"""SIGKILL of a job while files grow under it, in pieces that end anywhere: no byte is planned twice, none is left out."""

from __future__ import annotations

import json
import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tagstream.streaming.source.file_plans import PlanLog, read_plan
from tagstream.table.storage.posix import PosixStorage
from tests.drills.conftest import NewDrill
from tests.drills.stream_job import DEADLINE_S, Job
from tests.support import events as ev
from tests.support.process import Process, wait_for

FILES = 3
PER_PIECE = 40


@dataclass
class Writer:
    """Appends events to files, a piece at a time; a piece ends in the middle of a line as often as not."""

    folder: Path
    rng: random.Random
    events: list[ev.Event] = field(default_factory=list)
    rest: dict[int, bytes] = field(default_factory=dict)

    def append(self, count: int) -> None:
        """So many events more, each to one of the files; what a file does not get yet comes with its next piece."""
        lines: dict[int, bytes] = dict(self.rest)
        for _ in range(count):
            n = len(self.events)
            # Ordering values are unique, so that the order of the files does not matter.
            key = f"k{self.rng.randrange(200)}"
            event = ev.Event(key, f"p{n % 3}", n, deleted=n % 17 == 0, name=f"event {n}", amount=n / 4)
            self.events.append(event)
            file = self.rng.randrange(FILES)
            lines[file] = lines.get(file, b"") + json.dumps(event.row()).encode() + b"\n"
        for file, data in lines.items():
            cut = self.rng.randrange(len(data) + 1) if count else len(data)
            self.rest[file] = data[cut:]
            with (self.folder / f"f{file}.json").open("ab") as f:
                f.write(data[:cut])

    def flush(self) -> None:
        """Write what is missing, the last line without its end."""
        self.append(0)
        event = ev.Event("last", "p0", len(self.events), name="without its end of line")
        self.events.append(event)
        with (self.folder / "f0.json").open("ab") as f:
            f.write(json.dumps(event.row()).encode())


@dataclass
class GrowingJob(Job):
    """A job on files that grow."""

    writer: Writer

    def source(self) -> tuple[list[str], dict[str, str]]:
        return ["--source-class", "JsonDFSSource", "--source-limit", "200000"], {
            "hoodie.streamer.source.dfs.root": str(self.writer.folder)
        }

    def reached(self, offsets: Any) -> list[ev.Event]:
        del offsets  # called when all is taken
        return self.writer.events

    def planned(self) -> dict[str, int]:
        """How far each file is planned; AssertionError when a byte was left out or taken twice."""
        root = PosixStorage(str(self.root))
        reach: dict[str, int] = {}
        for number in PlanLog(root).numbers:
            for split in read_plan(root, number).splits:
                assert split.start == reach.get(split.path, 0), f"plan {number}: {split}"
                reach[split.path] = split.end
        return reach


@pytest.mark.drill
@pytest.mark.parametrize(
    ("table_type", "kills"),
    [
        ("COPY_ON_WRITE", 8),
        ("MERGE_ON_READ", 12),
    ],
)
def test_files_that_grow_under_kills_lose_and_double_no_line(
    table_type: str, kills: int, tmp_path: Path, new_drill: NewDrill
) -> None:
    rng = random.Random(kills)
    folder = tmp_path / "in"
    folder.mkdir()
    job = GrowingJob(tmp_path, table_type, writer=Writer(folder, rng))
    job.writer.append(PER_PIECE)
    with new_drill("SIGKILL while files grow", table_type, kills) as drill:
        while drill.injected < kills:
            before = len(job.completed())
            end = threading.Event()
            grower = threading.Thread(target=grow, args=(job.writer, end))
            with job.start("--continuous") as process:
                grower.start()
                try:
                    wait_for(lambda: moved_on(job, process, before), DEADLINE_S, "two commits")  # noqa: B023
                    time.sleep(rng.random())  # the moment of the kill is the point here, nothing is synchronised by it
                    assert process.returncode is None, process.output()[-4000:]
                    process.kill()
                finally:
                    end.set()
                    grower.join()
            drill.injected += 1
            job.planned()
        job.writer.flush()
        job.finish()
        sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
        assert job.planned() == sizes
        batches = [commit["batch_id"] for commit in job.commits()]
        assert batches == sorted(set(batches)), "a batch was committed twice"
        drill.compare(job)


def grow(writer: Writer, end: threading.Event) -> None:
    """Append until it is told to end."""
    while not end.wait(0.1):
        writer.append(PER_PIECE)


def moved_on(job: Job, process: Process, before: int) -> bool:
    """Two batches more are committed, or the job has ended."""
    return len(job.completed()) >= before + 2 or process.returncode is not None
