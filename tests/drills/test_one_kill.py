"""The shortest drill: a job is killed after its data files have names and before its commit is complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drills.stream_job import StreamJob, chunks_of
from tests.support import events as ev

PER_FILE = 100


@pytest.mark.extended("killed processes; the simulation kills in the first tier")
@pytest.mark.kill
def test_a_batch_whose_files_have_names_and_no_commit_is_done_again(tmp_path: Path) -> None:
    job = StreamJob(
        tmp_path, "MERGE_ON_READ", chunks_of(list(ev.generate(3 * PER_FILE, ev.Mix(keys=80), seed=5)), PER_FILE)
    )
    job.write_input()
    job.crash("files_published", 1)
    assert job.check() == 1
    job.finish()
    assert job.check() == 3
