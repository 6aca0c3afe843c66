"""An older copy of a checkpoint is put back, and its next batch has the number and the offsets of one that the table has."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.bootstrap import catch_up
from tagstream.streaming.job import upsert
from tests.streaming.job.frame_case import FrameCase
from tests.streaming.recovery.test_cover import is_oracles
from tests.streaming.stream_case import Steps, StreamCase
from tests.support import events as ev

pytestmark = [pytest.mark.spark, pytest.mark.extended("several starts of a real stream")]


def put(case: FrameCase | StreamCase, number: int, *events: ev.Event) -> list[ev.Event]:
    """One file; all of them are of the same age."""
    ev.write_files(list(events), case.source, len(events), first=number)
    for path in case.source.iterdir():
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return list(events)


def at_files_of_batch_3(step: str, batch: int) -> None:
    if (step, batch) == ("files_written", 3):
        raise RuntimeError("killed")


@pytest.mark.parametrize("kind", ["DataFrame", "files"])
def test_its_next_batch_is_not_taken_for_the_one_of_the_same_number(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    conf = {"hoodie.metadata.enable": "false"}
    case = FrameCase(tmp_path, spark, conf) if kind == "DataFrame" else StreamCase(tmp_path, spark, conf=conf)
    events = [e for n in range(3) for e in put(case, n, ev.Event(f"k{n}", "p0", n, name="old"))]
    case.run()
    shutil.copytree(case.checkpoint, tmp_path / "copy")
    events += put(case, 3, ev.Event("k3", "p0", 3, name="of the newer copy"))
    case.run()
    shutil.rmtree(case.checkpoint)
    (tmp_path / "copy").rename(case.checkpoint)
    (case.source / "events-00003.json").unlink()
    events += put(case, 4, ev.Event("k4", "p0", 4, name="new"), ev.Event("k0", "p0", 40, name="new"))
    monkeypatch.setattr(catch_up, "GROUP_BYTES", 0)  # as if the newer copy had touched large file groups
    with pytest.raises(Exception, match="killed|batch 3 was not finished"), monkeypatch.context() as killed:
        if isinstance(case, FrameCase):
            killed.setattr(upsert.CrashPlan, "from_env", lambda *_: Steps(at_files_of_batch_3))
            case.run()
        else:
            case.run(at=at_files_of_batch_3)
    case.run()
    if isinstance(case, FrameCase):
        case.is_oracles(events)
    else:
        is_oracles(case, events)
