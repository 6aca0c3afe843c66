"""The lines of splits, with their positions."""

from __future__ import annotations

import bz2
import gzip
import json
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from tagstream.streaming.errors import SourceError
from tagstream.streaming.source import file_reader as read
from tagstream.streaming.source.file_plans import Split, make_plan, to_text
from tagstream.streaming.source.file_reader import FilesSpec, planned_lines, split_lines
from tagstream.table.storage.posix import PosixStorage

LINES = [b'{"n": %d, "x": "%s"}' % (n, b"\xc3\xa4" * (n % 7)) for n in range(1000)]


def spec(tmp_path: Path, changed: str = "fail") -> FilesSpec:
    return FilesSpec(PosixStorage(str(tmp_path)), changed)  # type: ignore[arg-type]


def rows(batches: object) -> list[tuple[bytes, str, int, int]]:
    table = pa.Table.from_batches(list(batches), schema=read.RAW_SCHEMA)  # type: ignore[call-overload]
    assert table.column("key").null_count == table.num_rows
    names = ("value", "src", "pos_hi", "pos_lo")
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


@pytest.mark.parametrize("block", [7, 64, 1 << 20])
def test_lines_and_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(read, "_BLOCK", block)
    data = b"\n".join(LINES)
    (tmp_path / "a b.json").write_bytes(data)
    found = rows(split_lines(spec(tmp_path), Split("a b.json", 0, len(data), 5)))
    assert [value for value, _, _, _ in found] == LINES
    assert {(src, hi) for _, src, hi, _ in found} == {(f"file://{tmp_path}/a%20b.json", 5000)}
    assert all(data[at : at + len(value)] == value for value, _, _, at in found)


def test_the_splits_of_a_plan_are_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tagstream.streaming.source.file_plans._LEAST_SPLIT", 1000)
    data = b"\n".join(LINES) + b"\n"
    (tmp_path / "a").write_bytes(data)
    plan = make_plan(PosixStorage(str(tmp_path)), 1, [Split("a", 0, len(data), 5)], 3)
    assert len(plan.tasks) == 3
    assert max(sum(s.size for s in t) for t in plan.tasks) < 1.5 * min(sum(s.size for s in t) for t in plan.tasks)
    found = [row for line in to_text(plan).splitlines() for row in rows(planned_lines(spec(tmp_path), [line]))]
    assert sorted(at for *_, at in found) == [
        at for *_, at in rows(split_lines(spec(tmp_path), Split("a", 0, len(data), 5)))
    ]
    assert sorted(json.loads(value)["n"] for value, *_ in found) == list(range(1000))


def test_carriage_returns_stay_and_blank_lines_too(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"{}\r\n\n{}\r{}\n")
    found = rows(split_lines(spec(tmp_path), Split("a", 0, 11, 0)))
    assert [(value, at) for value, _, _, at in found] == [(b"{}\r", 0), (b"", 4), (b"{}\r{}", 5)]


@pytest.mark.parametrize(
    ("codec", "compress"), [("gzip", gzip.compress), ("bz2", bz2.compress), ("zlib", zlib.compress), ("zstd", None)]
)
def test_compressed_files(tmp_path: Path, codec: str, compress: object) -> None:
    data = b"\n".join(LINES)
    packed = pa.compress(data, codec="zstd", asbytes=True) if compress is None else compress(data)  # type: ignore[operator]
    (tmp_path / "a").write_bytes(packed)
    found = rows(split_lines(spec(tmp_path), Split("a", 0, len(packed), 0, codec)))
    assert [value for value, *_ in found] == LINES
    assert found[-1][3] == len(data) - len(LINES[-1])


def test_gzip_of_several_members(tmp_path: Path) -> None:
    packed = gzip.compress(b'{"a": 1}\n{"a"') + gzip.compress(b": 2}\n")
    (tmp_path / "a").write_bytes(packed)
    assert [row[0] for row in rows(split_lines(spec(tmp_path), Split("a", 0, len(packed), 0, "gzip")))] == [
        b'{"a": 1}',
        b'{"a": 2}',
    ]


def test_what_is_appended_after_the_plan_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"{}\n{}\n")
    assert len(rows(split_lines(spec(tmp_path), Split("a", 0, 3, 0)))) == 1


def test_a_file_that_is_gone_or_shorter_or_cut_ends_the_job_by_name(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=f"{tmp_path}/a is gone: .* restore it, or .*changed.files=ignore"):
        rows(split_lines(spec(tmp_path), Split("a", 0, 3, 0)))
    (tmp_path / "a").write_bytes(b"{}\n")
    with pytest.raises(SourceError, match=r"has 3 bytes now, but had 6 when it was listed; .*Start again.*=ignore"):
        rows(split_lines(spec(tmp_path), Split("a", 0, 6, 0)))
    packed = gzip.compress(b"{}\n" * 1000)[:-4]
    (tmp_path / "a").write_bytes(packed)
    with pytest.raises(SourceError, match="is not a complete gzip stream"):
        rows(split_lines(spec(tmp_path), Split("a", 0, len(packed), 0, "gzip")))


def test_with_the_option_they_are_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert rows(split_lines(spec(tmp_path, "ignore"), Split("a", 0, 3, 0))) == []
    (tmp_path / "a").write_bytes(b"{}\n")
    assert rows(split_lines(spec(tmp_path, "again"), Split("a", 0, 6, 0))) == []
    assert "tagstream: warning: source file" in capsys.readouterr().err
