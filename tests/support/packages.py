"""The project's packages (folders of sources) and which imports which: `python -m tests.support.packages [--files]`.

A package is a folder with the files that are in it, without those of folders below.
Printed: each package with its number of files and lines and the packages it imports, lowest first; then circles, if any.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.paths import PACKAGE, ROOT

PRODUCT = ("table", "catalog", "index", "state", "bootstrap", "streaming", "cli")
PARTS = (*PRODUCT, "bench")
PREFIX = "tagstream."


@dataclass
class Package:
    """One folder: its sources, and for each package that they import the (file, module) pairs that do."""

    name: str
    files: dict[str, int] = field(default_factory=dict)
    imports: dict[str, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))


def imported_modules(source: str) -> Iterator[str]:
    """Dotted names a source imports, importlib.import_module("name") included; a relative import yields "."."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level or node.module is None:
                yield "."
            else:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield node.args[0].value


def name_of(path: Path) -> str:
    """The name of a file of the product below ``tagstream/`` ("table/write/commit.py"), of others below the checkout."""
    return path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else ROOT).as_posix()


def read_packages() -> dict[str, Package]:
    """Every package of the product and of bench/, by its path ("table/write")."""
    folders = [*(PACKAGE / part for part in PRODUCT), ROOT / "bench"]
    sources = {path: path.read_text("utf-8") for folder in folders for path in sorted(folder.rglob("*.py"))}
    names = {path: name_of(path) for path in sources}
    modules = {name.removesuffix("/__init__.py").removesuffix(".py").replace("/", "."): name for name in names.values()}
    packages: dict[str, Package] = {}
    for path, text in sources.items():
        name = names[path]
        package = packages.setdefault(name.rpartition("/")[0], Package(name.rpartition("/")[0]))
        if not name.endswith("__init__.py"):
            package.files[name] = len(text.splitlines())
        for module in imported_modules(text):
            other = modules.get(module.removeprefix(PREFIX))
            if other is None or other.endswith("__init__.py"):
                continue
            target = other.rpartition("/")[0]
            if target != package.name and (name, other) not in package.imports[target]:
                package.imports[target].append((name, other))
    return packages


def circles(packages: dict[str, Package]) -> list[list[str]]:
    """Sets of packages that import each other, directly or by way of others; each sorted."""

    def reach(start: str) -> set[str]:
        seen, todo = set[str](), [start]
        while todo:
            for target in packages[todo.pop()].imports:
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        return seen

    reached = {name: reach(name) for name in packages}
    found = {frozenset(o for o in reached[name] if name in reached[o]) for name in packages if name in reached[name]}
    return sorted(sorted(circle) for circle in found)


def by_height(packages: dict[str, Package]) -> list[Package]:
    """Packages so that each stands after those it imports (within a circle: by name)."""
    done: list[str] = []
    while len(done) < len(packages):
        left = [name for name in packages if name not in done]
        free = [name for name in left if all(t in done for t in packages[name].imports)] or left
        done.append(min(free, key=lambda name: (PARTS.index(name.split("/")[0]), name)))
    return [packages[name] for name in done]


def main(argv: list[str]) -> int:
    """Print the packages; exit code 1 when there is a circle."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.packages", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--files", action="store_true", help="the files of each package too, with their lines")
    arguments = parser.parse_args(argv)
    packages = read_packages()
    for package in by_height(packages):
        print(f"{package.name}/  {len(package.files)} files, {sum(package.files.values()):,} lines")
        if package.imports:
            print(f"    -> {' '.join(sorted(package.imports))}")
        if arguments.files:
            for name, lines in package.files.items():
                print(f"    {name.rpartition('/')[2]} {lines}")
    found = circles(packages)
    for circle in found:
        print(f"circle: {' <-> '.join(circle)}")
    if not found:
        print("no circles")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
