"""The bench of compaction on a small table: one plan over all of it, carried out here without a change of the rows."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from bench.compaction import content, main, make_table, run_here
from bench.inputs.lines import read_lines


@pytest.mark.parametrize("version", [6, 9])
def test_a_small_table(version: int, tmp_path: Path) -> None:
    args = Namespace(rows=4_000, groups=2, logs=3, share=0.1, columns=8, version=version)
    table = make_table(tmp_path / "t", args)
    before = content(tmp_path / "t")
    assert 3_900 < before[0] < 4_000  # one in a hundred of the changes is a delete
    run = run_here(table, "zstd")
    assert run.cpu_seconds > 0
    assert content(tmp_path / "t") == before
    assert table.timeline().pending_compactions == {}
    assert not any(found.log_files for p in table.view().partitions() for found in table.view().latest_merged_slices(p))


@pytest.mark.hudi_jar
@pytest.mark.spark
def test_beside_real_hudi(tmp_path: Path) -> None:
    figures = tmp_path / "figures.jsonl"
    main(["--rows", "4000", "--groups", "2", "--logs", "2", "--runs", "1", "--json", str(figures)])
    ours, theirs = read_lines(figures)
    assert (ours["who"], theirs["who"]) == ("here", "Hudi 1.2.0")
    assert ours["cpu_seconds"] > 0
    assert theirs["cpu_seconds"] > 0
