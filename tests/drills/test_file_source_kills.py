"""SIGKILL of jobs that read files of Parquet, Avro and CSV: at the steps of a commit, and at random moments."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.drills.conftest import NewDrill
from tests.drills.steps import kill_with_all_input, points
from tests.drills.stream_job import DEADLINE_S, StreamJob, chunks_of
from tests.support import event_files
from tests.support import events as ev
from tests.support.process import Process, wait_for

FORMS = ("parquet", "avro", "csv")
TYPES = ("MERGE_ON_READ", "COPY_ON_WRITE")
PER_FILE = 120
FEW = ("state_committed", "files_published", "completed")


@dataclass
class FormJob(StreamJob):
    """From files of a form."""

    form: str = "parquet"

    def write_input(self, first: int = 0, last: int | None = None) -> None:
        for number, chunk in list(enumerate(self.chunks))[first:last]:
            event_files.write_file(self.form, chunk, self.folder / "in", number)

    def source(self) -> tuple[list[str], dict[str, str]]:
        flags, keys = super().source()
        return ["--source-class", event_files.CLASSES[self.form], *flags[2:]], keys | event_files.CONF[self.form]


def new_job(folder: Path, form: str, table_type: str, files: int) -> FormJob:
    events = [e for e in ev.generate(2 * files * PER_FILE, ev.Mix(keys=300), seed=13) if not e.is_tombstone]
    return FormJob(folder, table_type, chunks_of(events, PER_FILE)[:files], form=form)


def kill_at(steps: Sequence[str], job: FormJob, new_drill: NewDrill) -> None:
    with new_drill(f"SIGKILL at steps of a commit, {job.form} files", job.table_type, len(steps)) as drill:
        kill_with_all_input(steps, drill, job)


@pytest.mark.extended("processes that are killed, a minute of starts")
@pytest.mark.parametrize(("form", "table_type"), [("parquet", "MERGE_ON_READ"), ("csv", "COPY_ON_WRITE")])
def test_kills_at_three_steps_lose_and_double_nothing(
    tmp_path: Path, form: str, table_type: str, new_drill: NewDrill
) -> None:
    kill_at(FEW, new_job(tmp_path / "job", form, table_type, len(FEW) + 2), new_drill)


@pytest.mark.drill
@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("form", FORMS)
def test_a_kill_at_every_step_loses_and_doubles_nothing(
    tmp_path: Path, form: str, table_type: str, new_drill: NewDrill
) -> None:
    kill_at(points(), new_job(tmp_path / "job", form, table_type, len(points()) + 2), new_drill)


@pytest.mark.drill
@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("form", FORMS)
def test_kills_at_random_times_lose_and_double_nothing(
    tmp_path: Path, form: str, table_type: str, new_drill: NewDrill, kills: int = 6
) -> None:
    rng = random.Random(kills)
    with new_drill(f"SIGKILL at random, {form} files", table_type, kills) as drill:
        job = new_job(tmp_path / "job", form, table_type, 4 * kills + 8)
        job.write_input()
        while drill.injected < kills:
            before = job.batches()
            with job.start() as process:
                wait_for(lambda: moved_on(job, process, before), DEADLINE_S, "a commit")  # noqa: B023
                time.sleep(rng.random() * 1.5)  # the moment of the kill is the point, nothing is synchronised by it
                assert process.returncode is None, f"no batch was left to kill after {drill.injected} kills"
                process.kill()
            drill.injected += 1
            job.check()
            drill.compare(job)
        job.finish()
        assert job.all_taken()
        drill.compare(job)


def moved_on(job: FormJob, process: Process, before: int) -> bool:
    """A batch more than before is committed, or the job has ended."""
    return job.batches() > before or process.returncode is not None
