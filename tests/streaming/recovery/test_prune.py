"""What is kept of retired queries, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.state.checkpoint import INDEX, QueryFolder, current_query_folder, next_query_folder
from tagstream.streaming.recovery.takeover import prune_retired
from tagstream.table.storage.posix import PosixStorage

KEPT = ["offsets/0", "tagstream/quarantine/0/part-0.jsonl"]


@pytest.fixture
def checkpoint(tmp_path: Path) -> PosixStorage:
    return PosixStorage(str(tmp_path / "c"), sync=False)


def filled(checkpoint: PosixStorage, query_folder: QueryFolder) -> QueryFolder:
    for name in (f"{INDEX}/deltas/0/1.delta", "state/0/0/1.delta", *KEPT):
        query_folder.files.replace(name, b"x")
    return query_folder


def names(checkpoint: PosixStorage, folder: str) -> list[str]:
    return sorted(name.removeprefix(f"{folder}/") for name in checkpoint.walk_files(folder))


def test_the_last_retired_index_stays_and_those_before_it_go(checkpoint: PosixStorage) -> None:
    query_folder = filled(checkpoint, current_query_folder(checkpoint))
    for _ in range(3):
        query_folder = filled(checkpoint, next_query_folder(checkpoint, query_folder, "the table was restored"))
    filled(checkpoint, QueryFolder(0, checkpoint.below("retired/1")))
    before = names(checkpoint, "tagstream/roots/2"), names(checkpoint, "tagstream/roots/3")
    assert prune_retired(checkpoint, query_folder) == [], "nothing is committed yet"
    query_folder.files.replace("commits/0", b"x")
    assert prune_retired(checkpoint, query_folder) == ["retired/1", "", "tagstream/roots/1"]
    assert names(checkpoint, "retired/1") == KEPT
    assert names(checkpoint, "tagstream/roots/1") == [*KEPT[:1], KEPT[1], "why.txt"]
    assert checkpoint.names("") == ("offsets", "retired", "tagstream")
    assert names(checkpoint, "tagstream/roots/2") == before[0]
    assert names(checkpoint, "tagstream/roots/3") == ["commits/0", *before[1]]
    assert prune_retired(checkpoint, query_folder) == []


def test_the_first_query_is_never_touched(checkpoint: PosixStorage) -> None:
    query_folder = filled(checkpoint, current_query_folder(checkpoint))
    query_folder.files.replace("commits/0", b"x")
    assert prune_retired(checkpoint, query_folder) == []
    assert checkpoint.exists(f"{INDEX}/deltas/0/1.delta")
