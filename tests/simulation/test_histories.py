"""Simulated histories: a minute's worth in the first tier, some minutes' in the second, on seeds that stay the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.program import Program, run
from tests.simulation.run import report

FEW = range(1, 5)
MORE = range(5, 49)


def check(seed: int, folder: Path) -> None:
    """A history holds."""
    program = Program.of(seed)
    found = run(program, folder)
    assert not found.problems, report(program, found)


@pytest.mark.parametrize("seed", FEW)
def test_a_history(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path / "world")


@pytest.mark.extended("longer random histories")
@pytest.mark.parametrize("seed", MORE)
def test_another_history(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path / "world")
