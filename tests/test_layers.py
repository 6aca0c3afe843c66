"""Imports go one way: table <- index, table <- state <- bootstrap <- streaming <- admin; the entries are above all.

Read from the sources, so an import that never runs (under TYPE_CHECKING, inside a function) counts too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# What each part of the product may import from the others. bench and tests may import anything.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "table": frozenset(),
    "index": frozenset({"table"}),
    "state": frozenset({"table"}),
    "bootstrap": frozenset({"table", "state"}),
    "streaming": frozenset({"table", "index", "state", "bootstrap"}),
    "admin": frozenset({"table", "index", "state", "bootstrap", "streaming"}),
    "run_stream": frozenset({"table", "index", "state", "bootstrap", "streaming"}),
    "tagstream": frozenset({"admin"}),
}
OURS = frozenset(MAY_IMPORT) | {"bench", "tests"}

# Third-party clients and the only places that may import them (a place is a path prefix; bench and tests are free).
CLIENTS: dict[str, tuple[str, ...]] = {
    "rocksdict": ("state/",),
    "kafka": (),
    "happybase": ("index/hbase/",),
    "pyspark": ("bootstrap/", "index/", "streaming/", "run_stream.py"),
}
# Parts of streaming/ that are plain Arrow and Python, usable and testable without a JVM.
WITHOUT_SPARK = (
    "streaming/decode/",
    "streaming/write/quarantine.py",
    "streaming/options/keys/registry.py",
    "streaming/options/options.py",
)


def imported_modules(source: str) -> Iterator[str]:
    """Dotted names a source imports, importlib.import_module("name") included; a relative import yields "."."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." if node.level else (node.module or "")
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield node.args[0].value


def problems_of(path: str, source: str) -> list[str]:
    """What the file at `path` (relative to the project) imports against the rules, in words."""
    part = path.split("/", 1)[0].removesuffix(".py")
    if part not in MAY_IMPORT:
        return []
    found = []
    for module in imported_modules(source):
        top = module.split(".", 1)[0]
        if module == ".":
            found.append(f"{path}: relative import; name the package")
        elif top in OURS and top != part and top not in MAY_IMPORT[part]:
            found.append(f"{path}: imports {module}, but {part} may import only {sorted(MAY_IMPORT[part])}")
        elif top in CLIENTS and not path.startswith(CLIENTS[top]):
            found.append(f"{path}: imports {module}, which belongs to {CLIENTS[top] or 'tests and bench'}")
        elif top == "pyspark" and path.startswith(WITHOUT_SPARK):
            found.append(f"{path}: imports {module}, but this part works without Spark")
    return found


def product_files() -> list[Path]:
    """Every Python source of the product, run_stream.py and tagstream.py included."""
    files = [path for part in MAY_IMPORT for path in sorted((ROOT / part).rglob("*.py"))]
    return [*files, *(path for path in [ROOT / "run_stream.py", ROOT / "tagstream.py"] if path.exists())]


def test_imports_go_one_way() -> None:
    files = product_files()
    assert len(files) > 1, "no sources found: the test looks in the wrong folder"
    assert [p for f in files for p in problems_of(f.relative_to(ROOT).as_posix(), f.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("table/x.py", "from tagstream.state.store.codec import decode"),
        ("table/x.py", "import rocksdict"),
        ("table/x.py", "def f():\n    from pyspark.sql import Row"),
        ("index/x.py", "import state"),
        ("state/x.py", "import tagstream.index.family.bloom"),
        ("state/x.py", "if TYPE_CHECKING:\n    from tagstream.streaming.tag.tag import tag"),
        ("bootstrap/x.py", "import importlib\nimportlib.import_module('tagstream.streaming.job.query')"),
        ("streaming/x.py", "import run_stream"),
        ("streaming/x.py", "from tagstream.admin.command.cli import parser"),
        ("admin/x.py", "from pyspark.sql import SparkSession"),
        ("admin/x.py", "import rocksdict"),
        ("streaming/x.py", "from kafka import KafkaConsumer"),
        ("streaming/x.py", "from tests.support import events"),
        ("streaming/x.py", "from . import query"),
        ("streaming/decode/x.py", "import pyspark"),
    ],
)
def test_an_upward_import_is_found(path: str, source: str) -> None:
    assert len(problems_of(path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("index/x.py", "from tagstream.table.keys.keys import KeyGenerator"),
        ("state/x.py", "import rocksdict"),
        ("bootstrap/x.py", "from tagstream.state.durable.snapshot import ingest"),
        (
            "streaming/x.py",
            "from pyspark.sql import DataFrame\nfrom tagstream.state.tag.tag_group import tag_key_group",
        ),
        (
            "admin/x.py",
            "from tagstream.state.durable.bulk_load import bulk_load\nfrom tagstream.streaming.recovery.takeover import Takeover",
        ),
        ("bench/x.py", "import streaming, tests.support.events, kafka"),
    ],
)
def test_a_downward_import_is_fine(path: str, source: str) -> None:
    assert problems_of(path, source) == []
