"""Figures of the benchmarks as JSON lines, one object with a ``kind`` per line: appended when measured, read later."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def append_lines(path: Path | None, lines: Iterable[Mapping[str, Any]]) -> None:
    """Append lines to a file (None: nowhere) in one write, so that measured figures are kept after a kill."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as f:
        f.write("".join(json.dumps(dict(line)) + "\n" for line in lines))
        f.flush()
        os.fsync(f.fileno())


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All lines of a file. ValueError names the line that is not a JSON object with a kind."""
    found = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            value = json.loads(line)
        except json.JSONDecodeError:
            value = None
        if not isinstance(value, dict) or "kind" not in value:
            raise ValueError(f"{path}, line {number} is not a JSON object with a kind: {line[:80]!r}")
        found.append(value)
    return found
