"""The error table by itself: one commit a batch, each once, also when a process died in between."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tagstream.streaming.batch.quarantine import Letter, letters_of, write_quarantine
from tagstream.streaming.errors import DeadLetterError, StopRequested
from tagstream.streaming.job import error_table as known_module
from tagstream.streaming.job import error_table as table_module
from tagstream.streaming.job.error_table import ErrorTable
from tagstream.table.errors import ConfigError, LeaseLostError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.validate import validate
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.timeline import lease as leases
from tagstream.table.timeline.lease import LeaseOwner
from tagstream.table.write import commit as protocol
from tests.support.hudi_rs import read_table
from tests.support.table_version import timeline_of
from tests.table.writer import Writer

NOW = 1_767_225_600_000
RECORDS = [
    {"topic": "t", "partition": 1, "offset": 7, "reason": "not JSON", "key": b"k", "value": b"\xff",
     "headers": [["h", "AQ=="]]},
    {"path": "/in/a.json", "offset": 0, "reason": "no key", "key": None, "value": None},
]  # fmt: skip


def letters(
    folder: Path,
    batch: int = 3,
    *,
    first: int | None = None,
    query: str = "q",
    target: str = "/orders",
    value: bytes | None = None,
) -> list[Letter]:
    """Two records from offset ``first`` of topic and file on (None: other ones for each batch), found in ``batch``."""
    quarantine = PosixStorage(str(folder / f"quarantine-{query}"))
    at = 10 * (batch - 3) if first is None else first
    moved = [{**r, "offset": int(str(r["offset"])) + at, "value": value or r["value"]} for r in RECORDS]
    write_quarantine(quarantine, batch, 0, moved)
    return list(letters_of(quarantine, batch, query, target))


def error_table(folder: Path, version: int = 6, **more: Any) -> ErrorTable:
    return ErrorTable(str(folder / "errors"), "bad", version, "orders", lambda: NOW, lambda _: False, **more)


def ids(folder: Path) -> list[str]:
    return sorted(read_table(folder / "errors")["id"].to_pylist())


@pytest.mark.parametrize("version", [6, 8, 9])
def test_each_batch_is_there_once(tmp_path: Path, version: int) -> None:
    table = error_table(tmp_path, version)
    table.take(letters(tmp_path), "q.3")
    table.take(letters(tmp_path), "q.3")
    table.take(letters(tmp_path, 4), "q.4")
    found = read_table(tmp_path / "errors", meta_columns=False).sort_by("id").to_pylist()
    assert [row["id"].rpartition(":")[0] for row in found] == [
        "/in/a.json:00000000000000000000",
        "/in/a.json:00000000000000000010",
        "t:1:00000000000000000007",
        "t:1:00000000000000000017",
    ]
    second, _, first, _ = found
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


def test_another_query_finds_the_letters_of_a_record_that_it_reads_again(tmp_path: Path) -> None:
    """As after a restore, or with a new checkpoint: other batches, and some records are new."""
    error_table(tmp_path).take([*letters(tmp_path), *letters(tmp_path, 4)], "q.4")
    error_table(tmp_path).take(letters(tmp_path, 0, first=0, query="r"), "r.0")
    error_table(tmp_path).take(letters(tmp_path, 1, first=10, query="r"), "r.1")
    assert len(ids(tmp_path)) == 4
    both = [*letters(tmp_path, 2, first=10, query="r"), *letters(tmp_path, 3, first=20, query="r")]
    error_table(tmp_path).take([*both, *both], "r.3")
    assert len(ids(tmp_path)) == 6
    assert len(HoodieTable.open(str(tmp_path / "errors")).timeline().completed_writes) == 2, "a commit of no letter"


def test_one_position_may_have_several_records(tmp_path: Path) -> None:
    """A topic was deleted and made once more, and one topic feeds two tables, which may have the same name."""
    table = error_table(tmp_path)
    table.take(letters(tmp_path, 3), "q.3")
    table.take(letters(tmp_path, 3, query="r", value=b"another"), "r.3")
    table.take(letters(tmp_path, 3, query="s", target="/of-another-database/orders"), "s.3")
    assert len(set(ids(tmp_path))) == 6


def test_rows_of_a_dataframe_have_no_position(tmp_path: Path) -> None:
    quarantine = PosixStorage(str(tmp_path / "quarantine"))
    row = {"topic": "", "partition": 0, "offset": 0, "reason": "no key", "key": None, "value": b"{}"}
    for batch in (0, 1):
        write_quarantine(quarantine, batch, 0, [row])
    found = [letter for batch in (0, 1) for letter in letters_of(quarantine, batch, "q", "/orders")]
    assert [letter.ident.rpartition(":")[0] for letter in found] == ["q.0.0.1", "q.1.0.1"]


class Elsewhere:
    """A process on another host has the error table's lease, and gives it back after so many pauses of the job."""

    def __init__(self, folder: Path, pauses: int, *, stop: bool = False) -> None:
        self.storage, self.left, self.now, self.stop = PosixStorage(str(folder / "errors")), pauses, NOW, stop
        other = replace(LeaseOwner.this_process("somebody"), host="elsewhere", boot_id="another", pid=1)
        self.held = leases.acquire(self.storage, other, NOW, 3_600_000)

    def pause(self, seconds: float) -> bool:
        self.now += int(1000 * seconds)
        self.left -= 1
        if not self.left:
            leases.release(self.storage, self.held)
        return self.stop

    def table(self, folder: Path) -> ErrorTable:
        return ErrorTable(str(folder / "errors"), "bad", 6, "orders", lambda: self.now, self.pause)


@pytest.mark.parametrize("is_there", [True, False])
def test_jobs_that_share_it_take_turns(tmp_path: Path, is_there: bool) -> None:
    if is_there:
        error_table(tmp_path).take(letters(tmp_path), "q.3")
    other = Elsewhere(tmp_path, 7)
    other.table(tmp_path).take(letters(tmp_path, 4), "q.4")
    assert other.now - NOW == 7 * 200
    assert len(ids(tmp_path)) == 2 + 2 * is_there


def test_one_that_does_not_end_is_told_by_name(tmp_path: Path) -> None:
    other = Elsewhere(tmp_path, 100_000)
    with pytest.raises(DeadLetterError, match="error table .*elsewhere"):
        other.table(tmp_path).take(letters(tmp_path, 4), "q.4")
    assert other.now - NOW == table_module.WAIT_MS
    stopped = Elsewhere(tmp_path / "stopped", 9, stop=True)
    with pytest.raises(StopRequested, match="another process wrote to error table"):
        stopped.table(tmp_path / "stopped").take(letters(tmp_path, 4), "q.4")


def test_letters_that_were_written_for_too_long_are_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another job has the lease by then, and takes what is pending for left by a dead process."""
    table, real = error_table(tmp_path), protocol.publish_files

    def publish_files(*args: Any, **more: Any) -> None:
        real(*args, **more)
        storage = PosixStorage(str(tmp_path / "errors"))
        held = leases.current(storage)
        assert held is not None
        leases.release(storage, held)
        Elsewhere(tmp_path, 9)

    monkeypatch.setattr(protocol, "publish_files", publish_files)
    with pytest.raises(LeaseLostError, match="elsewhere"):
        table.take(letters(tmp_path), "q.3")
    assert HoodieTable.open(str(tmp_path / "errors")).timeline().completed_writes == ()


def test_a_table_of_other_rows_is_refused(tmp_path: Path) -> None:
    table_module.check_place(str(tmp_path / "nothing"))
    error_table(tmp_path).take(letters(tmp_path), "q.3")
    table_module.check_place(str(tmp_path / "errors"))
    orders = Writer.create(tmp_path / "other", "COPY_ON_WRITE").table.base_path
    with pytest.raises(
        ConfigError, match=f"hoodie.errortable.base.path: {orders} is table .*, which is not an error table"
    ):
        table_module.check_place(orders)


@pytest.mark.extended("a long history")
@pytest.mark.parametrize("version", [6, 9])
def test_many_batches_stay_few_files_and_commits(tmp_path: Path, version: int) -> None:
    clock = iter(range(NOW, NOW + 10**9, 1_000))
    table = ErrorTable(str(tmp_path / "errors"), "bad", version, "orders", lambda: next(clock), lambda _: False)
    for batch in range(60):
        table.take(letters(tmp_path, batch), f"q.{batch}")
    assert len(set(ids(tmp_path))) == len(ids(tmp_path)) == 120
    assert len(list((tmp_path / "errors").glob("*.parquet"))) <= 15
    opened = HoodieTable.open(str(tmp_path / "errors"))
    assert len(opened.timeline().completed_writes) <= 31
    assert validate(opened) == []


def test_a_file_is_read_once_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "FULL_BYTES", 1)  # each batch has a file
    error_table(tmp_path).take(letters(tmp_path), "q.3")
    reads: list[str] = []
    real = known_module.read_keys
    monkeypatch.setattr(known_module, "read_keys", lambda s, path: (reads.append(path), real(s, path))[1])
    table = error_table(tmp_path)
    for batch in (4, 5, 5, 6):
        table.take(letters(tmp_path, batch), f"q.{batch}")
    assert len(reads) == len(set(reads)) == 3
    table.take(letters(tmp_path, 3, query="r"), "r.3")
    assert len(reads) == 5, "the newest file, and the one that has the records"
    assert len(ids(tmp_path)) == 8


def test_after_a_failure_the_files_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    clock, count, combined = itertools.count(NOW, 7), 4, threading.Barrier(2)
    failed: list[BaseException] = []

    def work(number: int) -> None:
        errors = ErrorTable(str(tmp_path / "errors"), "bad", 6, targets[number], lambda: next(clock), lambda _: False)
        try:
            combined.wait(60)
            for batch in range(count):
                errors.take(
                    [Letter(f"{number}.{batch}:{'0' * 16}", "t", 0, batch, "bad", b"k", b"v", ())],
                    f"query{number}.{batch}",
                )
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
