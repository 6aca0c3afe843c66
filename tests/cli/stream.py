"""Small streams whose checkpoints and tables the admin command is tried on, and what their events lead to."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from tests.streaming.stream_case import StreamCase
from tests.support import events as ev

STREAM = {"hoodie.datasource.write.streaming.checkpoint.identifier": "events"}


def streamed(folder: Path, spark: SparkSession, events: Sequence[ev.Event], *, global_index: bool = True) -> StreamCase:
    """A stream of files that has taken these events in three batches: copy-on-write, or merge-on-read by partition."""
    conf = {**STREAM, "index.global.enabled": str(global_index).lower()}
    case = StreamCase(folder, spark, "COPY_ON_WRITE" if global_index else "MERGE_ON_READ", conf)
    ev.write_files(events, case.source, -(-len(events) // 3))
    assert len(case.run()) == 3
    return case


def copied(case: StreamCase, folder: Path) -> StreamCase:
    """The stream's table and checkpoint at another place, with a source of its own that is empty."""
    shutil.copytree(case.table, folder / "table")
    shutil.copytree(case.checkpoint, folder / "checkpoint")
    return replace(case, folder=folder)


def deleted_keys(events: Sequence[ev.Event]) -> set[str]:
    """Keys that had a record and have none now; of a global index."""
    return {e.key for e in events} - set(ev.oracle(events))
