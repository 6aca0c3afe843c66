"""Figures of the benchmarks as JSON lines: one object a line, added at the end of a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def append_lines(path: Path | None, found: Iterable[Mapping[str, Any]]) -> None:
    """Add the objects to the file, made with its folder where missing; None: they are not kept."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as f:
        f.writelines(json.dumps(dict(one), separators=(",", ":")) + "\n" for one in found)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file; ValueError names the line that is none."""
    found = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            one = json.loads(line)
        except ValueError as e:
            raise ValueError(f"{path}, line {number}: not JSON ({e}); remove the line") from e
        if not isinstance(one, dict) or not isinstance(one.get("kind"), str):
            raise ValueError(f'{path}, line {number}: not an object with a text "kind"; remove the line')
        found.append(one)
    return found
