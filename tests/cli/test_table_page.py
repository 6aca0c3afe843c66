"""The page of a table at rest: what the other commands say, in one file that needs nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.table.storage.posix import PosixStorage
from tests.cli.running import run, run_json, state_of
from tests.cli.stream import copied, streamed
from tests.streaming.monitor.test_page import Page
from tests.support import events as ev
from tests.support.browser import DESKTOP, PHONE, Browser
from tests.table.reference import NAMES, unpack
from tests.table.writer import Writer, row

PICTURES = os.environ.get("TAGSTREAM_PICTURES")
HOSTILE = '<script>alert("x")</script>'


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


def looked_at(browser: Browser, file: Path, name: str) -> None:
    for width in (DESKTOP, PHONE):
        for dark in (False, True):
            page = browser.page(file.as_uri(), width, dark=dark)
            assert (page.problems(), page.requests(), page.overflow()) == ([], [file.as_uri()], [])
            assert page.low_contrast() == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            if PICTURES:
                page.screenshot(Path(PICTURES, f"{name}-{width}-{'dark' if dark else 'light'}.png"))


@pytest.mark.extended(
    "more tables that real Hudi wrote",
    first=("cow_v6_global_bloom_moves", "mor_v6_compaction_pending", "cow_v9_record_index", "mor_v9_services"),
)
@pytest.mark.parametrize("name", NAMES)
def test_tables_of_real_hudi(tmp_path: Path, name: str) -> None:
    base, file = unpack(name, tmp_path), tmp_path / "page.html"
    before = state_of(base)
    at = ("--target-base-path", base)
    told = run_json("table", "page", *at, "--out", file)
    assert (told["out"], told["page_bytes"]) == (str(file), file.stat().st_size)
    assert state_of(base) == before
    shown = Page(file.read_text("utf-8")).values
    files, commits, timeline = (run_json("table", what, *at) for what in ("files", "commits", "timeline"))
    assert shown["file_groups"] == str(files["file_groups"])
    assert (shown["bytes"], shown["log_files"]) == (str(files["bytes"]), str(files["log_files"]))
    assert (shown["commits_total"], shown["pending"]) == (str(commits["commits_total"]), str(timeline["pending"]))
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".page")] == []


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.spark
def test_an_index_is_held_against_the_table(tmp_path: Path, spark: SparkSession, browser: Browser) -> None:
    events = list(ev.generate(3_000, ev.Mix(keys=700, partitions=9), seed=8))
    case = streamed(tmp_path / "a", spark, events)
    file = tmp_path / "page.html"
    at = ("--target-base-path", case.table, "--checkpoint-dir", case.checkpoint, "--out", file)
    assert run_json("table", "page", *at)["difference_count"] == 0
    shown = Page(file.read_text("utf-8"))
    stats = run_json("index", "stats", "--checkpoint-dir", case.checkpoint)
    assert shown.values["index_keys"] == str(stats["keys"]) == shown.values["table_keys"] == str(len(ev.oracle(events)))
    assert "index and table are equal" in shown.text
    looked_at(browser, file, "table")

    older = copied(case, tmp_path / "b")
    writer = Writer.create(tmp_path / "c", "COPY_ON_WRITE", groups=1)
    writer.write([row(n, "p0", 1) for n in range(10)])
    at = ("--target-base-path", tmp_path / "c" / "t", "--checkpoint-dir", older.checkpoint, "--out", file)
    told = run_json("table", "page", *at, code=1)
    verified = run_json("index", "verify", *at[:4], code=1)
    assert told["difference_count"] == verified["difference_count"] > 0
    assert "index and table differ" in Page(file.read_text("utf-8")).text
    looked_at(browser, file, "table-differs")


def test_names_from_outside_stay_text(tmp_path: Path, browser: Browser) -> None:
    writer = Writer.create(tmp_path, "MERGE_ON_READ", groups=1)
    long = "p" * 200
    writer.write([row(1, HOSTILE.replace("/", ""), 1), row(2, long, 1), row(3, "p\u202e日本 ", 1)])
    file = tmp_path / "page.html"
    run("table", "page", "--target-base-path", tmp_path / "t", "--out", file)
    text = file.read_text("utf-8")
    assert "<script" not in text and "\u202e" not in text
    looked_at(browser, file, "table-hostile")


def test_a_table_without_commits(tmp_path: Path) -> None:
    Writer.create(tmp_path, "COPY_ON_WRITE", groups=1)
    run("table", "page", "--target-base-path", tmp_path / "t", "--out", tmp_path / "page.html")
    shown = Page((tmp_path / "page.html").read_text("utf-8"))
    assert (shown.values["commits_total"], shown.values["file_groups"]) == ("0", "0")
    assert "before its first commit" in shown.text


def test_a_page_that_is_there_is_replaced_and_a_place_that_cannot_be_written_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Writer.create(tmp_path, "COPY_ON_WRITE", groups=1)
    file = tmp_path / "page.html"
    file.write_text("old")
    run("table", "page", "--target-base-path", tmp_path / "t", "--out", file)
    assert file.read_text("utf-8").startswith("<!doctype html>")
    run("table", "page", "--target-base-path", tmp_path / "t", "--out", tmp_path / "no" / "page.html", code=1)
    assert "no/page.html cannot be written (No such file or directory); give another --out" in capsys.readouterr().err
    run("table", "page", "--target-base-path", tmp_path / "t", "--out", tmp_path, code=1)
    assert "cannot be written" in capsys.readouterr().err


def test_a_checkpoint_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Writer.create(tmp_path, "COPY_ON_WRITE", groups=1)
    (tmp_path / "c").mkdir()
    at = ("--target-base-path", tmp_path / "t", "--checkpoint-dir", tmp_path / "c")
    run("table", "page", *at, "--out", tmp_path / "page.html", code=1)
    assert "is not a checkpoint of Tagstream" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()
    assert PosixStorage(str(tmp_path)).exists("t")
