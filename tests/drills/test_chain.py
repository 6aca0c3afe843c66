"""SIGKILL in a chain of three tables: lines of JSON to A, a user's sums of A per group to B, a part of B to C.

Each commit of a table is one batch of the next one. So each table must at any moment be what a number of the first input
files makes of it, and in the end what all make of it.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.drills.conftest import NewDrill
from tests.drills.report import Drill
from tests.drills.steps import points
from tests.drills.stream_job import DEADLINE_S, Job, StreamJob, chunks_of
from tests.support import events as ev
from tests.support.hudi_rs import read_table
from tests.support.paths import ROOT
from tests.support.process import wait_for

PROGRAM = (sys.executable, ROOT / "tests" / "drills" / "chain_program.py")
PER_FILE = 60
LEAST_ROWS = 4
Sums = dict[str, tuple[int, int]]


@dataclass
class TotalsJob(Job):
    """A user's program: the sums of A per group, in B."""

    version: str = "6"

    def arguments(self, *more: str) -> list[str]:
        return [str(self.folder.parent), self.table_type, self.version, *more]


@dataclass
class TableJob(Job):
    """A job with HoodieIncrSource: the groups of B with several rows, in C."""

    path: Path = Path()

    def source(self) -> tuple[list[str], dict[str, str]]:
        keys = {
            "hoodie.streamer.source.hoodieincr.path": str(self.path),
            "hoodie.streamer.source.hoodieincr.num_instants": "1",
            "hoodie.streamer.transformer.class": "SqlQueryBasedTransformer",
            "hoodie.streamer.transformer.sql": f"SELECT *, 'all' AS part FROM <SRC> WHERE rows >= {LEAST_ROWS}",
            "hoodie.datasource.write.recordkey.field": "grp",
            "hoodie.table.ordering.fields": "version",
        }
        return ["--source-class", "HoodieIncrSource"], keys

    def arguments(self, *more: str) -> list[str]:
        found = super().arguments(*more)
        at = next(i for i, text in enumerate(found) if text.startswith("hoodie.streamer.schemaprovider.source"))
        return found[: at - 1] + found[at + 1 :]  # the columns are those of table B


@dataclass
class Chain:
    """The three jobs, each below ``folder``."""

    a: StreamJob
    b: TotalsJob
    c: TableJob
    program: dict[str, Sequence[str | Path]]

    @staticmethod
    def of(folder: Path, table_type: str, version: str, files: int) -> Chain:
        events = [
            e for e in ev.generate(2 * files * PER_FILE, ev.Mix(keys=90, deletes=0.1), seed=21) if not e.is_tombstone
        ]
        keys = {"hoodie.write.table.version": version}
        a = StreamJob(folder / "a", table_type, chunks_of(events, PER_FILE)[:files], conf=keys)
        b = TotalsJob(folder / "b", table_type, version=version, env={"PYTHONPATH": str(ROOT)})
        c = TableJob(folder / "c", table_type, conf=keys, path=b.table)
        return Chain(a, b, c, {"b": PROGRAM})

    def run(self, name: str, crash: str = "") -> bool:
        """One start of a job to its end; whether it was killed at the crash point."""
        job: Job = getattr(self, name)
        more = {"program": self.program[name]} if name in self.program else {}
        with job.start(crash=crash, **more) as process:  # type: ignore[arg-type]
            code = process.wait(DEADLINE_S)
            assert code == 0 or (code == -9 and crash), f"{name} {crash}: ended with {code}\n{process.output()[-6000:]}"
        return code == -9

    def can_start(self, name: str) -> bool:
        """Whether the table that a job reads has a commit: a job refuses to start before that."""
        sources: dict[str, Job] = {"b": self.a, "c": self.b}
        return name not in sources or bool(sources[name].completed())

    def check(self) -> tuple[int, int]:
        """Each table is what a number of input files makes of it; the numbers of B and C."""
        self.a.check()
        states = [sums_of(self.a.chunks[:count]) for count in range(len(self.a.chunks) + 1)]
        b = states_with(states, totals(self.b.table) if self.b.completed() else {})
        parts = [{group: found for group, found in state.items() if found[1] >= LEAST_ROWS} for state in states]
        c = states_with(parts, totals(self.c.table) if self.c.completed() else {})
        assert b and c, "a table has rows that no number of input files makes"
        return max(b), max(c)

    def finish(self, drill: Drill) -> None:
        for name in ("a", "b", "c"):
            assert not self.run(name)
        assert self.a.all_taken()
        drill.compare(self.a)
        assert self.check() == (len(self.a.chunks), len(self.a.chunks))


def sums_of(chunks: Sequence[Sequence[ev.Event]]) -> Sums:
    """Four times the sum of ``amount``, and the number of rows, by partition."""
    found: Sums = {}
    for row in ev.rows(ev.oracle([e for chunk in chunks for e in chunk]).values()).to_pylist():
        total, count = found.get(row["part"], (0, 0))
        found[row["part"]] = (total + int(4 * (row["amount"] or 0)), count + 1)
    return found


def totals(table: Path) -> Sums:
    rows: list[dict[str, Any]] = read_table(table, meta_columns=False).to_pylist()
    assert len({row["grp"] for row in rows}) == len(rows)
    return {row["grp"]: (row["total"], row["rows"]) for row in rows}


def states_with(states: Sequence[Sums], found: Sums) -> list[int]:
    return [number for number, state in enumerate(states) if state == found]


@pytest.mark.extended("processes that are killed, minutes of starts")
def test_a_kill_in_each_job_of_a_chain(tmp_path: Path, new_drill: NewDrill) -> None:
    chain = Chain.of(tmp_path, "MERGE_ON_READ", "8", 4)
    with new_drill("SIGKILL in a chain of three tables", "MERGE_ON_READ", 3) as drill:
        chain.a.write_input()
        for name, crash in (("a", "files_published@2"), ("b", "completed@0"), ("c", "inflight@0")):
            drill.injected += chain.run(name, crash)  # the first batch of B and C has all rows of their sources
            chain.check()
        chain.finish(drill)


@pytest.mark.drill
@pytest.mark.parametrize(
    ("table_type", "version"), [("MERGE_ON_READ", "9"), ("COPY_ON_WRITE", "6"), ("MERGE_ON_READ", "6")]
)
def test_kills_at_random_steps_of_a_chain(
    tmp_path: Path, table_type: str, version: str, new_drill: NewDrill, kills: int = 6
) -> None:
    """A round brings a new input file, and kills one job at a step or at a moment. The jobs after it continue with what
    their source has."""
    rng = random.Random(f"{table_type} {version}")
    chain = Chain.of(tmp_path, table_type, version, kills + 3)
    with new_drill(f"SIGKILL at random in a chain, version {version}", table_type, kills) as drill:
        written = 1
        chain.a.write_input(0, written)
        while drill.injected < kills:
            written = min(written + 1, len(chain.a.chunks))
            chain.a.write_input(written - 1, written)
            victim = rng.choice("abc")
            for name in "abc":
                if not chain.can_start(name):  # a kill came before the first commit of its source
                    break
                if name != victim:
                    chain.run(name)
                elif rng.random() < 0.3:
                    drill.injected += killed_in_time(chain, name, rng.random() * 12)
                else:
                    batch = len(getattr(chain, name).commits())
                    drill.injected += chain.run(name, f"{rng.choice(points())}@{batch}")
                chain.check()
        chain.a.write_input(written)
        chain.finish(drill)


def killed_in_time(chain: Chain, name: str, seconds: float) -> bool:
    """One start of a job that is killed after a time; False when it has ended before."""
    job: Job = getattr(chain, name)
    more = {"program": chain.program[name]} if name in chain.program else {}
    with job.start(**more) as process:  # type: ignore[arg-type]
        wait_for(lambda: process.output() != "" or process.returncode is not None, DEADLINE_S, "a first line")
        time.sleep(seconds)  # the moment of the kill is the point, nothing is synchronised by it
        if process.returncode is not None:
            assert process.returncode == 0, process.output()[-6000:]
            return False
        process.kill()
        return True
