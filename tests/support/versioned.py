"""The test files that `make versions` runs, one a line: `python -m tests.support.versioned`.

What kind of table a test makes comes from `table_version.py` alone, so a file that imports it, or another one that does,
may do otherwise on another kind, and every other file (decoders, options, pages, tables of real Hudi) does the same.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.support.packages import imported_modules
from tests.support.paths import ROOT

KINDS = "tests.support.table_version"
# Outside of these: tests of the tests' own support, and of real Hudi, which name the versions that they are about.
PLACES = ("behaviours", "bootstrap", "cli", "drills", "index", "streaming", "table")
_STARTED = re.compile(r"tests(?:\.\w+)+")  # `python -m tests...` in a string


def versioned_files(root: Path = ROOT) -> list[str]:
    """Paths below ``root`` of the test files that reach ``table_version.py``, by conftest.py files too."""
    paths = {_module(path.relative_to(root)): path for path in sorted((root / "tests").rglob("*.py"))}
    uses = {module: _uses(path.read_text("utf-8")) & paths.keys() for module, path in paths.items()}
    for module, path in paths.items():
        # tests/conftest.py is everybody's: it knows the kinds, and makes no table.
        above = path.relative_to(root).parts[1:-1]
        uses[module] |= {_conftest(above[: n + 1]) for n in range(len(above))} & (paths.keys() - {module})
    found, todo = {KINDS}, [KINDS]
    while todo:
        target = todo.pop()
        more = {module for module, used in uses.items() if target in used} - found
        found |= more
        todo += more
    return [
        path.relative_to(root).as_posix()
        for module, path in paths.items()
        if module in found and path.name.startswith("test_") and module.split(".")[1] in PLACES
    ]


def _uses(source: str) -> set[str]:
    strings = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    started = {name for value in strings if isinstance(value, str) for name in _STARTED.findall(value)}
    return {*imported_modules(source), *started}


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts)


def _conftest(folders: tuple[str, ...]) -> str:
    return ".".join(("tests", *folders, "conftest"))


if __name__ == "__main__":
    print("\n".join(versioned_files()))
