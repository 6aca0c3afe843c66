"""Imports go one way, from package to package. A package is a folder with the files that are in it.

Read from the sources, so an import that never runs (under TYPE_CHECKING, inside a function) counts too.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.packages import PARTS, PRODUCT, circles, imported_modules, name_of, read_packages
from tests.support.paths import PACKAGE, ROOT

# What each package may import beside itself. `x/*` is a package with all its packages. bench and tests may import anything.
MAY_IMPORT: dict[str, str] = {
    "table": "",
    "table/keys": "table",
    "table/storage": "table",
    "table/schema": "table table/storage",
    "table/timeline": "table table/storage",
    "table/locks": "table table/storage",
    "streaming": "table/*",
    "table/file_group": "table table/storage table/schema table/timeline",
    "table/history": "table table/storage table/timeline table/file_group",
    "table/meta_client": "table table/keys table/storage table/timeline table/file_group table/history",
    "table/buckets": "table table/keys table/storage table/timeline table/file_group table/meta_client",
    "table/metadata": "table table/keys table/storage table/schema table/timeline table/file_group table/history "
    "table/meta_client",
    "table/read": "table table/keys table/storage table/schema table/timeline table/file_group table/meta_client "
    "table/buckets table/metadata",
    "index": "table/*",
    "catalog": "table table/schema table/storage table/timeline table/file_group table/meta_client",
    "streaming/options/keys": "table",
    "table/write": "table table/storage table/schema table/timeline table/file_group table/meta_client table/metadata",
    "state": "table/*",
    "bootstrap": "table/* state",
    "streaming/source/decode": "table/* streaming state",
    "table/services": "table table/keys table/locks table/storage table/schema table/timeline table/file_group "
    "table/history table/meta_client table/buckets table/metadata table/read table/write",
    "streaming/options": "table/* catalog streaming index state streaming/options/keys streaming/source/decode",
    "streaming/source": "table/* streaming state streaming/source/decode streaming/options",
    "streaming/batch": "table/* streaming index state bootstrap streaming/source/decode streaming/options streaming/source",
    "streaming/monitor": "table/* state bootstrap streaming/options streaming/source streaming/batch",
    "streaming/recovery": "table/* streaming state bootstrap streaming/source/decode streaming/options streaming/source "
    "streaming/batch",
    "streaming/services": "table/* catalog streaming bootstrap streaming/options streaming/batch streaming/recovery",
    "streaming/job": "table/* catalog streaming index streaming/options/keys state bootstrap streaming/source/decode "
    "streaming/options streaming/source streaming/batch streaming/monitor streaming/recovery "
    "streaming/services",
    "cli": "table/* catalog streaming state bootstrap streaming/source/decode streaming/options streaming/source "
    "streaming/batch streaming/monitor streaming/recovery streaming/job",
}
SHARED = "spark_release.py"  # beside the packages: which Spark this is, for all that use Spark
FILES_A_PACKAGE = 30
LINES_A_FILE = 400
# Files that are longer, and why they are not cut.
LONGER: dict[str, str] = {}

# Third-party clients and the only places that may import them (a place is a path prefix; bench and tests are free).
WITH_SPARK = ("bootstrap/", "index/", "streaming/", "run_stream.py")
CLIENTS: dict[str, tuple[str, ...]] = {
    "rocksdict": ("state/",),
    "kafka": (),
    "happybase": ("index/hbase_client.py",),
    "boto3": ("catalog/glue.py", "table/locks/dynamodb.py"),
    "kazoo": ("table/locks/zookeeper.py",),
    "thriftpy2": ("catalog/hive_metastore.py", "index/hbase_client.py"),
    "google": ("streaming/source/decode/proto_schema.py", "streaming/source/decode/protobuf.py"),
    "ptars": ("streaming/source/decode/protobuf.py",),
    "isal": ("table/metadata/",),
    "google_crc32c": ("table/metadata/",),
    "xxhash": ("table/metadata/", "table/locks/opened.py"),
    "obstore": ("table/storage/object_",),
    "hdfs_native": ("table/storage/hdfs_",),
    "pyspark": (*WITH_SPARK, "spark_release.py"),
}
# Parts of streaming/ that are plain Arrow and Python, usable and testable without a JVM.
WITHOUT_SPARK = (
    "streaming/source/decode/",
    "streaming/source/file_",
    "streaming/batch/quarantine.py",
    "streaming/options/",
)
ROOTS = frozenset(PARTS) | {"tests", "run_stream"}


def allowed(package: str) -> frozenset[str]:
    """The packages that a package may import, itself among them."""
    found = {package}
    for name in MAY_IMPORT[package].split():
        base = name.removesuffix("/*")
        found |= {name} if base == name else {r for r in MAY_IMPORT if r == base or r.startswith(f"{base}/")}
    return frozenset(found)


def package_of(module: str, packages: frozenset[str]) -> str | None:
    """The package of a module of ours (``tagstream.table.write.commit``); None for others'."""
    if not module.startswith("tagstream."):
        return None
    parts = module.split(".")[1:]
    paths = ["/".join(parts[:n]) for n in range(len(parts), 0, -1)]
    return next((p for p in paths if p in packages), None)


def problems_of(path: str, source: str) -> list[str]:
    """What the file at `path` (``packages.name_of``) imports against the rules, in words."""
    package = path.rpartition("/")[0]
    if package.split("/")[0] not in PRODUCT and path not in ("run_stream.py", SHARED):
        return []
    packages = frozenset(MAY_IMPORT)
    found = set()
    for module in imported_modules(source):
        top = module.split(".", 1)[0]
        target = package_of(module, packages)
        if module == ".":
            found.add(f"{path}: relative import; name the package")
        elif module == "tagstream":
            found.add(f"{path}: imports the package, which leads to everything; name a module, as tagstream.version")
        elif top in ROOTS:
            found.add(f"{path}: imports {top}: the product is imported as tagstream.*, bench and tests never")
        elif path == SHARED and target is not None:
            found.add(f"{path}: imports {target}: it knows Spark alone")
        elif module == "tagstream.spark_release" and not path.startswith(WITH_SPARK):
            found.add(f"{path}: imports {module}, but this part works without Spark")
        elif target is not None and package and target not in allowed(package):
            found.add(f"{path}: imports {target}, which {package} may not")
        elif top in CLIENTS and not path.startswith(CLIENTS[top]):
            found.add(f"{path}: imports {top}, which belongs to {CLIENTS[top] or 'tests and bench'}")
        elif (top == "pyspark" or module == "tagstream.spark_release") and path.startswith(WITHOUT_SPARK):
            found.add(f"{path}: imports {top}, but this part works without Spark")
    return sorted(found)


def product_files() -> list[Path]:
    """Every Python source of the product, run_stream.py included."""
    return [*sorted(PACKAGE.rglob("*.py")), ROOT / "run_stream.py"]


def test_imports_go_one_way() -> None:
    files = product_files()
    assert len(files) > 100, "few sources found: the test looks in the wrong folder"
    assert [p for f in files for p in problems_of(name_of(f), f.read_text("utf-8"))] == []


def test_no_packages_import_each_other() -> None:
    assert circles(read_packages()) == []


def test_the_rules_themselves_have_no_circle() -> None:
    for package in MAY_IMPORT:
        assert [other for other in allowed(package) - {package} if package in allowed(other)] == [], package


def test_every_package_has_its_rule_and_its_line_in_the_map() -> None:
    packages = {name for name in read_packages() if name.split("/")[0] in PRODUCT}
    assert packages == set(MAY_IMPORT)
    lines = set(re.findall(r"^\| `([a-z_/]+)/` \|", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), flags=re.M))
    assert packages - lines == set()


def test_packages_and_files_stay_small() -> None:
    packages = [package for package in read_packages().values() if package.name.split("/")[0] in PRODUCT]
    assert {package.name: len(package.files) for package in packages if len(package.files) > FILES_A_PACKAGE} == {}
    long = {name: lines for package in packages for name, lines in package.files.items() if lines > LINES_A_FILE}
    assert {name: lines for name, lines in long.items() if name not in LONGER} == {}
    assert set(LONGER) - set(long) == set(), "these are short enough now: take them out of LONGER"


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("table/write/x.py", "from tagstream.state.codec import decode"),
        ("table/write/x.py", "from tagstream.table.services import rollback"),
        ("table/timeline/x.py", "import tagstream.table.read.snapshot"),
        ("table/x.py", "import rocksdict"),
        ("table/x.py", "def f():\n    from pyspark.sql import Row"),
        ("index/x.py", "import tagstream.state"),
        ("state/x.py", "import tagstream.index.bloom"),
        ("state/x.py", "if TYPE_CHECKING:\n    from tagstream.streaming.batch.tag import tag"),
        ("bootstrap/x.py", "import importlib\nimportlib.import_module('tagstream.streaming.job.query')"),
        ("streaming/x.py", "import run_stream"),
        ("streaming/x.py", "import tagstream"),
        ("streaming/recovery/x.py", "from tagstream.streaming.job.sink import BatchSink"),
        ("streaming/x.py", "from tagstream.cli.parser import parser"),
        ("cli/x.py", "from pyspark.sql import SparkSession"),
        ("cli/x.py", "import rocksdict"),
        ("cli/x.py", "from tagstream.spark_release import RELEASE"),
        ("streaming/options/x.py", "from tagstream.spark_release import RELEASE"),
        ("spark_release.py", "from tagstream.state.layout import key_group"),
        ("streaming/x.py", "from kafka import KafkaConsumer"),
        ("streaming/x.py", "from tests.support import events"),
        ("streaming/x.py", "from table.keys.keys import KeyGenerator"),
        ("streaming/x.py", "from . import query"),
        ("streaming/source/decode/x.py", "import pyspark"),
    ],
)
def test_an_import_against_the_rules_is_found(path: str, source: str) -> None:
    assert len(problems_of(path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("index/x.py", "from tagstream.table.keys.keys import KeyGenerator"),
        ("state/x.py", "import rocksdict"),
        ("bootstrap/x.py", "from tagstream.state.snapshot_and_deltas import ingest"),
        ("streaming/batch/x.py", "from pyspark.sql import DataFrame\nfrom tagstream.state.tag import tag_group"),
        (
            "cli/x.py",
            "from tagstream.state import bulk_load\nfrom tagstream.streaming.recovery import cover",
        ),
        ("bench/x.py", "import tagstream, tests.support.events, kafka"),
    ],
)
def test_an_import_by_the_rules_is_fine(path: str, source: str) -> None:
    assert problems_of(path, source) == []
