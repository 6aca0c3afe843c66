"""`tagstream table upgrade` and `downgrade`: what they say, and that they do nothing without being told to."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tagstream.streaming.lease_keeper import LeaseKeeper
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tests.cli.running import run, run_json, state_of
from tests.support.table_version import metadata, using
from tests.table.writer import START_MS, Writer, row


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    with using(6):
        found = Writer.create(tmp_path, "COPY_ON_WRITE")
    for number in range(3):
        found.write([row(key, "p", number) for key in range(number, number + 3)])
    return found


def test_up_and_down(writer: Writer) -> None:
    base = Path(writer.table.base_path)
    at = ("--target-base-path", base)
    before = read_snapshot(writer.table).sort_by("id")
    for command, to in (
        ("upgrade", 8),
        ("upgrade", 9),
        ("downgrade", 8),
        ("downgrade", 6),
        ("upgrade", 9),
        ("downgrade", 6),
    ):
        table = HoodieTable.open(str(base))
        kept = state_of(base)
        planned = run_json("table", command, *at, "--to", to, "--dry-run")
        assert state_of(base) == kept
        done = run_json("table", command, *at, "--to", to, "--yes")
        assert (planned["changed"], done["changed"]) == (False, True)
        assert (done["before"], done["after"]) == (table.config.version, to)
        assert done["settings"] == planned["settings"]
        assert {"key": "hoodie.table.version", "before": str(done["before"]), "after": str(to)} in done["settings"]
        assert done["actions"] == (0 if {table.config.version, to} == {8, 9} else 3)
        assert read_snapshot(table.reload()).sort_by("id") == before
    again = run_json("table", "downgrade", *at, "--to", 6, "--yes")
    assert (again["changed"], again["settings"], again["removed"]) == (False, [], [])
    assert "already had version 6" in run("table", "downgrade", *at, "--to", 6, "--yes")


def test_a_metadata_table_that_is_dropped_is_among_the_settings(tmp_path: Path) -> None:
    """The dry run and the change tell the same of the properties, those of the metadata table among them."""
    with using(6), metadata(True):
        table = Writer.create(tmp_path, "COPY_ON_WRITE").table
    at = ("--target-base-path", table.base_path, "--to", 9)
    planned = run_json("table", "upgrade", *at, "--dry-run")
    done = run_json("table", "upgrade", *at, "--yes")
    assert done["settings"] == planned["settings"]
    told = {each["key"]: (each["before"], each["after"]) for each in done["settings"]}
    assert told["hoodie.table.metadata.partitions"] == (table.config.raw["hoodie.table.metadata.partitions"], "")
    assert done["metadata_partitions"] == planned["metadata_partitions"] == sorted(table.config.metadata_partitions)


def test_nothing_is_done_without_a_word(writer: Writer, capsys: pytest.CaptureFixture[str]) -> None:
    base = Path(writer.table.base_path)
    at = ("--target-base-path", base)
    before = state_of(base)
    run("table", "upgrade", *at, "--to", 9, code=2)
    assert "--dry-run" in capsys.readouterr().err
    shown = run("table", "upgrade", *at, "--to", 9, "--dry-run")
    assert "hoodie.table.ordering.fields" in shown
    assert "nothing was changed" in shown
    run("table", "downgrade", *at, "--to", 8, "--yes", code=2)
    assert "`tagstream table upgrade` brings it to 8" in capsys.readouterr().err
    run("table", "upgrade", *at, "--to", 7, "--yes", code=2)
    run("table", "upgrade", *at, "--to", 6, "--yes", code=2)
    assert state_of(base) == before


def test_a_running_job_keeps_its_table(writer: Writer, capsys: pytest.CaptureFixture[str]) -> None:
    clock = itertools.count(START_MS * 10)
    lease = LeaseKeeper(writer.table.storage, lambda: next(clock))
    lease.acquire("a job")
    try:
        run("table", "upgrade", "--target-base-path", writer.table.base_path, "--to", 9, "--yes", code=1)
        assert "a job" in capsys.readouterr().err
    finally:
        lease.release()
    assert writer.table.reload().config.version == 6
    run("table", "upgrade", "--target-base-path", writer.table.base_path, "--to", 9, "--yes")
    assert writer.table.reload().config.version == 9
