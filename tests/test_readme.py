"""The commands of README and of the first page of the guide, run as printed, in their order, in a folder of their own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tagstream
from tests.support.kafka_broker import free_ports
from tests.support.paths import ROOT
from tests.support.process import Process

BLOCK_SECONDS = 400.0
STORIES = "docs/guide/first-stream.md"
# What a reader's clone holds; everything else (out/ above all) is the test's own.
SHARED = [".venv", ".jars", "Makefile", "README.md", "conf", "run_stream.py", "tagstream", "pyproject.toml"]
SHARED += ["bench", "bootstrap", "state", "streaming", "tests"]


def blocks(name: str = STORIES, kind: str = "sh") -> list[str]:
    """Fenced blocks of a page."""
    return re.findall(rf"^```{kind}\n(.*?)^```", (ROOT / name).read_text("utf-8"), flags=re.S | re.M)


def make_targets(text: str) -> set[str]:
    """Targets of the make commands a page shows, in blocks and in `quotes`."""
    commands = re.findall(r"(?:^|`)make ([a-z-]+)", text, flags=re.M)
    return set(commands)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder that looks like a fresh clone after `make install`."""
    (ROOT / ".jars").mkdir(exist_ok=True)
    for name in SHARED:
        # The environment that runs the tests: `make platforms` has others.
        (tmp_path / name).symlink_to(sys.prefix if name == ".venv" else ROOT / name)
    return tmp_path


def run(block: str, clone: Path, name: str) -> str:
    """Output of a block. Broker and job it left behind are killed; make is only asked what it would do."""
    tools = clone / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "make").write_text(f'#!/bin/sh\nexec {shutil.which("make")} -n "$@" >/dev/null\n')
    (tools / "make").chmod(0o755)
    script = clone / f"{name}.sh"
    script.write_text(f"set -eu\nPATH={tools}:$PATH\n{block}")
    with Process(["sh", str(script)], clone / f"{name}.log", cwd=clone) as process:
        assert process.wait(BLOCK_SECONDS) == 0, f"{block}\n{process.output()}"
        return process.output()


SHOWN = [["o-1", "2026-01-06", "9", "sent"], ["o-3", "2026-01-06", "8", "new"]]


def orders(told: str) -> list[list[str]]:
    """The rows that a block has printed."""
    return sorted(line.split()[1:] for line in told.splitlines() if " o-" in line)


@pytest.mark.platform("README's programs")
@pytest.mark.extended("README's two programs, in a Spark each")
@pytest.mark.spark
def test_the_programs_of_the_readme(clone: Path) -> None:
    (clone / "orders-in").mkdir()
    rows = ["o-1", "2026-01-05", 1, "new"], ["o-1", "2026-01-06", 9, "sent"], ["o-3", "2026-01-06", 8, "new"]
    lines = [json.dumps(dict(zip(("id", "day", "ts", "state"), row, strict=True))) for row in rows]
    (clone / "orders-in" / "1.json").write_text("\n".join(lines) + "\n")
    (program,) = blocks("README.md", "python")
    (clone / "program.py").write_text(program)
    assert orders(run(".venv/bin/python program.py", clone, "program")) == SHOWN
    _, submit, _ = blocks("README.md")
    assert "records 3, inserts 2" in run(f"PATH=$PWD/.venv/bin:$PATH\n{submit}", clone, "submit")
    assert tagstream.open_table(clone / "out" / "streamed-orders").scan().to_arrow().num_rows == 2


def test_the_readme_makes_what_it_names() -> None:
    install, _, make = blocks("README.md")
    (extra,) = re.findall(r"^pip install '\.\[(\w+)\]'", install)
    assert extra in tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert re.findall(r"^make (\S+)", make, flags=re.M) == ["run", "test"]


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= 360


@pytest.mark.platform("the first page's stories")
@pytest.mark.extended("README's program, in a Spark of its own")
@pytest.mark.spark
def test_a_table_of_your_own(clone: Path) -> None:
    first, write, read, *_ = blocks()
    run(first, clone, "first")
    run(write, clone, "write")
    assert orders(run(read, clone, "read")) == SHOWN


@pytest.mark.platform("the first page's stories")
@pytest.mark.extended("what the page's reader does next: six more processes")
@pytest.mark.spark
def test_what_an_operator_does_with_it(clone: Path) -> None:
    first, write, read, submit, look, rescale, lost, *_ = blocks()
    run(first, clone, "first")
    run(write, clone, "write")
    assert "batches 0" in run(submit, clone, "submit")  # it goes on where the first run ended
    seen = run(look, clone, "look")
    assert re.search(r"^partition +2026-01-06$", seen, re.M) and re.search(r"^equal +true$", seen, re.M)
    again = run(rescale, clone, "rescale")
    assert re.search(r"^key groups +32$", again, re.M) and "end of run: batches 0" in again
    assert "load the index from the table, then stream" in (told := run(lost, clone, "lost"))
    assert "end of run: batches 1, records 6, inserts 0" in told
    assert orders(run(read, clone, "read again")) == SHOWN


@pytest.mark.platform("a Kafka stream")
@pytest.mark.spark
@pytest.mark.kafka
def test_from_kafka(clone: Path) -> None:
    from tests.support.compare import compare
    from tests.support.events import oracle, rows
    from tests.support.hudi_rs import read_table
    from tests.support.producer import sent_events

    *_, block = blocks()
    assert "19092" in block
    try:
        run(block.replace("19092", str(free_ports(1)[0])), clone, "kafka")
    finally:
        stop = [".venv/bin/python", "-m", "tests.support.run_broker", "--folder", "out/broker", "--stop"]
        subprocess.run(stop, cwd=clone, check=False, capture_output=True)
    live = oracle(sent_events(clone / "out" / "sent.jsonl"))
    found = compare(rows(live.values()), read_table(clone / "out" / "events"), ["id"])
    assert not found, str(found)


def test_every_make_command_is_a_target_and_the_other_way_round() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text("utf-8"), flags=re.M))
    shown = make_targets((ROOT / "README.md").read_text("utf-8")) | make_targets(
        (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    )
    assert shown <= targets
    assert targets - shown <= {"help", "clean"}
    assert targets == {
        "help", "install", "run", "run-kafka", "test", "test-all", "test-rest", "defects", "versions", "simulate", "pairs",
        "check", "docs", "packages", "dist", "environment", "platforms", "bench", "drills", "drills-matrix", "interop",
        "clean",
    }  # fmt: skip


def test_contributing_stays_short() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text("utf-8").splitlines()) <= 120
