"""The keys of HoodieIncrSource: their values, and those that are refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.streaming.options.cli import load_options
from tagstream.streaming.options.options import Options
from tagstream.table.errors import ConfigError

PATH = "hoodie.streamer.source.hoodieincr.path"
KEY = "hoodie.streamer.source.hoodieincr."


def options(*conf: str, path: str = "/a", name: str = "HoodieIncrSource", target: str = "/b") -> Options:
    given = [f"{PATH}={path}", *conf] if path else [*conf]
    words = ["--target-base-path", target, "--target-table", "t", "--checkpoint-dir", "/c", "--source-class", name]
    words += ["--hoodie-conf", "hoodie.datasource.write.recordkey.field=id"]
    return load_options([*words, *(word for pair in given for word in ("--hoodie-conf", pair))])


@pytest.mark.parametrize("prefix", ["", "org.apache.hudi.utilities.sources."])
def test_the_defaults(prefix: str) -> None:
    made = options(name=f"{prefix}HoodieIncrSource")
    assert (made.source.kind, made.source.limit, made.stream_id) == ("hudi", 512 << 20, "/a")
    incr = made.incr
    assert (incr.path, incr.instants, incr.begin, incr.full_scan) == ("/a", 5, "READ_UPTO_LATEST_COMMIT", False)
    assert made.records.format.name == "hudi"


def test_the_old_names(tmp_path: Path) -> None:
    old = "hoodie.deltastreamer.source.hoodieincr."
    made = options(f"{old}path={tmp_path}", f"{old}num_instants=9", f"{old}read_latest_on_missing_ckpt=true", path="")
    assert (made.incr.path, made.incr.instants, made.incr.begin) == (str(tmp_path), 9, "READ_LATEST")


def test_values_of_hoodiestreamer_that_are_accepted() -> None:
    made = options(
        f"{KEY}missing.checkpoint.strategy=read_latest",
        f"{KEY}file.format=parquet",
        f"{KEY}drop.all.meta.fields.from.source=true",
        "hoodie.datasource.read.handle.hollow.commit=BLOCK",
        "hoodie.datasource.read.incr.fallback.fulltablescan.enable=true",
    )
    assert (made.incr.begin, made.incr.full_scan) == ("READ_LATEST", True)
    assert all("hoodieincr" not in text for text in made.warnings if "meta" not in text)


@pytest.mark.parametrize(
    ("conf", "why"),
    [
        (
            "hoodie.datasource.read.handle.hollow.commit=USE_TRANSITION_TIME",
            "does not store when a commit was completed",
        ),
        ("hoodie.read.timeline.holes.resolution.policy=FAIL", "waits for the pending commit"),
        (f"{KEY}file.format=orc", "parquet"),
        (f"{KEY}num_instants=0", "less than 1"),
        (f"{KEY}missing.checkpoint.strategy=READ_ALL", "READ_UPTO_LATEST_COMMIT"),
        (f"{KEY}partition.fields=day", "partition columns"),
        (f"{KEY}partition.extractor.class=X", "partition columns"),
        (f"{KEY}data.datasource.options=a=b", "reads the source table itself"),
        ("hoodie.streamer.snapshotload.query.splitter.class.name=X", "--source-limit"),
    ],
)
def test_what_is_refused(conf: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        options(conf)


def test_two_keys_that_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match="contradicts"):
        options(f"{KEY}read_latest_on_missing_ckpt=true", f"{KEY}missing.checkpoint.strategy=READ_UPTO_LATEST_COMMIT")


def test_the_places() -> None:
    with pytest.raises(ConfigError, match=f"{PATH} is missing"):
        options(path="")
    with pytest.raises(ConfigError, match="cannot be its own source"):
        options(path="/b")
    with pytest.raises(ConfigError, match="does not read tables on this storage"):
        options(path="ftp://host/a")
    with pytest.raises(ConfigError, match=r"records are hudi|whose records are hudi"):
        options("tagstream.source.format=debezium-json")
