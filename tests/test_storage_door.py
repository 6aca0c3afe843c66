"""One door to files: nothing but ``table/storage/`` reaches a file by its path, but for what is on this machine only."""

from __future__ import annotations

import pytest

from tests.support.file_calls import file_calls
from tests.support.packages import name_of
from tests.test_layers import product_files

DOOR = "table/storage/"
# Who else does, with which calls, and why that is no file of a table or a checkpoint.
LOCAL: dict[str, tuple[str, str]] = {
    "state/scratch.py": (
        "Path.exists Path.iterdir Path.lstat Path.mkdir Path.rmdir Path.stat open os.listdir os.makedirs "
        "os.path.exists os.path.getsize os.path.isdir os.replace os.unlink shutil tempfile",
        "scratch files on the executor's own disk; the local stores' folder, made for one user alone",
    ),
    "state/rocks_store.py": (
        "open os.makedirs os.open os.path.exists os.unlink",
        "the lock files of local stores; RocksDB's own folder",
    ),
    "state/local_store.py": ("os.listdir os.lstat os.rename os.stat", "local stores that nobody opens any more"),
    "table/file_group/base_file.py": ("ParquetFile ParquetWriter", "given a storage's streams"),
    "table/file_group/log_file.py": ("ParquetFile ParquetWriter", "in memory"),
    "table/timeline/lease.py": ("open os.readlink", "/proc: who is alive, who stands still; /proc: who is alive"),
    "table/services/merged_rows.py": (
        "memory_map os.unlink tempfile",
        "log rows that memory has no room for, on the executor's own disk",
    ),
    "table/timeline/avro_timeline.py": ("Path.read_text", "schemas that are part of the program"),
    "table/history/lsm.py": ("ParquetFile", "given a storage's streams"),
    "table/history/lsm_write.py": ("ParquetWriter", "given a storage's streams"),
    "streaming/process.py": ("Path.read_text os.open", "a drill's clock; a drill's note of the crash"),
    "streaming/options/transformer_options.py": ("Path.read_text", "the SQL file, on the machine of the driver"),
    "streaming/source/transformation.py": ("Path.read_text", "the schema file, on the machine of the driver"),
    "streaming/options/proto_options.py": ("Path.read_bytes", "the file of descriptors, on the machine of the driver"),
    "streaming/options/resolve.py": ("Path.read_text", "a list that is part of the program"),
    "streaming/options/cli.py": ("Path.read_text", "the properties file"),
    "streaming/options/unsupported_report.py": ("Path.read_text", "two schema files compared"),
    "streaming/options/checks.py": ("os.path.realpath", "folders that must not lie in one another: names only"),
    "streaming/job/environment.py": ("shutil", "Java, on the PATH"),
    "streaming/job/schema_match.py": ("Path.read_text", "the schema file"),
    "streaming/job/restart.py": ("os.stat", "whether the schema file has changed"),
    "streaming/job/failure.py": ("Path.is_file", "log4j2's configuration, beside the program or in its zip"),
    "streaming/job/workers.py": ("os.path.exists", "the workers' Python"),
    "streaming/job/session.py": ("Path.exists os.access", "log4j2's configuration, the folder of the workers' sockets"),
    "streaming/copy_print.py": ("open os.walk", "the program's own sources"),
    "streaming/source/jars.py": (
        "Path.exists Path.is_dir Path.is_file Path.mkdir Path.read_bytes Path.read_text Path.unlink "
        "os.access os.chmod os.replace tempfile",
        "the jars' folder; lists that are part of the program",
    ),
    "streaming/source/connector.py": (
        "Path.is_dir Path.is_file Path.mkdir Path.read_bytes Path.write_bytes shutil tempfile",
        "Kafka's jars",
    ),
    "streaming/source/task_files.py": (
        "OSFile memory_map os.makedirs shutil",
        "rows between two steps, on the disk of the host of all tasks",
    ),
    "streaming/source/source_checks.py": (
        "os.access os.path.exists os.path.isdir",
        "the source's folder, which Spark reads",
    ),
    "streaming/source/record_settings.py": ("Path.read_text", "the schema file"),
    "streaming/source/decode/file_rows.py": ("read_schema", "a schema in a batch's metadata, in memory"),
    "streaming/source/file_parquet.py": ("ParquetFile", "given a storage's streams"),
    "streaming/monitor/watch.py": ("os.readlink", "where standard error goes"),
    "cli/record_files.py": ("ParquetFile Path.is_dir Path.is_file Path.stat os.walk", "the source's files"),
    "cli/main.py": ("os.open", "/dev/null"),
    "cli/fetch_jars.py": ("Path.stat", "the jars' folder"),
    "cli/table_page.py": ("open os.replace os.unlink", "the page that is written"),
    "cli/quarantine.py": ("open os.open", "the file that a value is written to"),
    "cli/output.py": ("os.link os.path.exists os.path.lexists os.unlink", "the file of --out"),
    "cli/table_changes.py": ("ParquetWriter", "the file of changes"),
    "cli/index_export.py": ("ParquetFile ParquetWriter os.path.getsize", "the file that is exported or imported"),
}


def test_files_are_reached_through_the_storage_only() -> None:
    found = {}
    for file in product_files():
        path = name_of(file)
        if not path.startswith(DOOR) and (calls := file_calls(file.read_text("utf-8"))):
            found[path] = " ".join(sorted(calls))
    wanted = {path: calls for path, (calls, _) in LOCAL.items()}
    assert {p: c for p, c in found.items() if p not in wanted} == {}, "use table/storage/, or say why these are local"
    assert found == wanted, "calls that came or went"


@pytest.mark.parametrize(
    ("source", "call"),
    [
        ("open(path)", "open"),
        ("with open(path, 'rb') as f:\n    f.read()", "open"),
        ("import io\nio.open(path)", "io.open"),
        ("import os\nos.open(path, 0)", "os.open"),
        ("import os\nos.link(a, b)", "os.link"),
        ("import os\nos.replace(a, b)", "os.replace"),
        ("import os\ndef f():\n    return os.path.exists(a)", "os.path.exists"),
        ("from os import rename", "os.rename"),
        ("from os.path import getsize", "os.path.getsize"),
        ("import shutil", "shutil"),
        ("from tempfile import mkdtemp", "tempfile.mkdtemp"),
        ("Path(a).read_text()", "Path.read_text"),
        ("Path(a, b).write_bytes(data)", "Path.write_bytes"),
        ("(folder / 'x').mkdir(parents=True)", "Path.mkdir"),
        ("path.unlink()", "Path.unlink"),
        ("path.exists()", "Path.exists"),
        ("Path(a).open('rb')", "Path.open"),
        ("import pyarrow.parquet as pq\npq.ParquetFile(path)", "ParquetFile"),
        ("import pyarrow.parquet as pq\npq.read_table(path)", "pq.read_table"),
        ("pa.memory_map(path)", "memory_map"),
    ],
)
def test_a_way_around_the_door_is_found(source: str, call: str) -> None:
    assert file_calls(source) == {call}


@pytest.mark.parametrize(
    "source",
    [
        "storage.exists('a')",
        "storage.replace(rel, data)",
        "storage.delete(rel)\nstorage.list(rel)\nstorage.names('')",
        "import os\nos.path.join(a, b)\nos.getpid()",
        "with storage.open_output(rel) as out:\n    out.write(b'')",
        "storage.open_input(rel)",
        "text.replace('a', 'b')\nrecord.rename({})",
    ],
)
def test_what_goes_through_it_is_fine(source: str) -> None:
    assert file_calls(source) == set()
