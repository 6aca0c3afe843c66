"""A command that changes a table takes the lock that its properties name, while it plans and while it publishes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services import insert_overwrite
from tagstream.table.services.validate import validate
from tagstream.table.storage.posix import PosixStorage
from tests.cli.running import run, run_json, state_of
from tests.table.writer import Writer, row

LOCK = "hoodie.write.lock."
SETTINGS = {
    f"{LOCK}provider": "FileSystemBasedLockProvider",
    f"{LOCK}wait_time_ms": "1",
    f"{LOCK}client.num_retries": "0",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.datasource.write.precombine.field": "ver",
}
CONF = [text for key, value in SETTINGS.items() for text in ("--hoodie-conf", f"{key}={value}")]


def filled(folder: Path, table_type: str = COPY_ON_WRITE) -> Writer:
    writer = Writer.without_metadata(folder, table_type)
    for number in range(6):
        writer.write([row(key, f"p{key % 2}", number) for key in range(4)])
    return writer


def rows(writer: Writer) -> list[dict[str, Any]]:
    found = read_snapshot(writer.table.reload()).select(writer.schema.names).to_pylist()
    return sorted(found, key=lambda r: str(r["id"]))


def source(folder: Path) -> Path:
    path = folder / "new.json"
    path.write_text("".join(json.dumps(row(key, "p0", 99)) + "\n" for key in (0, 2)))
    return path


def watched(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Whether the lock was held when each file of the timeline was written, and each file of data was begun."""
    held: dict[str, bool] = {}
    lock = Path(writer.table.base_path, ".hoodie", "lock")
    before: Callable[[PosixStorage, str, bytes], None] = PosixStorage.write_new

    def write_new(self: PosixStorage, rel: str, data: bytes) -> None:
        held.setdefault(Path(rel).name, lock.exists())
        before(self, rel, data)

    monkeypatch.setattr(PosixStorage, "write_new", write_new)
    return held


SAVEPOINT = ["savepoint"]
COMMANDS = [
    SAVEPOINT, ["clean", "--commits", "1"], ["archive", "--min-commits", "3", "--max-commits", "4", "--commits", "2"],
    ["rollback"], ["delete-partition", "--partition", "p1"], ["cluster"], ["cluster", "--schedule"],
    ["insert-overwrite"], ["upgrade", "--to", "9"], ["compact"], ["compact", "--schedule"],
]  # fmt: skip


@pytest.mark.extended(
    "the same lock around other commands", first=("rollback", "cluster", "insert-overwrite", "upgrade", "compact")
)
@pytest.mark.parametrize("command", COMMANDS, ids="_".join)
def test_it_holds_the_lock(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = filled(tmp_path, MERGE_ON_READ if command[0] == "compact" else COPY_ON_WRITE)
    at = ["--target-base-path", writer.table.base_path, "--yes", *CONF]
    name, *flags = command
    if name == "rollback":
        flags = ["--instant", writer.table.timeline().completed_writes[-1].time]
    if name == "insert-overwrite":
        flags = ["--from", str(source(tmp_path))]
    lock = Path(writer.table.base_path, ".hoodie", "lock")
    lock.touch()
    before = state_of(Path(writer.table.base_path), leave_out=[".tagstream", ".hoodie"])
    run("table", name, *at, *flags, code=1)
    assert lock.exists(), "it is another writer's"
    assert state_of(Path(writer.table.base_path), leave_out=[".tagstream", ".hoodie"]) == before
    lock.unlink()
    held = watched(writer, monkeypatch)
    run("table", name, *at, *flags)
    assert not lock.exists()
    planned = {name: lock for name, lock in held.items() if name.endswith(".requested")}
    published = {name: lock for name, lock in held.items() if name[:17].isdigit() and name.count(".") == 1}
    assert all(planned.values()), planned
    assert all(published.values()), published
    assert planned or published or name in ("upgrade", "archive")
    if name not in ("rollback", "delete-partition", "insert-overwrite", "upgrade"):
        assert rows(writer) == list(writer.live.values())
    assert validate(writer.table.reload()) == []


def test_the_lock_is_free_while_rows_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, seen = filled(tmp_path), list[bool]()
    lock = Path(writer.table.base_path, ".hoodie", "lock")
    write = insert_overwrite._write

    def watch(*arguments: Any) -> Any:
        seen.append(lock.exists())
        return write(*arguments)

    monkeypatch.setattr(insert_overwrite, "_write", watch)
    at = ("--target-base-path", writer.table.base_path, "--yes", *CONF)
    run("table", "insert-overwrite", *at, "--from", source(tmp_path))
    assert seen == [False]


def test_a_write_to_the_partition_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other writer's rows stay, and the command says that it must be run again."""
    writer = filled(tmp_path)
    write, at = insert_overwrite._write, ("--target-base-path", writer.table.base_path, "--yes", *CONF)

    def write_between(*arguments: Any) -> Any:
        done = write(*arguments)
        if not meanwhile:
            meanwhile.append(writer.write([row(8, "p0", 7)]))
        return done

    meanwhile: list[Any] = []
    monkeypatch.setattr(insert_overwrite, "_write", write_between)
    run("table", "insert-overwrite", *at, "--from", source(tmp_path), code=1)
    assert "run the command again" in capsys.readouterr().err
    assert rows(writer) == sorted(writer.live.values(), key=lambda r: str(r["id"]))
    assert validate(writer.table.reload()) == []
    assert not writer.table.reload().timeline().pending
    assert run_json("table", "insert-overwrite", *at, "--from", source(tmp_path))["changed"] is True
    assert {r["id"] for r in rows(writer) if r["part"] == "p0"} == {"k0", "k2"}


def test_a_lock_that_cannot_be_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = filled(tmp_path)
    before = state_of(Path(writer.table.base_path))
    at = ("--target-base-path", writer.table.base_path, "--yes", "--hoodie-conf", f"{LOCK}provider=Noop")
    run("table", "clean", *at, code=2)
    assert "not a lock provider of this version" in capsys.readouterr().err
    assert state_of(Path(writer.table.base_path)) == before
