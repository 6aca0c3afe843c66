"""Wrong use, wrong paths and damaged files: one clear line, an exit code, and JSON that is still whole."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tagstream.cli.main import main
from tagstream.state.checkpoint import open_or_create_meta
from tagstream.table.storage.posix import PosixStorage
from tests.cli.running import run_json
from tests.support.paths import ROOT
from tests.support.table_version import timeline_of
from tests.table.reference import unpack
from tests.table.writer import Writer


def fails(capsys: pytest.CaptureFixture[str], code: int, *argv: object) -> str:
    """The one line that a wrong command prints."""
    assert main([str(a) for a in argv]) == code
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("tagstream: error: "), lines
    return lines[0]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["index"], "see tagstream index --help"),
        (["index", "got", "k"], "invalid choice: 'got'"),
        (["index", "get", "k"], "--checkpoint-dir"),
        (["table", "rows"], "--target-base-path"),
        (["table", "rows", "--target-base-path", "t", "--limit", "-1"], "-1 is negative"),
        (["table", "rows", "--target-base-path", "t", "--limt", "1"], "--limt"),
        (["rescale", "--checkpoint-dir", "c", "--target-base-path", "t", "--to-checkpoint-dir", "d"], "--key-groups"),
        (["table", "files", "--target-base-path", "ftp://host/t"], "ftp://"),
    ],
)
def test_wrong_use_is_exit_code_2(capsys: pytest.CaptureFixture[str], argv: list[str], words: str) -> None:
    assert words in fails(capsys, 2, *argv)


def test_a_wrong_partition_or_column_is_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = ("--target-base-path", unpack("mor_v6_parquet_log", tmp_path))
    assert "has no partition 'p9'; it has 'part=p0', 'part=p1'" in fails(
        capsys, 2, "table", "files", *at, "--partition", "p9"
    )
    assert "has no column vers; it has _hoodie_commit_time" in fails(
        capsys, 2, "table", "rows", *at, "--columns", "vers"
    )


def test_a_table_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("timeline", "commits", "files", "rows", "validate"):
        assert "is not a Hudi table" in fails(capsys, 1, "table", command, "--target-base-path", tmp_path)
    assert list(run_json("table", "files", "--target-base-path", tmp_path, code=1)) == ["error"]


def test_a_table_of_a_version_nobody_knows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Writer.create(tmp_path, "COPY_ON_WRITE")
    properties = tmp_path / "t" / ".hoodie" / "hoodie.properties"
    properties.write_text(re.sub(r"(?m)^hoodie.table.version=.*", "hoodie.table.version=99", properties.read_text()))
    assert "has table version 99" in fails(capsys, 1, "table", "timeline", "--target-base-path", tmp_path / "t")


def test_a_damaged_commit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = unpack("cow_v6_global_bloom_moves", tmp_path)
    newest = max(timeline_of(base).glob("*.commit"))
    newest.write_text("{")
    assert f"{newest} is not readable commit metadata" in fails(
        capsys, 1, "table", "commits", "--target-base-path", base
    )


def test_no_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = unpack("cow_v6_global_bloom_moves", tmp_path)
    for argv in (["get", "k"], ["stats"], ["export", "--out", tmp_path / "o"], ["verify", "--target-base-path", base]):
        at = ["index", *argv, "--checkpoint-dir"]
        assert "nowhere does not exist" in fails(capsys, 1, *at, tmp_path / "nowhere")
        assert "is not a checkpoint of Tagstream" in fails(capsys, 1, *at, base)
    assert not (tmp_path / "o").exists()


def empty_checkpoint(folder: Path) -> Path:
    """A checkpoint before its first batch."""
    sizes = {"shuffle_partitions": 2, "key_groups": 4}
    given = {**sizes, "stream_id": "s", "ordering": "int64", "global_index": True}
    open_or_create_meta(PosixStorage(str(folder / "c")), **given, table_name="t", table_path="/t")  # type: ignore[arg-type]
    return folder / "c"


def test_a_checkpoint_before_its_first_batch(tmp_path: Path) -> None:
    at = ("--checkpoint-dir", empty_checkpoint(tmp_path))
    assert run_json("index", "stats", *at)["keys"] == 0
    assert run_json("index", "get", "k", *at, code=1)["found"] is False
    assert run_json("index", "export", *at, "--out", tmp_path / "keys.parquet")["keys"] == 0


def test_a_checkpoint_of_another_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = empty_checkpoint(tmp_path)
    meta = checkpoint / "tagstream" / "meta.json"
    meta.write_text(json.dumps({**json.loads(meta.read_text()), "version": 99}))
    assert "has version 99" in fails(capsys, 1, "index", "stats", "--checkpoint-dir", checkpoint)


def test_a_damaged_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = empty_checkpoint(tmp_path)
    (checkpoint / "commits").mkdir()
    (checkpoint / "commits" / "0").write_text("v1\n{}")
    (checkpoint / "tagstream" / "manifests").mkdir()
    manifest = checkpoint / "tagstream" / "manifests" / "000000000000-1.json"
    manifest.write_text("{")
    at = ("--checkpoint-dir", checkpoint)
    assert f"batch manifest {manifest} cannot be read" in fails(capsys, 1, "index", "stats", *at)
    manifest.write_text('{"version": 99}')
    assert "has version 99" in fails(capsys, 1, "index", "get", "k", *at)


def test_the_stream_is_still_the_stream(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["--target-base-path", "/nowhere/t"], ["stream", "--target-base-path", "/nowhere/t"]):
        assert main(argv) == 2
        assert "--checkpoint-dir" in capsys.readouterr().err
    assert main(["stream", "--help"]) == 0
    assert "--source-class" in capsys.readouterr().out
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert "--target-base-path" in text and "tagstream index" in text and len(text.splitlines()) < 25
    assert main([]) == 0
    assert "tagstream rescale" in capsys.readouterr().out


def test_the_module_is_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tagstream", "table", "files", "--json", "--target-base-path"]
    base = unpack("mor_v9_defaults", tmp_path)
    found = subprocess.run([*command, str(base)], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(found.stdout)["file_groups"] > 0
    wrong = subprocess.run([*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stderr.count("\n")) == (1, 1)
    piped = f"{' '.join(command)} {base} | head -c 1 >/dev/null; exit ${{PIPESTATUS[0]}}"
    closed = subprocess.run(["bash", "-c", piped], cwd=ROOT, capture_output=True, text=True, check=False)
    assert closed.stderr == ""


@pytest.mark.parametrize("argv", [["--version"], ["stream", "--version"]])
def test_the_version(capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    assert main(argv) == 0
    assert capsys.readouterr().out.startswith("tagstream 0.1.0 (pyspark 4.2.0, Python 3.11.")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["help"], "tagstream rescale"),
        (["help", "table"], "usage: tagstream table "),
        (["help", "stream"], "usage: tagstream stream "),
        (["stream", "--help"], "usage: tagstream stream "),
    ],
)
def test_help_by_word_or_flag(capsys: pytest.CaptureFixture[str], argv: list[str], words: str) -> None:
    assert main(argv) == 0
    assert words in capsys.readouterr().out


def test_a_python_without_the_dependencies_gives_one_line(tmp_path: Path) -> None:
    for command in (["run_stream.py"], ["-m", "tagstream", "--version"]):
        done = subprocess.run(
            [sys.executable, "-S", *command], cwd=ROOT, capture_output=True, text=True, check=False, env={}
        )
        (line,) = done.stderr.splitlines()
        assert done.returncode == 1
        assert re.match(r"tagstream: error: .* has no module \w+; (run it with|use) .*\.venv/bin/python", line)


def test_a_job_file_without_the_project_beside_it_says_so(tmp_path: Path) -> None:
    copy = tmp_path / "run_stream.py"
    copy.write_text((ROOT / "run_stream.py").read_text())
    done = subprocess.run(
        [sys.executable, "-S", str(copy)], cwd=tmp_path, capture_output=True, text=True, check=False, env={}
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "does not find the project; run the file in its own folder" in line
