"""What people and machines see: plain columns in a pipe, framed tables that fold on a terminal, whole JSON documents."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tagstream.cli.output import Column, Fact, JsonOutput
from tagstream.cli.text_output import PlainOutput, TerminalOutput, shortened
from tagstream.table.errors import TableError
from tests.support.paths import ROOT
from tests.support.table_version import timeline_of
from tests.table.reference import unpack

COLUMNS = (Column("key", "key"), Column("size", "bytes", "bytes"), Column("note", "", json_only=True))


def test_plain_columns_are_aligned_and_numbers_are_bare() -> None:
    out = io.StringIO()
    shown = PlainOutput(out)
    shown.facts([Fact("a", "short", 1_234_567, "count"), Fact("b", "a longer title", None)])
    assert shown.listing("files", COLUMNS, [("k1", 10_000, "x"), ("日本", None, "y")]) == 2
    assert out.getvalue().splitlines() == [
        "short           1234567",
        "a longer title  -",
        "key   bytes",
        "k1    10000",
        "日本      -",
    ]


def test_a_control_character_does_not_reach_the_terminal() -> None:
    out = io.StringIO()
    PlainOutput(out).listing("rows", COLUMNS[:1], [("a\x1b[31mb\nc",)])
    assert out.getvalue().splitlines()[1] == r"a\x1b[31mb\nc"


@pytest.mark.parametrize("make", [PlainOutput, JsonOutput])
def test_a_listing_is_written_while_its_rows_are_taken(make: type[PlainOutput] | type[JsonOutput]) -> None:
    stream = io.StringIO()
    written: list[int] = []

    def rows() -> Iterator[tuple[Any, ...]]:
        for n in range(5_000):
            written.append(stream.tell())
            yield (f"k{n}", n, "")

    assert make(stream).listing("rows", COLUMNS, rows()) == 5_000
    assert written[1_500] > 10_000, "all rows are kept before the first is written"


def test_a_json_document_is_whole_also_after_an_error() -> None:
    def rows() -> Iterator[tuple[Any, ...]]:
        yield ("k1", 1, None)
        raise TableError("the file is gone")

    stream = io.StringIO()
    out = JsonOutput(stream)
    out.facts([Fact("base_path", "path", "/t")])
    with pytest.raises(TableError):
        out.listing("files", COLUMNS, rows())
    out.close("the file is gone")
    assert json.loads(stream.getvalue()) == {
        "base_path": "/t",
        "files": [{"key": "k1", "size": 1, "note": None}],
        "error": "the file is gone",
    }


def test_values_of_a_table_as_json() -> None:
    stream = io.StringIO()
    out = JsonOutput(stream)
    values = {
        "decimal": decimal.Decimal("1.50"),
        "day": dt.date(2026, 1, 2),
        "time": dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC),
        "bytes": b"\x00\xff",
        "nan": float("nan"),
        "list": [decimal.Decimal("2"), None],
        "map": {1: "a"},
    }
    out.facts([Fact("value", "value", values)])
    out.close()
    assert json.loads(stream.getvalue())["value"] == {
        "decimal": "1.50",
        "day": "2026-01-02",
        "time": "2026-01-02T03:04:05.000006+00:00",
        "bytes": "AP8=",
        "nan": "nan",
        "list": ["2", None],
        "map": {"1": "a"},
    }


def on_a_terminal(argv: list[str], columns: int) -> str:
    """What a command prints on a terminal of so many columns, without colours."""
    leader, follower = pty.openpty()
    env = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    command = [sys.executable, "-m", "tagstream", *argv]
    with subprocess.Popen(command, stdout=follower, stderr=follower, cwd=ROOT, env=env) as process:
        os.close(follower)
        data = b""
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:  # the other end is closed
                break
            data += piece
        assert process.wait() == 0, data.decode()
    os.close(leader)
    assert b"\x1b[1m" in data
    return re.sub(r"\x1b\[[0-9;]*m", "", data.decode()).replace("\r\n", "\n")


def test_a_table_that_is_too_wide_is_shown_row_by_row(tmp_path: Path) -> None:
    base = unpack("mor_v6_compacted", tmp_path)
    argv = ["table", "files", "--target-base-path", str(base)]
    wide, narrow = on_a_terminal(argv, 120), on_a_terminal(argv, 70)
    assert max(map(len, wide.splitlines())) <= 120 and max(map(len, narrow.splitlines())) <= 70
    ids = re.findall(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}-0", wide)
    assert len(ids) == 12
    assert all(found in narrow for found in ids)
    assert "-- 12 --" in narrow and "-- 12 --" not in wide
    instants = re.findall(r"\b\d{17}\b", wide)
    assert re.findall(r"\b\d{17}\b", narrow) == instants, "an instant is never folded"


def test_commits_at_80_columns_cut_no_instant_and_no_title(tmp_path: Path) -> None:
    base = unpack("cow_v6_global_bloom_moves", tmp_path)
    shown = on_a_terminal(["table", "commits", "--target-base-path", str(base)], 80)
    assert max(map(len, shown.splitlines())) <= 80
    instants = {path.name[:17] for path in timeline_of(base).glob("*.commit")}
    assert set(re.findall(r"\b\d{17}\b", shown)) == instants
    for title in ("instant", "action", "operation", "parts", "files", "inserts", "updates", "deletes", "written"):
        assert re.search(rf"\b{title}\b", shown), title


def wide_row(make: type[PlainOutput], **options: Any) -> str:
    out = io.StringIO()
    columns = [Column(f"column_{n}", f"column {n}") for n in range(30)]
    make(out, **options).listing("rows", columns, [["x" * 10_000, *range(29)], ["y", *range(29)]])
    return out.getvalue()


def test_a_long_value_does_not_make_every_row_long() -> None:
    plain = wide_row(PlainOutput)
    assert max(map(len, plain.splitlines())) < 500
    assert "… +9,9" in plain
    assert "x" * 10_000 in wide_row(PlainOutput, width=0)
    assert shortened("x" * 100, 100) == "x" * 100
    assert shortened("x" * 101, 100).startswith("x" * 90)


def test_rows_one_below_the_other_in_a_pipe() -> None:
    lines = wide_row(PlainOutput, vertical=True).splitlines()
    assert (lines[0], lines[31]) == ("-- 1 --", "-- 2 --")
    assert lines[2] == "column 1   0"


def test_a_wide_table_on_a_terminal_has_its_titles_whole(tmp_path: Path) -> None:
    out = io.StringIO()
    shown = TerminalOutput(out)
    shown._console.width = 80
    shown.listing(
        "rows", [Column(f"a_rather_long_name_{n}", f"a_rather_long_name_{n}") for n in range(12)], [range(12)]
    )
    assert out.getvalue().splitlines()[1].split() == ["a_rather_long_name_0", "0"]
