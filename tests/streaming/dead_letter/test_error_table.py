"""The error table by itself: one commit a batch, each once, also when a process died in between."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tagstream.streaming.dead_letter import table as table_module
from tagstream.streaming.dead_letter.letters import Letter, letters_of
from tagstream.streaming.dead_letter.table import ErrorTable
from tagstream.streaming.errors import DeadLetterError
from tagstream.streaming.write.quarantine import write_quarantine
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.validate import validate
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.timeline import lease as leases
from tagstream.table.timeline.lease import LeaseOwner
from tagstream.table.write import commit as protocol
from tests.support.hudi_rs import read_table
from tests.support.table_version import timeline_of

NOW = 1_767_225_600_000
RECORDS = [
    {"topic": "t", "partition": 1, "offset": 7, "reason": "not JSON", "key": b"k", "value": b"\xff",
     "headers": [["h", "AQ=="]]},
    {"path": "/in/a.json", "offset": 0, "reason": "no key", "key": None, "value": None},
]  # fmt: skip


def letters(folder: Path, batch: int = 3) -> list[Letter]:
    quarantine = PosixStorage(str(folder / "quarantine"))
    write_quarantine(quarantine, batch, 0, RECORDS)
    return list(letters_of(quarantine, batch))


def error_table(folder: Path, version: int = 6) -> ErrorTable:
    return ErrorTable(str(folder / "errors"), "bad", version, "orders", lambda: NOW)


@pytest.mark.parametrize("version", [6, 8, 9])
def test_each_batch_is_there_once(tmp_path: Path, version: int) -> None:
    table = error_table(tmp_path, version)
    table.take(letters(tmp_path), "q.3")
    table.take(letters(tmp_path), "q.3")
    table.take(letters(tmp_path, 4), "q.4")
    found = read_table(tmp_path / "errors", meta_columns=False).sort_by("id").to_pylist()
    assert [row["id"] for row in found] == ["q.3.3.0.1", "q.3.3.0.2", "q.4.4.0.1", "q.4.4.0.2"]
    first, second = found[:2]
    assert {name: first[name] for name in first if name not in ("id", "found_at")} == {
        "target_table": "orders", "source": "t", "partition": 1, "offset": 7, "reason": "not JSON", "record_key": b"k",
        "value": b"\xff", "headers": '[["h", "AQ=="]]',
    }  # fmt: skip
    assert (second["source"], second["partition"], second["record_key"], second["value"]) == (
        "/in/a.json",
        None,
        None,
        None,
    )
    assert first["found_at"].timestamp() * 1000 == NOW
    assert validate(HoodieTable.open(str(tmp_path / "errors"))) == []


def test_what_a_dead_process_left_is_taken_back(tmp_path: Path) -> None:
    table = error_table(tmp_path)
    table.take(letters(tmp_path), "q.3")
    opened = HoodieTable.open(str(tmp_path / "errors"))
    protocol.request(opened, "20260201000000000", "commit")
    protocol.inflight(opened, "20260201000000000", "commit")
    table.take(letters(tmp_path, 4), "q.4")
    assert not list(timeline_of(tmp_path / "errors").glob("20260201000000000.*inflight"))
    assert read_table(tmp_path / "errors").num_rows == 4


def test_another_writer_is_told_by_name(tmp_path: Path) -> None:
    table = error_table(tmp_path)
    table.take(letters(tmp_path), "q.3")
    other = replace(LeaseOwner.this_process("somebody"), host="elsewhere", boot_id="another", pid=1)
    held = leases.acquire(PosixStorage(str(tmp_path / "errors")), other, NOW, 3_600_000)
    with pytest.raises(DeadLetterError, match="error table .*elsewhere"):
        table.take(letters(tmp_path, 4), "q.4")
    leases.release(PosixStorage(str(tmp_path / "errors")), held)
    table.take(letters(tmp_path, 4), "q.4")


@pytest.mark.extended("more kinds of tables", first=("9",))
@pytest.mark.parametrize("version", [6, 9])
def test_many_batches_stay_few_files_and_commits(tmp_path: Path, version: int) -> None:
    clock = iter(range(NOW, NOW + 10**9, 1_000))
    table = ErrorTable(str(tmp_path / "errors"), "bad", version, "orders", lambda: next(clock))
    for batch in range(60):
        table.take(letters(tmp_path, batch), f"q.{batch}")
    found = read_table(tmp_path / "errors", meta_columns=False)
    assert sorted(found["id"].to_pylist()) == sorted(f"q.{b}.{b}.0.{n}" for b in range(60) for n in (1, 2))
    assert len(list((tmp_path / "errors").glob("*.parquet"))) <= 15
    opened = HoodieTable.open(str(tmp_path / "errors"))
    assert len(opened.timeline().completed_writes) <= 31
    assert validate(opened) == []


def test_a_batch_is_asked_for_once_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error_table(tmp_path).take(letters(tmp_path), "q.3")
    looks: list[str] = []
    monkeypatch.setattr(table_module, "_has", lambda _, batch: bool(looks.append(batch)))
    table = error_table(tmp_path)
    for batch in (4, 5, 5, 6):
        table.take(letters(tmp_path, batch), f"q.{batch}")
    assert looks == ["q.4"]
    assert read_table(tmp_path / "errors").num_rows == 8


def test_after_a_failure_the_commits_are_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = error_table(tmp_path)
    table.take(letters(tmp_path), "q.3")
    real = protocol.complete

    def complete(*args: Any, **kwargs: Any) -> None:
        real(*args, **kwargs)
        raise OSError("the answer is lost")

    monkeypatch.setattr(protocol, "complete", complete)
    with pytest.raises(OSError, match="the answer is lost"):
        table.take(letters(tmp_path, 4), "q.4")
    monkeypatch.undo()
    table.take(letters(tmp_path, 4), "q.4")
    assert read_table(tmp_path / "errors").num_rows == 4


@pytest.mark.parametrize("targets", [("orders", "orders"), ("orders", "customers")])
def test_the_tables_of_a_job_share_one(tmp_path: Path, targets: tuple[str, str]) -> None:
    """A thread each, also two of one name, of different databases."""
    clock, count, together = itertools.count(NOW, 7), 4, threading.Barrier(2)
    failed: list[BaseException] = []

    def work(number: int) -> None:
        errors = ErrorTable(str(tmp_path / "errors"), "bad", 6, targets[number], lambda: next(clock))
        try:
            together.wait(60)
            for batch in range(count):
                errors.take([Letter(f"{batch}.0.1", "t", 0, batch, "bad", b"k", b"v", ())], f"query{number}.{batch}")
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failed == []
    found = read_snapshot(HoodieTable.open(str(tmp_path / "errors")))
    assert found.num_rows == len(set(found["id"].to_pylist())) == 2 * count
