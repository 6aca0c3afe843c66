"""A run's watch without a stream: from its first second, and without a secret."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from tagstream.streaming.monitor.health import Stops, read_stops, write_stops
from tagstream.streaming.monitor.watch import Watch
from tagstream.streaming.options.cli import load_options
from tagstream.streaming.options.options import Options
from tagstream.table.errors import ConfigError
from tagstream.table.storage.posix import PosixStorage
from tests.streaming.monitor.case import Clock
from tests.streaming.monitor.test_live import Site
from tests.table.writer import Writer, row

SECRET = "hunter2"


def options(folder: Path, *more: str, **conf: str) -> Options:
    pairs = {"hoodie.streamer.source.kafka.topic": "orders", "bootstrap.servers": "127.0.0.1:1", **conf}
    words = [word for key, value in pairs.items() for word in ("--hoodie-conf", f"{key}={value}")]
    paths = ["--target-base-path", str(folder / "t"), "--checkpoint-dir", str(folder / "c")]
    return load_options([*paths, *words, "--source-class", "JsonKafkaSource", *more])


def test_it_answers_before_there_is_anything(tmp_path: Path) -> None:
    site = Site()
    with Watch(options(tmp_path, "--status-port", str(site.port)), Clock()) as watch:
        assert site.health() == (200, "starting: starting, before the first batch\n")
        watch.status.step("starting Spark")
        doc = site.document()
        assert (doc["doing"]["step"], doc["about"]["table"], doc["about"]["stream"]) == (
            "starting Spark",
            "t",
            "orders",
        )
        assert site.metrics()['tagstream_health{state="starting"}'] == 1
        assert site.metrics()["tagstream_records_total"] == 0
        assert "starting Spark" in site.text("")
    with pytest.raises(OSError):
        site.health()


def test_a_port_that_is_taken_is_told_before_anything_is_made(tmp_path: Path) -> None:
    site = Site()
    given = options(tmp_path, "--status-port", str(site.port))
    with Watch(given, Clock()), pytest.raises(ConfigError, match="cannot listen on this port"):
        Watch(given, Clock())
    assert list(tmp_path.iterdir()) == []


def test_what_the_table_and_the_runs_before_say(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, "COPY_ON_WRITE", groups=1)
    writer.write([row(n, "p0", 1) for n in range(20)])
    checkpoint = PosixStorage(str(tmp_path / "c"))
    write_stops(checkpoint, Stops().one_more("StateError", "no room", 7))
    site = Site()
    with Watch(options(tmp_path, "--status-port", str(site.port)), Clock()) as watch:
        watch.table_opened(writer.table)
        doc = site.wait_for(lambda d: d["files"] is not None, "the first look at the table")
        assert doc["files"]["total"]["file_groups"] == 1
        assert (doc["commits"][0]["inserts"], doc["commits"][0]["stream"]) == (20, None)
        assert (doc["stops"], doc["last_stop"]["text"]) == ({"StateError": 1}, "no room")
        watch.failed("SourceError", "no broker", may_write=True)
        watch.ended()
    assert read_stops(checkpoint).counts == {"StateError": 1}  # it never became the one writer


def test_no_secret_is_served(tmp_path: Path) -> None:
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{SECRET}";'
    conf = {"sasl.jaas.config": jaas, "ssl.key.password": SECRET, "my.token": SECRET, "hoodie.secret.key": SECRET}
    site = Site()
    given = options(tmp_path, "--status-port", str(site.port), **conf)
    assert given.warnings
    with Watch(given, Clock()):
        for warning in given.warnings:
            logging.getLogger("tagstream").warning(warning)
        assert len(site.document()["warnings"]) == len(given.warnings)
        for path in ("", "status.json", "metrics", "healthz"):
            assert SECRET not in site.text(path), path


def test_without_a_port_nothing_is_served_and_warnings_are_let_go(tmp_path: Path) -> None:
    before = list(logging.getLogger("tagstream").handlers)
    with Watch(options(tmp_path), Clock()) as watch:
        logging.getLogger("tagstream").warning("careful")
        assert watch.status.snapshot().warnings_total == 1
        json.dumps(watch.status.snapshot().document())
    assert logging.getLogger("tagstream").handlers == before
