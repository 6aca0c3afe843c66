"""A source folder is one stream by whatever path it is given, in a checkpoint of today as in one of earlier versions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.state.errors import StateError
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev

pytestmark = pytest.mark.spark
IDENTIFIER = "hoodie.datasource.write.streaming.checkpoint.identifier"
ROOT = "hoodie.streamer.source.dfs.root"


@pytest.fixture
def case(tmp_path: Path, spark: SparkSession) -> StreamCase:
    case = StreamCase(tmp_path, spark)
    ev.write_files(list(ev.generate(200, ev.Mix(keys=40), seed=3)), case.source, 100)
    return case


def stream_id(case: StreamCase) -> str:
    return str(json.loads((case.checkpoint / "tagstream" / "meta.json").read_text())["stream_id"])


@pytest.mark.extended("the same decisions over another real stream")
def test_a_checkpoint_that_has_a_relative_path_goes_on(case: StreamCase) -> None:
    """What an earlier version kept of `x/in`: the folder as it was spelled, in the checkpoint and in every commit."""
    spelled = f"{case.folder.name}/in"
    replace(case, conf={IDENTIFIER: spelled}).run()
    assert stream_id(case) == spelled
    ev.write_files(list(ev.generate(100, ev.Mix(keys=40), seed=4)), case.source, 100, first=2)
    assert [r.batch_id for r in case.run()] == [2]
    assert stream_id(case) == spelled
    with pytest.raises(StateError, match="belongs to another source"):
        replace(case, conf={IDENTIFIER: "others"}).run()


@pytest.mark.extended("the same decisions over another real stream")
def test_a_link_to_the_folder_reads_no_file_twice(case: StreamCase) -> None:
    assert len(case.run()) == 2
    assert stream_id(case) == str(case.source)
    link = case.folder / "link"
    link.symlink_to(case.source)
    # Later arguments win: the case's own folder comes first.
    other = ("--hoodie-conf", f"{ROOT}=file://{link}/")
    argv = [word for word in case.arguments() if not word.startswith(ROOT)]
    assert argv[-1] == "--hoodie-conf"
    case.arguments = lambda *more: [*argv[:-1], *other, *more]  # type: ignore[method-assign]
    assert case.run() == []
    ev.write_files(list(ev.generate(100, ev.Mix(keys=40), seed=4)), case.source, 100, first=2)
    assert [r.batch_id for r in case.run()] == [2]
    assert stream_id(case) == str(case.source)
