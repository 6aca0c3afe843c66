"""Bad records on disk: what a line says, and that a file is whole or not there."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from tagstream.streaming.write.quarantine import write_quarantine
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
