"""What a program sees that streams a DataFrame: lines of its stream, and none of Spark's about an end it has asked for."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.errors import StopRequested
from tagstream.streaming.job.failure import FailureLog
from tagstream.streaming.job.upsert_query import show_lines

NAMES = ("MicroBatchExecution", "runtime.MicroBatchExecution")


@pytest.mark.spark
@pytest.mark.platform("levels of Spark's loggers")
def test_sparks_lines_of_a_failed_query_are_kept_back_and_come_again(spark: SparkSession) -> None:
    log4j = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]

    set_level = log4j.core.config.Configurator.setLevel

    def levels() -> list[str]:
        names = (f"org.apache.spark.sql.execution.streaming.{name}" for name in NAMES)
        return [str(log4j.LogManager.getLogger(name).getLevel()) for name in names]

    of_this_session = levels()
    for name in NAMES:  # as in a session of a user's
        set_level(f"org.apache.spark.sql.execution.streaming.{name}", log4j.Level.WARN)
    before, failures = levels(), FailureLog(spark)
    assert before == ["WARN", "WARN"]
    failures.keep_back()
    failures.keep_back()
    assert levels() == ["OFF", "OFF"]
    logger = logging.getLogger("py4j.clientserver")
    try:
        raise StopRequested("asked to end")
    except StopRequested:
        ours = logger.makeRecord(logger.name, logging.INFO, "", 0, "an error", (), sys.exc_info())
    theirs = logger.makeRecord(logger.name, logging.INFO, "", 0, "an error", (), None)
    assert (bool(logger.filter(ours)), bool(logger.filter(theirs))) == (False, True)
    failures.restore()
    assert levels() == before and logger.filter(ours)
    for name, level in zip(NAMES, of_this_session, strict=True):
        set_level(f"org.apache.spark.sql.execution.streaming.{name}", log4j.Level.toLevel(level))


@contextmanager
def bare() -> Iterator[logging.Logger]:
    """The logger of streams in a program that has set up no logging; pytest's own handlers come with each test."""
    log, root = logging.getLogger("tagstream"), logging.getLogger()
    kept = log.handlers[:], root.handlers[:], log.level
    log.handlers[:], root.handlers[:] = [], []
    log.setLevel(logging.NOTSET)
    try:
        yield log
    finally:
        log.handlers[:], root.handlers[:] = kept[0], kept[1]
        log.setLevel(kept[2])


def test_lines_are_shown_where_no_logging_was_set_up(capsys: pytest.CaptureFixture[str]) -> None:
    with bare() as log:
        show_lines()
        show_lines()
        log.info("batch 0 begins")
        assert capsys.readouterr().err.count("INFO tagstream: batch 0 begins") == 1
        logging.getLogger().addHandler(logging.NullHandler())  # the program sets up its own later
        log.info("batch 1 begins")
        assert capsys.readouterr().err == ""


def test_a_programs_own_logging_stays() -> None:
    with bare() as log:
        own = logging.NullHandler()
        log.addHandler(own)
        log.setLevel(logging.ERROR)
        show_lines()
        assert (log.handlers, log.level) == ([own], logging.ERROR)
