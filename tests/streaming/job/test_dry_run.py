"""`--dry-run`: says what a start would do, starts no Spark and changes nothing."""

from __future__ import annotations

import io
import json
import os
import shutil
from pathlib import Path

import pytest
from pyspark import SparkContext

from tagstream.streaming.job.dry_run import Page
from tagstream.streaming.job.main import main
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ, TableConfig
from tests.support import events as ev
from tests.support.table_version import table_version
from tests.table.reference import expected, unpack
from tests.table.writer import Writer, row


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark context that is asked for fails the test; the shared session of other tests may be there."""

    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(SparkContext, "__init__", never)
    monkeypatch.setattr(SparkContext, "getOrCreate", never)


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and modification time of everything in a folder."""
    paths = [Path(at, name) for at, folders, names in os.walk(folder) for name in [*folders, *names]]
    return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in paths}


def dry(folder: Path, table: Path, capsys: pytest.CaptureFixture[str], *more: str, code: int = 0) -> dict[str, str]:
    """What is said, by name (the last of several); nothing in the folder may have changed."""
    before = tree(folder)
    argv = ["--dry-run", "--target-base-path", str(table), "--checkpoint-dir", str(folder / "c"), *more]
    assert main(argv) == code
    assert tree(folder) == before
    lines = capsys.readouterr().out.splitlines()
    return {"title": lines[0], **dict(line.split(": ", 1) for line in lines[1:])}


@pytest.mark.parametrize("name", ["cow_v6_complexkey_replace", "mor_v6_compaction_pending", "cow_v9_defaults_alltypes"])
def test_what_a_load_would_read(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base_path = unpack(name, tmp_path)
    records = expected(base_path)["records"]
    said = dry(tmp_path, base_path, capsys, "--bootstrap-only")
    assert said["title"] == f"table {name} at {base_path}"
    assert said["would do"] == "load the index from the table, then end"
    assert said["newest commit"] == HoodieTable.open(str(base_path)).timeline().newest_completed
    assert int(said["partitions"]) == len({r["_hoodie_partition_path"] for r in records})
    if name.startswith("cow"):
        assert said["keys expected"] == f"{len(records)} in base files"
        assert int(said["file slices"]) == len({r["file_id"] for r in records})
        assert said["files to read"].split(" ")[0] == said["file slices"]
    else:
        assert "logs have" in said["keys expected"]
        assert "compaction requested" in said["pending instants"]
    assert "a stream" not in said
    if "replace" in name:
        assert "file groups" in said["left out"] or "replaced by instant" in said["left out"]


def test_what_would_be_left_out_and_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base_path = unpack("cow_v6_global_bloom_moves", tmp_path)
    sorted(base_path.glob("p0/*.parquet"))[-1].unlink()
    said = dry(tmp_path, base_path, capsys, "--bootstrap-only", "--hoodie-conf", "index.partition.regex=p[01]", code=1)
    assert said["left out"] == "partition 'p3': index.partition.regex=p[01] leaves it out"
    assert said["missing files"] == "1"
    assert said["missing files (a commit names them)"].startswith("p0/")
    assert said["would do"].startswith("end with an error: files that commits name are missing")
    skip = ["--hoodie-conf", "index.bootstrap.corrupt.files=skip"]
    assert dry(tmp_path, base_path, capsys, "--bootstrap-only", *skip)["would do"].startswith("load the index")


def stream_arguments(folder: Path) -> list[str]:
    (folder / "in").mkdir()
    (folder / "event.avsc").write_text(json.dumps(ev.AVRO_SCHEMA))
    conf = {
        **ev.properties(),
        "hoodie.table.name": "events",
        "hoodie.streamer.source.dfs.root": str(folder / "in"),
        "hoodie.streamer.schemaprovider.source.schema.file": str(folder / "event.avsc"),
    }
    pairs = [part for key, value in conf.items() for part in ("--hoodie-conf", f"{key}={value}")]
    return ["--source-class", "JsonDFSSource", *pairs]


def test_a_stream_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = stream_arguments(tmp_path)
    said = dry(tmp_path, tmp_path / "new", capsys, *argv)
    assert said["would do"] == "make the table (COPY_ON_WRITE), and stream into it with an empty index"
    fields = {"record_key_fields": ("id",), "partition_fields": ("part",), "ordering_fields": ("ts",)}
    config = TableConfig("events", version=table_version(), **fields)
    HoodieTable.create(str(tmp_path / "empty"), config, 0)
    said = dry(tmp_path, tmp_path / "empty", capsys, *argv)
    assert said["would do"] == "load nothing, since the table has no rows; stream"

    source = ["--source-class", "JsonDFSSource", "--hoodie-conf", f"hoodie.streamer.source.dfs.root={tmp_path / 'in'}"]
    writer = Writer.create(tmp_path / "rows", COPY_ON_WRITE)
    writer.write([row(i, f"p{i % 3}", 1) for i in range(60)])
    said = dry(tmp_path, Path(writer.table.base_path), capsys, *source)
    assert (said["would do"], said["keys expected"]) == (
        "load the index from the table, then stream",
        "60 in base files",
    )
    off = ["--hoodie-conf", "index.bootstrap.enabled=false"]
    assert "end with an error" in dry(tmp_path, Path(writer.table.base_path), capsys, *source, *off, code=1)["would do"]

    bucketed = unpack("mor_v6_bucket", tmp_path)
    assert "it is bucketed" in dry(tmp_path, bucketed, capsys, *source, code=1)["would do"]
    assert (
        main(["--dry-run", "--bootstrap-only", "--target-base-path", str(tmp_path / "no"), "--checkpoint-dir", "/c"])
        == 1
    )


def test_a_checkpoint_that_has_the_index_or_part_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = Writer.create(tmp_path, MERGE_ON_READ).with_options(inserts_to_base_files=False)
    writer.write([row(i, "p0", 1) for i in range(5)])
    table = Path(writer.table.base_path)
    (tmp_path / "c" / "tagstream").mkdir(parents=True)
    shutil.copy(Path(__file__), tmp_path / "c" / "notes")  # what it does not know does not matter
    said = dry(tmp_path, table, capsys, "--bootstrap-only")
    assert said["would do"] == "load the index from the table, then end"
    assert "logs have 5 records and 0 deletes" in said["keys expected"]


def test_a_terminal_gets_a_table_and_the_first_of_a_list() -> None:
    page = Page("table t")
    page.row("bytes", "5 [MiB]")
    page.list("left out", [f"file {n}" for n in range(40)])
    plain, shown = io.StringIO(), io.StringIO()
    page.write(plain)
    assert plain.getvalue().splitlines() == ["table t", "bytes: 5 [MiB]", *(f"left out: file {n}" for n in range(40))]
    page.write(shown, terminal=True)
    assert "5 [MiB]" in shown.getvalue()
    assert "file 29" in shown.getvalue() and "file 30" not in shown.getvalue()
    assert "and 10 more" in shown.getvalue()


def test_whether_a_metadata_table_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base_path = unpack("cow_v9_defaults_alltypes", tmp_path)
    said = dry(tmp_path, base_path, capsys, "--bootstrap-only")
    assert said["metadata table"].endswith("(a stream keeps it in sync)")
    said = dry(tmp_path, base_path, capsys, "--bootstrap-only", "--hoodie-conf", "hoodie.metadata.enable=false")
    assert said["metadata table"].endswith("(a stream drops it: hoodie.metadata.enable is false)")
