"""Imports go one way, from room to room: a room is a folder, the files in a package's own folder are its ground.

Read from the sources, so an import that never runs (under TYPE_CHECKING, inside a function) counts too.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.paths import PACKAGE, ROOT
from tests.support.rooms import PARTS, PRODUCT, circles, imported_modules, name_of, read_rooms

# What each room may import beside itself. `x/*` is a package with all its rooms. bench and tests may import anything.
MAY_IMPORT: dict[str, str] = {
    "table": "",
    "table/storage/objects": "table",
    "table/storage/hdfs": "table",
    "table/storage": "table table/storage/objects table/storage/hdfs",
    "table/schema": "table",
    "table/keys": "table",
    "table/timeline": "table table/storage",
    "table/file_group": "table table/storage table/schema table/keys table/timeline",
    "table/file_group/log": "table table/storage table/schema table/file_group",
    "table/timeline/history": "table table/storage table/timeline table/file_group table/file_group/log",
    "table/meta_client": "table table/storage table/keys table/timeline table/timeline/history table/file_group",
    "table/retention": "table table/timeline table/file_group",
    "table/metadata": "table table/storage table/keys table/timeline table/timeline/history table/file_group "
    "table/file_group/log table/meta_client",
    "table/metadata/encode": "table table/schema table/keys table/file_group table/file_group/log table/metadata",
    "table/metadata/write": "table table/storage table/schema table/keys table/timeline table/timeline/history "
    "table/file_group "
    "table/file_group/log table/meta_client table/metadata table/metadata/encode",
    "table/skipping": "table table/storage table/schema table/keys table/timeline table/file_group table/file_group/log "
    "table/meta_client table/metadata",
    "table/read": "table table/storage table/schema table/keys table/timeline table/file_group table/file_group/log "
    "table/meta_client table/skipping",
    "table/write": "table table/storage table/schema table/timeline table/file_group table/file_group/log "
    "table/metadata/encode table/meta_client",
    "table/services": "table table/storage table/schema table/timeline table/file_group table/file_group/log "
    "table/meta_client table/metadata table/metadata/encode table/metadata/write table/read table/write",
    "table/services/compaction": "table table/storage table/schema table/timeline table/file_group table/meta_client "
    "table/metadata table/metadata/encode table/metadata/write table/read table/write table/services",
    "table/services/clustering": "table table/timeline table/file_group table/meta_client table/metadata "
    "table/metadata/encode table/metadata/write table/read table/schema table/write table/services "
    "table/services/compaction",
    "table/services/replacing": "table table/schema table/timeline table/file_group table/meta_client table/metadata "
    "table/metadata/write table/read table/write table/services table/services/compaction",
    "table/services/cleaning": "table table/storage table/timeline table/file_group table/meta_client table/retention "
    "table/metadata table/metadata/write table/write table/services",
    "table/services/archiving": "table table/timeline table/timeline/history table/file_group table/meta_client "
    "table/retention table/metadata/write table/write table/services/cleaning",
    "table/services/restore": "table table/timeline table/timeline/history table/file_group table/meta_client "
    "table/retention table/metadata/write table/write table/services table/services/cleaning",
    "table/services/upgrade": "table table/storage table/timeline table/timeline/history table/file_group "
    "table/meta_client table/metadata table/metadata/encode table/metadata/write table/read table/services "
    "table/services/compaction",
    "index": "table/*",
    "index/hbase": "table/* index",
    "index/family": "table/* index index/hbase",
    "state": "table/*",
    "state/store": "table/* state",
    "state/durable": "table/* state state/store",
    "state/tag": "table/* state state/store state/durable",
    "bootstrap": "table/* state/*",
    "streaming": "table/*",
    "streaming/options/keys/services": "table/*",
    "streaming/options/keys": "table/* index/* streaming/options/keys/services",
    "streaming/options": "table/* index/* streaming streaming/options/keys",
    "streaming/source/decode": "table/* state/* streaming",
    "streaming/source/decode/typed": "table/* state/* streaming streaming/source/decode",
    "streaming/source/decode/messages": "table streaming/source/decode",
    "streaming/source/decode/formats": "table/* state/* streaming streaming/source/decode streaming/source/decode/typed "
    "streaming/source/decode/messages",
    "streaming/source/decode/schemas": "table/* streaming streaming/source/decode streaming/source/decode/formats",
    "streaming/source/files": "table/* streaming",
    "streaming/jars": "streaming",
    "streaming/source": "table/* state/* streaming streaming/jars streaming/options streaming/options/keys "
    "streaming/source/decode streaming/source/decode/formats streaming/source/decode/schemas "
    "streaming/source/decode/messages streaming/source/decode/typed streaming/source/files",
    "streaming/source/transform": "table/* state/* streaming streaming/options streaming/source streaming/source/files "
    "streaming/source/decode streaming/source/decode/typed",
    "streaming/page": "",
    "streaming/progress": "table/* bootstrap streaming streaming/options",
    "streaming/tag": "table/* state/* streaming streaming/source streaming/source/decode",
    "streaming/write": "table/* state/* index streaming streaming/source streaming/source/decode streaming/tag",
    "streaming/metadata": "table/* streaming/options",
    "streaming/batch": "table/* state/* index bootstrap streaming streaming/options streaming/source streaming/metadata "
    "streaming/source/decode streaming/source/files streaming/progress streaming/tag streaming/write",
    "streaming/recovery": "table/* state/* bootstrap streaming streaming/options streaming/source streaming/progress "
    "streaming/batch streaming/source/decode/messages",
    "streaming/services": "table/* bootstrap streaming streaming/options streaming/progress streaming/batch streaming/write "
    "streaming/recovery",
    "streaming/commit": "table/* state/* index/* bootstrap streaming streaming/services streaming/source "
    "streaming/source/decode "
    "streaming/progress streaming/tag streaming/write streaming/batch streaming/metadata streaming/recovery",
    "streaming/dead_letter": "table/* streaming streaming/options streaming/batch streaming/write",
    "streaming/status": "table/* bootstrap streaming streaming/page streaming/progress streaming/batch",
    "streaming/watch": "table/* state/* bootstrap streaming streaming/options streaming/page streaming/progress "
    "streaming/source streaming/batch streaming/write streaming/status",
    "streaming/start": "table/* state/* index/* bootstrap streaming streaming/options streaming/source "
    "streaming/source/decode streaming/source/decode/formats streaming/source/decode/schemas "
    "streaming/source/decode/typed streaming/source/decode/messages streaming/source/files streaming/source/transform "
    "streaming/batch streaming/recovery streaming/dead_letter",
    "streaming/job": "table/* state/* index/* bootstrap streaming streaming/options/* streaming/source/* streaming/progress "
    "streaming/tag streaming/write streaming/batch streaming/metadata streaming/recovery streaming/services "
    "streaming/commit streaming/dead_letter streaming/watch streaming/start",
    "streaming/frame": "table/* index/* bootstrap streaming streaming/options/* streaming/source/* streaming/progress "
    "streaming/start streaming/watch streaming/job",
    "streaming/tables": "table/* streaming streaming/options/* streaming/source/* streaming/start streaming/watch "
    "streaming/job streaming/frame",
    "admin": "table table/meta_client",
    "admin/advise": "table/* state/* streaming/* admin",
    "admin/index": "table/* state/* bootstrap streaming/* admin",
    "admin/table": "table/* state streaming/* admin",
    "admin/page": "table/* bootstrap streaming/* admin admin/index",
    "admin/quarantine": "table/* state/* streaming/* admin",
    "admin/stream": "table/* state/* streaming/* admin admin/quarantine",
    "admin/services": "table/* streaming/* admin",
    "admin/command": "table/* streaming/* admin admin/advise admin/index admin/page admin/table admin/services "
    "admin/quarantine admin/stream",
}
GROUND = "spark_release.py"  # beside the rooms: which Spark this is, for all that use Spark
FILES_A_ROOM = 15
LINES_A_FILE = 400
# Files that are longer, and why they are not cut.
LONGER: dict[str, str] = {}

# Third-party clients and the only places that may import them (a place is a path prefix; bench and tests are free).
WITH_SPARK = ("bootstrap/", "index/", "streaming/", "run_stream.py")
CLIENTS: dict[str, tuple[str, ...]] = {
    "rocksdict": ("state/",),
    "kafka": (),
    "happybase": ("index/hbase/",),
    "isal": ("table/metadata/",),
    "obstore": ("table/storage/objects/",),
    "hdfs_native": ("table/storage/hdfs",),
    "pyspark": (*WITH_SPARK, "spark_release.py"),
}
# Parts of streaming/ that are plain Arrow and Python, usable and testable without a JVM.
WITHOUT_SPARK = (
    "streaming/source/decode/",
    "streaming/source/files/",
    "streaming/write/quarantine.py",
    "streaming/options/",
)
ROOTS = frozenset(PARTS) | {"tests", "run_stream"}


def allowed(room: str) -> frozenset[str]:
    """The rooms that a room may import, itself among them."""
    found = {room}
    for name in MAY_IMPORT[room].split():
        base = name.removesuffix("/*")
        found |= {name} if base == name else {r for r in MAY_IMPORT if r == base or r.startswith(f"{base}/")}
    return frozenset(found)


def room_of(module: str, rooms: frozenset[str]) -> str | None:
    """The room of a module of ours (``tagstream.table.write.commit``); None for others'."""
    if not module.startswith("tagstream."):
        return None
    parts = module.split(".")[1:]
    paths = ["/".join(parts[:n]) for n in range(len(parts), 0, -1)]
    return next((p for p in paths if p in rooms), None)


def problems_of(path: str, source: str) -> list[str]:
    """What the file at `path` (``rooms.name_of``) imports against the rules, in words."""
    room = path.rpartition("/")[0]
    if room.split("/")[0] not in PRODUCT and path not in ("run_stream.py", GROUND):
        return []
    rooms = frozenset(MAY_IMPORT)
    found = set()
    for module in imported_modules(source):
        top = module.split(".", 1)[0]
        target = room_of(module, rooms)
        if module == ".":
            found.add(f"{path}: relative import; name the package")
        elif module == "tagstream":
            found.add(f"{path}: imports the package, which leads to everything; name a module, as tagstream.version")
        elif top in ROOTS:
            found.add(f"{path}: imports {top}: the product is imported as tagstream.*, bench and tests never")
        elif path == GROUND and target is not None:
            found.add(f"{path}: imports {target}: it knows Spark alone")
        elif module == "tagstream.spark_release" and not path.startswith(WITH_SPARK):
            found.add(f"{path}: imports {module}, but this part works without Spark")
        elif target is not None and room and target not in allowed(room):
            found.add(f"{path}: imports {target}, which {room} may not")
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


def test_no_rooms_import_each_other() -> None:
    assert circles(read_rooms()) == []


def test_the_rules_themselves_have_no_circle() -> None:
    for room in MAY_IMPORT:
        assert [other for other in allowed(room) - {room} if room in allowed(other)] == [], room


def test_every_room_has_its_rule_and_its_line_in_the_map() -> None:
    rooms = {name for name in read_rooms() if name.split("/")[0] in PRODUCT}
    assert rooms == set(MAY_IMPORT)
    lines = set(re.findall(r"^\| `([a-z_/]+)/` \|", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), flags=re.M))
    assert rooms - lines == set()


def test_rooms_and_files_stay_small() -> None:
    rooms = [room for room in read_rooms().values() if room.name.split("/")[0] in PRODUCT]
    assert {room.name: len(room.files) for room in rooms if len(room.files) > FILES_A_ROOM} == {}
    long = {name: lines for room in rooms for name, lines in room.files.items() if lines > LINES_A_FILE}
    assert {name: lines for name, lines in long.items() if name not in LONGER} == {}
    assert set(LONGER) - set(long) == set(), "these are short enough now: take them out of LONGER"


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("table/write/x.py", "from tagstream.state.store.codec import decode"),
        ("table/write/x.py", "from tagstream.table.services import rollback"),
        ("table/timeline/x.py", "import tagstream.table.read.snapshot"),
        ("table/x.py", "import rocksdict"),
        ("table/x.py", "def f():\n    from pyspark.sql import Row"),
        ("index/x.py", "import tagstream.state"),
        ("state/x.py", "import tagstream.index.family.bloom"),
        ("state/x.py", "if TYPE_CHECKING:\n    from tagstream.streaming.tag.tag import tag"),
        ("bootstrap/x.py", "import importlib\nimportlib.import_module('tagstream.streaming.job.query')"),
        ("streaming/x.py", "import run_stream"),
        ("streaming/x.py", "import tagstream"),
        ("streaming/recovery/x.py", "from tagstream.streaming.commit.sink import BatchSink"),
        ("streaming/x.py", "from tagstream.admin.command.cli import parser"),
        ("admin/x.py", "from pyspark.sql import SparkSession"),
        ("admin/x.py", "import rocksdict"),
        ("admin/x.py", "from tagstream.spark_release import RELEASE"),
        ("streaming/options/x.py", "from tagstream.spark_release import RELEASE"),
        ("spark_release.py", "from tagstream.state.key_group import key_group"),
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
        ("bootstrap/x.py", "from tagstream.state.durable.snapshot import ingest"),
        ("streaming/tag/x.py", "from pyspark.sql import DataFrame\nfrom tagstream.state.tag import tag_group"),
        (
            "admin/index/x.py",
            "from tagstream.state.durable import bulk_load\nfrom tagstream.streaming.recovery import cover",
        ),
        ("bench/x.py", "import tagstream, tests.support.events, kafka"),
    ],
)
def test_an_import_by_the_rules_is_fine(path: str, source: str) -> None:
    assert problems_of(path, source) == []
