"""Which calls of a source reach files by a path: a table's and a checkpoint's must go through a storage instead."""

from __future__ import annotations

import ast

_OS = frozenset(
    "open link symlink rename renames replace unlink remove removedirs makedirs mkdir mkfifo rmdir listdir scandir stat "
    "lstat walk fwalk truncate utime chmod chown access readlink".split()
)
_OS_PATH = frozenset("exists lexists isfile isdir islink getsize getmtime getatime getctime samefile realpath".split())
# Methods of pathlib.Path that nothing else here has; the second group only without arguments.
_PATH = frozenset(
    "read_text write_text read_bytes write_bytes iterdir rglob touch hardlink_to symlink_to mkdir unlink rmdir".split()
)
_PATH_BARE = frozenset("exists is_file is_dir stat lstat".split())
_ARROW = frozenset(
    "ParquetFile ParquetWriter ParquetDataset read_metadata read_schema memory_map OSFile LocalFileSystem".split()
)
_PARQUET = frozenset({"pq.read_table", "pq.write_table", "pq.read_pandas", "pq.write_to_dataset"})
_MODULES = frozenset({"shutil", "tempfile", "glob", "fileinput", "mmap"})


def file_calls(source: str) -> set[str]:
    """Names of these calls, and of modules that are for nothing else."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] in _MODULES}
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            found |= {f"{module}.{alias.name}" for alias in node.names if module in _MODULES}
            found |= {f"os.{alias.name}" for alias in node.names if module == "os" and alias.name in _OS}
            found |= {f"os.path.{alias.name}" for alias in node.names if module == "os.path" and alias.name in _OS_PATH}
        elif isinstance(node, ast.Call):
            name = _called(node)
            if name is not None:
                found.add(name)
    return found


def _called(node: ast.Call) -> str | None:
    what = node.func
    if isinstance(what, ast.Name):
        return what.id if what.id == "open" or what.id in _ARROW else None
    if not isinstance(what, ast.Attribute):
        return None
    of = ast.unparse(what.value)
    if of == "os" and what.attr in _OS:
        return f"os.{what.attr}"
    if of == "os.path" and what.attr in _OS_PATH:
        return f"os.path.{what.attr}"
    if of in ("io", "builtins", "codecs") and what.attr == "open":
        return f"{of}.open"
    if of.startswith("Path(") and what.attr == "open":
        return "Path.open"
    if what.attr in _ARROW:
        return what.attr
    if f"{of}.{what.attr}" in _PARQUET:
        return f"{of}.{what.attr}"
    bare = not node.args and not node.keywords
    if what.attr in _PATH or (what.attr in _PATH_BARE and bare):
        return f"Path.{what.attr}"
    return None
