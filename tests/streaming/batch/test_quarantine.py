"""Bad records on disk: what a line says, and that a file is whole or not there."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from tagstream.streaming.batch.quarantine import forget_old, quarantined_batches, read_quarantine, write_quarantine
from tagstream.table.storage.opening import private
from tagstream.table.storage.posix import PosixStorage

KAFKA = {"topic": "orders", "partition": 3, "offset": 42, "reason": "not JSON", "key": None, "value": b"\xff{"}
FILE = {"path": "file:///a b.jsonl", "offset": 7, "reason": "field ä is null", "key": b"", "value": b"{}"}


def lines(path: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def test_a_line_has_place_reason_and_the_very_bytes(tmp_path: Path) -> None:
    path = write_quarantine(PosixStorage(str(tmp_path)), 12, 3, [KAFKA, FILE])
    assert Path(path).relative_to(tmp_path).as_posix() == "batch=00000000000000000012/part-00003.jsonl"
    first, second = lines(path)
    assert first == {
        "topic": "orders", "partition": 3, "offset": 42, "reason": "not JSON", "key_base64": None,
        "value_base64": base64.b64encode(b"\xff{").decode(),
    }  # fmt: skip
    assert (second["path"], second["key_base64"], second["reason"]) == ("file:///a b.jsonl", "", "field ä is null")


def test_a_replay_writes_the_same_file_again(tmp_path: Path) -> None:
    first = write_quarantine(PosixStorage(str(tmp_path)), 1, 0, [KAFKA, FILE])
    assert write_quarantine(PosixStorage(str(tmp_path)), 1, 0, [KAFKA]) == first
    assert len(lines(first)) == 1
    assert os.listdir(os.path.dirname(first)) == ["part-00000.jsonl"]


def test_a_failure_leaves_no_half_file(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        write_quarantine(PosixStorage(str(tmp_path)), 1, 0, [KAFKA, {"topic": "t"}])
    assert os.listdir(tmp_path / "batch=00000000000000000001") == []


def test_a_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = write_quarantine(private(PosixStorage(str(tmp_path))), 1, 0, [KAFKA])
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_what_is_written_is_read(tmp_path: Path) -> None:
    storage = PosixStorage(str(tmp_path))
    write_quarantine(storage, 3, 0, [KAFKA, FILE])
    write_quarantine(storage, 3, 1, [FILE])
    write_quarantine(storage, 12, 0, [KAFKA])
    assert quarantined_batches(storage) == [3, 12]
    assert list(read_quarantine(storage, 3)) == [(0, 1, KAFKA), (0, 2, FILE), (1, 1, FILE)]


def test_old_batches_go_and_young_ones_stay(tmp_path: Path) -> None:
    storage = PosixStorage(str(tmp_path))
    os.utime(write_quarantine(storage, 1, 0, [KAFKA]), (1_000, 1_000))
    os.utime(write_quarantine(storage, 2, 0, [KAFKA]), (1_000, 1_000))
    os.utime(write_quarantine(storage, 2, 1, [KAFKA]), (2_000, 2_000))
    assert forget_old(storage, 1_500_000) == [1]
    assert quarantined_batches(storage) == [2]
