from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.job.session import QUICK_CHECKPOINT_FILES, choose_checkpoint_files

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
