"""The picture of a soak."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench.plot_soak import last_run, main

MIB = {"driver": 150.0, "jvm": 900.0, "workers": 400.0}


def run(*lags: int) -> list[dict[str, object]]:
    samples: list[dict[str, object]] = [
        {"kind": "soak", "at": 5.0 * n, "lag": lag, "mib": MIB} for n, lag in enumerate(lags)
    ]
    return [*samples, {"kind": "soak", "summary": True}]


def test_the_last_run_is_taken_and_nothing_else() -> None:
    lines = [{"kind": "machine"}, *run(1, 2), {"kind": "tag"}, *run(3, 4, 5)]
    assert [s["lag"] for s in last_run(lines)] == [3, 4, 5]
    assert [s["lag"] for s in last_run(run(7))] == [7]


def test_without_a_soak_that_has_ended_it_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"bench\.soak"):
        last_run(run(1)[:-1])


def test_the_picture_is_the_same_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in run(5, 9, 4)))
    made = []
    for name in ("a.svg", "b.svg"):
        monkeypatch.setattr(sys, "argv", ["plot_soak", str(tmp_path / "lines.jsonl"), str(tmp_path / name)])
        main()
        made.append((tmp_path / name).read_text())
    assert made[0] == made[1]
    assert "<svg" in made[0]
