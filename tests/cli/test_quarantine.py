"""The quarantine looked into and replayed, each record once whatever dies in between."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import pytest

from tagstream.cli import quarantine as replaying
from tagstream.cli.main import main
from tagstream.cli.quarantine import (
    bad_records,
    finish_replays,
    line_of,
    open_checkpoint,
    quarantine_of,
    replay,
    replayed,
)
from tagstream.streaming.batch.quarantine import write_quarantine
from tagstream.table.storage.posix import PosixStorage
from tests.cli.running import run_json

ESCAPES = b'{"id": "\x1b[2J\x07"}\n\xff'


def bad(offset: int, reason: str, value: bytes | None, key: bytes | None = None) -> dict[str, object]:
    return {"path": "file:///in/a.json", "offset": offset, "reason": reason, "key": key, "value": value}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Batches 3 and 4 are done, at 5 the job stopped; batch 0 is of a later query, in root 1."""
    path = tmp_path / "checkpoint"
    (path / "commits").mkdir(parents=True)
    for batch in range(5):
        (path / "commits" / str(batch)).write_text("v1\n{}")
    first = quarantine_of(PosixStorage(str(path)), 0)
    write_quarantine(first, 3, 0, [bad(0, "not JSON", b"hello"), bad(10, "field a is missing", b'{"b":\n 1}')])
    write_quarantine(first, 4, 1, [bad(20, "not JSON", ESCAPES), bad(30, "tombstone: no key", None, b"k")])
    write_quarantine(first, 5, 0, [bad(40, "not JSON", b"again")])
    later = quarantine_of(PosixStorage(str(path)), 1)
    write_quarantine(later, 0, 0, [{**bad(7, "not JSON", b"{"), "topic": "t", "partition": 2} | {"path": ""}])
    return path


def run(checkpoint: Path, command: str, *more: object, code: int = 0) -> dict:
    return run_json("quarantine", command, *more, "--checkpoint-dir", checkpoint, code=code)


def test_list_says_where_and_why_and_what_is_lost(checkpoint: Path) -> None:
    doc = run(checkpoint, "list")
    found = {r["id"]: r for r in doc["records"]}
    assert list(found) == ["0.3.0.1", "0.3.0.2", "0.4.1.1", "0.4.1.2", "0.5.0.1", "1.0.0.1"]
    assert found["0.3.0.2"] == {
        "id": "0.3.0.2",
        "batch_id": 3,
        "left_out": True,
        "source": "file:///in/a.json",
        "offset": 10,
        "reason": "field a is missing",
        "replayed": None,
        "bytes": 9,
    }
    assert not found["0.5.0.1"]["left_out"]
    assert not doc["more"]
    assert [r["id"] for r in run(checkpoint, "list", "--reason", "missing")["records"]] == ["0.3.0.2"]
    assert [r["id"] for r in run(checkpoint, "list", "--batch", 4)["records"]] == ["0.4.1.1", "0.4.1.2"]
    assert run(checkpoint, "list", "--limit", 1)["more"]


def test_count_by_reason(checkpoint: Path) -> None:
    doc = run(checkpoint, "count")
    assert doc["reasons"][0] == {"reason": "not JSON", "records": 4, "left_out": 2}
    assert (doc["records"], doc["left_out"]) == (6, 4)


def test_show_escapes_and_writes_the_very_bytes(checkpoint: Path, tmp_path: Path) -> None:
    doc = run(checkpoint, "show", "0.4.1.1")
    assert base64.b64decode(doc["value_base64"]) == ESCAPES
    out = io.StringIO()
    assert main(["quarantine", "show", "0.4.1.1", "--checkpoint-dir", str(checkpoint)], out) == 0
    assert r'{"id": "\x1b[2J\x07"}\n\xff' in out.getvalue()
    assert "\x1b" not in out.getvalue()
    run(checkpoint, "show", "0.4.1.1", "--out", tmp_path / "value")
    assert (tmp_path / "value").read_bytes() == ESCAPES
    assert (tmp_path / "value").stat().st_mode & 0o777 == 0o600
    run(checkpoint, "show", "0.4.1.2", "--out", tmp_path / "key", "--key")
    assert (tmp_path / "key").read_bytes() == b"k"
    assert (
        "exists; give another --out" in run(checkpoint, "show", "0.4.1.1", "--out", tmp_path / "value", code=1)["error"]
    )
    assert "has no value" in run(checkpoint, "show", "0.4.1.2", "--out", tmp_path / "x", code=1)["error"]
    for ident in ("0.4.1.9", "nonsense", "1.2.3"):
        assert "has no record" in run(checkpoint, "show", ident, code=1)["error"]


def test_a_checkpoint_that_is_none(tmp_path: Path) -> None:
    assert "is not a checkpoint" in run(tmp_path, "list", code=1)["error"]


def test_replay_takes_what_was_left_out_once(checkpoint: Path, tmp_path: Path) -> None:
    into = tmp_path / "in"
    doc = run(checkpoint, "replay", "--to", into)
    assert (doc["replayed"], doc["replayed_before"], doc["not_left_out"], doc["no_value"]) == (3, 0, 2, 1)
    (path,) = into.iterdir()
    assert str(path) == doc["file"]
    assert path.read_bytes() == b'hello\n{"b":  1}\n' + ESCAPES.replace(b"\n", b" ") + b"\n"
    assert path.stat().st_mode & 0o777 == 0o600
    again = run(checkpoint, "replay", "--to", into)
    assert (again["replayed"], again["file"], again["replayed_before"]) == (0, None, 3)
    assert len(list(into.iterdir())) == 1
    assert {r["id"]: r["replayed"] for r in run(checkpoint, "list")["records"]}["0.3.0.1"] == str(path)
    assert run(checkpoint, "replay", "--to", into, "--again", "--reason", "missing")["replayed"] == 1


def test_a_replay_of_some_leaves_the_others(checkpoint: Path, tmp_path: Path) -> None:
    assert run(checkpoint, "replay", "--to", tmp_path / "a", "--reason", "missing")["replayed"] == 1
    assert run(checkpoint, "replay", "--to", tmp_path / "b")["replayed"] == 2


@pytest.mark.parametrize("died_at", ["intent", "file"])
def test_a_replay_that_was_killed_is_finished_by_the_next(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, died_at: str
) -> None:
    files = open_checkpoint(str(checkpoint))
    fit = [r for r in bad_records(files) if r.left_out and r.value is not None]

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if died_at == "intent":
            patch.setattr(replaying, "_write", die)
        else:
            whole = PosixStorage.write_new
            patch.setattr(
                PosixStorage,
                "write_new",
                lambda self, rel, data: die() if rel.endswith(".done") else whole(self, rel, data),
            )
        with pytest.raises(KeyboardInterrupt):
            replay(files, str(tmp_path / "in"), fit)
    before = list((tmp_path / "in").glob("*"))
    assert len(before) == (1 if died_at == "file" else 0)
    doc = run(checkpoint, "replay", "--to", tmp_path / "in")
    assert (doc["replayed"], doc["replayed_before"]) == (0, 3)
    (path,) = (tmp_path / "in").iterdir()
    assert path.read_bytes().count(b"\n") == 3
    assert finish_replays(files) == []
    assert len(replayed(files)) == 3


def test_a_replay_whose_records_are_gone_says_so(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = open_checkpoint(str(checkpoint))
    fit = [r for r in bad_records(files) if r.left_out and r.value is not None]
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(replaying, "_write", lambda *_: 1 // 0)
        replay(files, str(tmp_path / "in"), fit)
    quarantine_of(files, 0).delete_tree("batch=" + "0" * 19 + "3")
    assert (
        "2 of its records are no longer in the quarantine"
        in run(checkpoint, "replay", "--to", tmp_path / "in", code=1)["error"]
    )


def test_a_line_means_what_the_record_meant() -> None:
    value = b'{\n "a":\n [1,\n 2]\n}'
    assert json.loads(line_of(value)) == json.loads(value)
    assert line_of(value).count(b"\n") == 1
