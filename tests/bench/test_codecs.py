"""The bench of codecs on few rows: every codec of each kind of rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.codecs import main
from bench.inputs.lines import read_lines


def test_each_codec_of_each_kind_of_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = tmp_path / "figures.jsonl"
    main(["--share", "0.002", "--runs", "1", "--json", str(figures)])
    lines = read_lines(figures)
    assert {line["input"] for line in lines} == {"flights", "8 columns", "100 columns", "text"}
    sizes = {(line["input"], line["codec"], line["level"]): line["bytes"] for line in lines}
    assert len(sizes) == len(lines) == 4 * 9
    assert all(sizes[name, "snappy", None] >= sizes[name, "gzip", 6] for name in ("flights", "8 columns", "text"))
    assert capsys.readouterr().out.count("what is written") == 4 * 3  # of gzip, zstd and snappy
