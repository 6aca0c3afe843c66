"""Names that docstrings quote (``like_this``, `like_this`, :func:`like_this`), and whether each exists.

A quoted text is a name when it is an identifier, a dotted name, a call without arguments, a property key or a path. Other
quoted texts (values, expressions, examples) are not checked.

A name exists when it is one of these:

- an identifier or a string of the same file: a definition, an argument, an attribute, a step, a JSON member
- a module of the package, a definition in one, or a member of a class of the package
- a key or a flag of the job, or another whole string of the package, such as a table property
- a file of the repository
- a word of Python
- a name of another program in :data:`OUTSIDE`
"""

from __future__ import annotations

import ast
import builtins
import keyword
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.support.paths import PACKAGE, ROOT

# Names that the package does not have, by their origin: why a docstring quotes them.
OUTSIDE: dict[str, frozenset[str]] = {
    origin: frozenset(names.split())
    for origin, names in {
        "classes and functions of Hudi, as the source of a fact": (
            "BaseConsistentHashingBucketClusteringPlanStrategy BucketIdentifier.java "
            "ConsistentBucketIdentifier ConsistentBucketIndexUtils.loadMetadata "
            "ConsistentHashingNode.toJsonString HBasePutBatchSizeCalculator.getBatchSize "
            "HoodieHBaseIndexConfig HoodieIndex.java KeyGenUtils.extractRecordKeysByFields "
            "PartitionBucketIndexHashingConfig PartitionPathEncodeUtils.escapeFileName ProtoConversionUtil RegexRuleEngine "
            "SchemaChangeUtils.isTypeUpdateAllow SparkHoodieHBaseIndex checkIfValidCommit "
            "partition_bucket_index_manager"
        ),
        "members and properties of Hudi that this writer does not use by their whole name": (
            "partitionDepth ordering.fields hoodie.schema.on.read.enable hoodie.streamer.ingestion.targetBasePath"
        ),
        "Spark's functions that the code does not call": (
            "DataStreamWriter.trigger PandasCogroupedOps.applyInArrow applyInPandasWithState mapInArrow pyspark.daemon"
        ),
        "Hadoop's classes and settings": "FileContext FileSystem ProxyLocalFileSystem dfs.replication",
        "Java's methods": (
            "Double.toString Float.toString List.hashCode String.hashCode java.lang.Double.compare toString"
        ),
        "Kafka's isolation level": "read_committed",
        "a function of Spark's SQL, and a header whose name is put together": "crc32 tagstream.id",
        "the interpreter on the PATH": "python3",
        "examples of names and values": (
            "a.b a_b outer.inner database.schema.table k1 nr P R006 fs.s3a.bucket.NAME.endpoint "
            "hoodie.streamer.transformer.sql.ID C/tagstream/source_table.json R/tagstream/takeover.json"
        ),
        "prefixes and suffixes of names": "_hoodie_ _p90 own_",
    }.items()
}
# Files of the timeline: an instant (T, its completion time C, or a rollback or restore R), an action, a state.
_TIMELINE = re.compile(r"(?:T|T_C|R)(?:\.[a-z]+){1,2}")
_QUOTED = re.compile(r"(?::(?P<role>\w+):)?(?:``(?P<two>[^`]+)``|`(?P<one>[^`\n]+)`)")
_ROLES = frozenset({"func", "meth", "class", "attr", "data", "mod"})
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:\(\))?")
_KEY = re.compile(r"(?:hoodie|tagstream)\.[\w.-]+(?:\.\*|\.)?")
_PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*/?[\w-]*\.(?:py|md|json|txt|toml|tsv|jsonl)|(?:[\w-]+/)+")
_NOT_NAMED = ("__pycache__", "fixtures")  # folders whose files no docstring names
_BETWEEN = re.compile(r"[\s,;:=|()'\"/]+")
_FOLDERS = ("bench", "conf", "docs", "examples", "tagstream", "tests")


@dataclass(frozen=True)
class Quoted:
    """A name in a docstring: ``role`` is empty without one; ``line`` is that of the docstring's owner."""

    text: str
    role: str
    line: int


@dataclass
class Defined:
    """Names of one module: ``top`` level, ``members`` by class, all ``identifiers`` and ``strings``.

    ``docstrings``: the docstrings with the lines of their owners.
    """

    top: set[str] = field(default_factory=set)
    members: dict[str, set[str]] = field(default_factory=dict)
    identifiers: set[str] = field(default_factory=set)
    strings: set[str] = field(default_factory=set)
    docstrings: list[tuple[int, str]] = field(default_factory=list)


def quoted_names(source: str) -> Iterator[Quoted]:
    """The quoted texts of a source's docstrings that are names."""
    for line, text in defined(source).docstrings:
        for found in _QUOTED.finditer(text):
            role = found["role"] or ""
            name = (found["two"] or found["one"]).strip()
            if role in _ROLES or _NAME.fullmatch(name) or _KEY.fullmatch(name) or _PATH.fullmatch(name):
                yield Quoted(name.removesuffix("()"), role, line)


@cache
def defined(source: str) -> Defined:
    """What a source defines, uses and documents."""
    tree, found = ast.parse(source), Defined()
    found.top |= _names_of(tree.body)
    _collect(tree, None, found)
    return found


def _collect(node: ast.AST, members: set[str] | None, found: Defined) -> None:
    """Add a node and those below it; ``members`` are those of the class that it is in."""
    children = ast.iter_child_nodes(node)
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        text = ast.get_docstring(node)
        if text is not None:
            found.docstrings.append((getattr(node, "lineno", 1), text))
            children = (child for child in children if child is not node.body[0])
    if isinstance(node, ast.ClassDef):
        members = found.members.setdefault(node.name, set())
        members |= _names_of(node.body)
    elif isinstance(node, ast.Attribute) and members is not None and _is_self(node):
        members.add(node.attr)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
        found.strings.add(node.value if isinstance(node.value, str) else node.value.decode("latin-1"))
    found.identifiers |= _identifiers(node)
    for child in children:
        if not isinstance(child, ast.expr_context | ast.operator | ast.cmpop | ast.boolop | ast.unaryop):
            _collect(child, members, found)


def _is_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def _names_of(body: Iterable[ast.stmt]) -> set[str]:
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {t.id for target in targets for t in ast.walk(target) if isinstance(t, ast.Name)}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.If | ast.Try):
            found |= _names_of(node.body)
    return found


def _identifiers(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Attribute):
        return {node.attr}
    if isinstance(node, ast.arg | ast.keyword):
        return {node.arg} if node.arg else set()
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {node.name}
    if isinstance(node, ast.alias):
        return {*node.name.split("."), node.asname or node.name}
    return set()


@dataclass
class Package:
    """All modules of the package by dotted name, and what is known of the rest of the repository."""

    modules: dict[str, Defined]
    files: frozenset[str]

    def __post_init__(self) -> None:
        self.strings = {text for found in self.modules.values() for text in found.strings}
        self.ends = {text.rpartition("/")[2] for text in self.strings if "/" in text}
        self.classes: dict[str, set[str]] = {}
        self.names: set[str] = set()
        self.by_end: dict[str, list[Defined]] = {}
        for module, found in self.modules.items():
            parts = module.split(".")
            self.names |= found.top | {*parts}
            for start in range(len(parts)):
                self.by_end.setdefault(".".join(parts[start:]), []).append(found)
            for name, members in found.members.items():
                self.classes.setdefault(name, set()).update(members)
        self.members = {name for members in self.classes.values() for name in members}
        self.names |= self.members

    def unknown(self, source: str) -> list[Quoted]:
        """The names in a source's docstrings that do not exist."""
        own = defined(source)
        words = {word for text in own.strings for word in _BETWEEN.split(text)} | own.strings
        return [
            found
            for found in quoted_names(source)
            if not self._is_code(found.text, own) and (found.role or not self._is_text(found.text, words))
        ]

    def _is_code(self, name: str, own: Defined) -> bool:
        """Whether a name is in the file, or is a module, a definition in one, or a member of a class."""
        *path, last = name.removeprefix("tagstream.").split(".")
        if not path:
            return last in own.identifiers or last in self.names
        if name.startswith("tagstream.") and len(path) == 1 and last in self.modules[""].top:
            return True
        if ".".join((*path, last)) in self.by_end or any(
            last in found.top for found in self.by_end.get(".".join(path), ())
        ):
            return True
        if any(last in found.members.get(path[-1], ()) for found in self.by_end.get(".".join(path[:-1]), ())):
            return True
        if path[-1] in self.classes:
            return last in self.classes[path[-1]]
        return path[0] in own.identifiers and (last in own.identifiers or last in self.members)

    def _is_text(self, name: str, words: set[str]) -> bool:
        """Whether a name is a string of the file or the package, a key, a file, or from outside."""
        wanted = name.rstrip("/")
        if wanted in words or name in self.strings or name in self.ends or name in _PYTHON:
            return True
        if _KEY.fullmatch(name) and any(text.startswith(f"{name.rstrip('*.')}.") for text in self.strings):
            return True
        if _TIMELINE.fullmatch(name) or any(name in names for names in OUTSIDE.values()):
            return True
        return bool(_PATH.fullmatch(name)) and any(f"/{wanted}/" in f"/{file}/" for file in self.files)


_PYTHON = frozenset({*dir(builtins), *keyword.kwlist, *keyword.softkwlist})


def files_of(root: Path) -> frozenset[str]:
    """Paths of the repository's files, relative to its root."""
    found = {path.name for path in root.iterdir() if path.is_file()}
    for folder in _FOLDERS:
        for path, folders, names in os.walk(root / folder):
            folders[:] = [name for name in folders if name not in _NOT_NAMED]
            found |= {f"{os.path.relpath(path, root)}/{name}" for name in names}
    return frozenset(found)


@cache
def the_package() -> Package:
    """The package ``tagstream`` of this checkout."""
    modules = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix().removesuffix(".py").removesuffix("__init__").rstrip("/")
        name = name.replace("/", ".")
        modules[name] = defined(path.read_text("utf-8"))
    return Package(modules, files_of(ROOT))
