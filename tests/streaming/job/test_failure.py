"""The last line of a job that failed: what failed, where, and what to do; a batch is named only where there was one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from pyspark.errors import PySparkRuntimeError

from tagstream.streaming.errors import SourceError, SourcePlaceError, UnfitMachineError
from tagstream.streaming.job.failure import exit_code, explain, note_batch
from tagstream.streaming.options.cli import load_options
from tagstream.streaming.options.options import Options
from tagstream.table.errors import ConfigError, StoreError, UnsupportedTableError
from tagstream.table.storage.posix import PosixStorage


@pytest.fixture
def options() -> Options:
    argv = ["--target-base-path", "/data/t", "--checkpoint-dir", "/data/c", "--source-class", "JsonDFSSource"]
    return load_options([*argv, "--hoodie-conf", "hoodie.streamer.source.dfs.root=/in"])


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "/data/t/.hoodie: Permission denied; user"),
        (errno.ENOTDIR, "Not a directory; a part of that path is a file"),
        (errno.EROFS, "Read-only file system; use a folder"),
        (errno.ENOENT, "No such file or directory; the file was removed"),
    ],
)
def test_files(options: Options, number: int, words: str) -> None:

    told = explain(OSError(number, os.strerror(number), "/data/t/.hoodie"), options)
    assert words in told.line
    assert "Spark" not in told.line
    assert "batch" not in told.line
    assert told.detail == ""


def test_a_full_disk_is_named_as_before(options: Options) -> None:
    assert "a disk is full" in explain(OSError(errno.ENOSPC, "No space left on device"), options).line


def test_a_program_that_hosts_lack_is_named(options: Options) -> None:
    text = (
        'Job aborted.\nCaused by: java.io.IOException: Cannot run program ".venv/bin/python": error=2, No such file\n'
        "Caused by: java.io.IOException: error=2, No such file or directory\n"
    )
    assert (
        "can't run the program .venv/bin/python on one of its hosts" in explain(PySparkRuntimeError(text), options).line
    )


def test_a_checkpoint_that_hosts_do_not_see_is_named(options: Options) -> None:
    plan = "file:/c/tagstream/source/plans/plan-1.jsonl"
    text = f"Job aborted.\nCaused by: java.io.FileNotFoundException: File {plan} does not exist\n\tat x.y"
    assert explain(PySparkRuntimeError(text), options).line.startswith(
        f"a host of Spark cannot find {plan}: put the checkpoint "
    )


def test_what_nobody_knows_is_shown_whole_and_its_cause_last(options: Options, tmp_path: Path) -> None:
    text = "Query failed\nCaused by: a.b.CError: deep reason, password=hunter2\n\tat x.y"
    error = PySparkRuntimeError(text)
    told = explain(error, options)
    assert told.line.startswith("Spark failed: a.b.CError: deep reason")
    assert told.line.endswith("(the full text is above)")
    assert "at x.y" in told.detail
    assert "hunter2" not in told.detail

    root = PosixStorage(str(tmp_path))
    note_batch(error, root)
    assert "batch" not in explain(error, options).line
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").touch()
    note_batch(error, root)
    assert explain(error, options).line.endswith("; batch 3 was not finished, and the next start processes it again)")


def test_an_error_of_our_own_code_is_not_called_sparks(options: Options) -> None:
    assert explain(KeyError("x"), options).line.startswith("KeyError: ")


def test_a_driver_that_was_overtaken_in_sparks_own_log_is_told_so(options: Options) -> None:
    text = "org.apache.spark.SparkException: [CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log."
    assert "another process took over the checkpoint /data/c" in explain(PySparkRuntimeError(text), options).line


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("no such key"), 2),
        (SourceError("no Kafka broker answers"), 1),
        (UnsupportedTableError("no record key"), 1),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 1),
        (FileNotFoundError(errno.ENOENT, "a mount that is late"), 1),
        (StoreError(errno.EACCES, "403 Forbidden"), 1),
        (RuntimeError("?"), 1),
        (UnfitMachineError("no Java"), 3),
        (SourcePlaceError("a file"), 3),
        *(
            (OSError(number, os.strerror(number)), 3)
            for number in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)
        ),
    ],
)
def test_a_supervisor_is_told_whether_a_restart_can_help(error: Exception, code: int) -> None:
    assert exit_code(error) == code
