"""Which of Spark's managers, and which of Hadoop's file systems, write the files of a checkpoint."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.job.session import QUICK_CHECKPOINT_FILES, choose_checkpoint_files
from tests.support.local_files_jar import CHECKSUM, JAR, checksum

FILES = "fs.file.impl"
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
REFUSES = "org.apache.hadoop.hive.ql.io.ProxyLocalFileSystem"


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session of the test's own, on the shared context."""
    own = spark.newSession()
    own.conf.set(MANAGER, QUICK_CHECKPOINT_FILES[MANAGER])
    yield own


def test_on_a_local_disk_the_quick_manager_stays(tmp_path: Path, session: SparkSession) -> None:
    assert choose_checkpoint_files(session, str(tmp_path))
    assert session.conf.get(MANAGER) == QUICK_CHECKPOINT_FILES[MANAGER]
    assert list(tmp_path.iterdir()) == []
    assert session.conf.get(FILES) == "tagstream.LocalFiles"


def test_files_that_no_process_was_started_for(tmp_path: Path, session: SparkSession) -> None:
    """The class is this project's, and a file has the permissions that Hadoop's own gives it."""
    modes = {}
    for ours in (False, True):
        folder = tmp_path / str(ours)
        if ours:
            assert choose_checkpoint_files(session, str(folder))
        path = session._jvm.org.apache.hadoop.fs.Path(str(folder / "a" / "file"))  # type: ignore[union-attr]
        files = path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())
        assert (files.getClass().getName() == "tagstream.LocalFiles") is ours
        out = files.create(path)
        out.write(1)
        out.close()
        modes[ours] = [p.stat().st_mode for p in (folder / "a", folder / "a" / "file", folder / "a" / ".file.crc")]
    assert modes[True] == modes[False]


def test_the_jar_is_that_of_the_source() -> None:
    with zipfile.ZipFile(JAR) as jar:
        assert jar.read(CHECKSUM) == checksum(), "python -m tests.support.local_files_jar makes it again"


def test_a_file_system_of_the_users_own_stays(tmp_path: Path, session: SparkSession) -> None:
    session.conf.set(FILES, "org.apache.hadoop.fs.RawLocalFileSystem")
    assert choose_checkpoint_files(session, str(tmp_path))
    assert session.conf.get(FILES) == "org.apache.hadoop.fs.RawLocalFileSystem"


def test_where_a_file_is_not_replaced_sparks_own_manager_is_taken(tmp_path: Path, session: SparkSession) -> None:
    session.conf.set("fs.file.impl", REFUSES)
    assert not choose_checkpoint_files(session, str(tmp_path))
    assert session.conf.get(MANAGER, None) is None


def test_a_folder_that_cannot_be_written_is_left_to_sparks_own_manager(tmp_path: Path, session: SparkSession) -> None:
    (tmp_path / "file").touch()
    assert not choose_checkpoint_files(session, str(tmp_path / "file"))
    assert session.conf.get(MANAGER, None) is None


def test_the_users_own_manager_is_not_touched(tmp_path: Path, session: SparkSession) -> None:
    session.conf.set(MANAGER, "com.example.Manager")
    assert not choose_checkpoint_files(session, str(tmp_path))
    assert session.conf.get(MANAGER) == "com.example.Manager"
