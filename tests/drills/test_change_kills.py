"""SIGKILL of a job whose table logs its changes, at the steps of a commit: every change is in the log, one time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tagstream.reading import open_table
from tagstream.table.file_group.change_file import LoggingMode
from tagstream.table.meta_client.table_config import CDC_KEY, CDC_MODE_KEY
from tests.drills.conftest import NewDrill
from tests.drills.steps import conf, kill_with_all_input, points
from tests.drills.stream_job import StreamJob, chunks_of
from tests.support import events as ev
from tests.support.hudi_rs import read_table

PER_FILE = 120
FEW = ("files_published", "completed")
# The changes are read from the first commit on, so no file of a commit is cleaned.
KEPT = {"hoodie.clean.commits.retained": "100", "hoodie.keep.min.commits": "110", "hoodie.keep.max.commits": "120"}


@dataclass
class LoggedJob(StreamJob):
    """A job that compares the changes, too: from the first commit on they make the rows of the table."""

    def check(self) -> int:
        files = super().check()
        if files:
            rows = read_table(self.table, meta_columns=False).to_pylist()
            assert rows_of_changes(self.table) == {row["id"]: row for row in rows}, f"after {files} files"
        return files


def rows_of_changes(table: Path) -> dict[str, dict[str, Any]]:
    """The rows that the changes of a table make; AssertionError for a change that does not fit to those before it."""
    live: dict[str, dict[str, Any]] = {}
    changes = open_table(table).changes().read_all().to_pylist()
    # A row that moves is a delete and an insert of one commit, in any order.
    for change in sorted(changes, key=lambda c: (c["ts_ms"], c["op"] != "d")):
        before, after = change["before"], change["after"]
        key = (before or after)["id"]
        assert live.pop(key, None) == before, f"{change['op']} of {key} at {change['ts_ms']}"
        if after is not None:
            live[key] = after
    return live


def kill_at(steps: Sequence[str], folder: Path, table_type: str, new_drill: NewDrill) -> None:
    files = len(steps) + 2
    events = [e for e in ev.generate(2 * files * PER_FILE, ev.Mix(keys=200), seed=29) if not e.is_tombstone]
    own = {CDC_KEY: "true", CDC_MODE_KEY: LoggingMode.DATA_BEFORE_AFTER.value, **KEPT, **conf()}
    job = LoggedJob(folder, table_type, chunks_of(events, PER_FILE)[:files], conf=own)
    with new_drill("SIGKILL at steps of a commit, changes logged", table_type, len(steps)) as drill:
        kill_with_all_input(steps, drill, job)


@pytest.mark.extended("processes that are killed, a minute of starts")
def test_a_kill_at_two_steps(tmp_path: Path, new_drill: NewDrill) -> None:
    kill_at(FEW, tmp_path, "COPY_ON_WRITE", new_drill)


@pytest.mark.drill
@pytest.mark.table_versions(6, 9, also=(8,))
@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_a_kill_at_every_step(version: int, table_type: str, tmp_path: Path, new_drill: NewDrill) -> None:
    kill_at(points(), tmp_path, table_type, new_drill)
