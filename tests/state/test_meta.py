"""What a checkpoint fixes for ever."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tagstream.state.checkpoint import META_FILE, open_or_create_meta, read_meta
from tagstream.state.errors import StateError
from tagstream.table.storage.posix import PosixStorage
from tests.support.faulty_storage import Faults, FaultyStorage, InjectedError

GIVEN: dict[str, Any] = {
    "shuffle_partitions": 2,
    "key_groups": 8,
    "stream_id": "flights",
    "ordering": "int64",
    "global_index": True,
    "table_name": "flights",
    "table_path": "/data/flights",
}


def at(folder: Path) -> PosixStorage:
    return PosixStorage(str(folder))


def test_made_once_then_read(tmp_path: Path) -> None:
    made = open_or_create_meta(at(tmp_path), **GIVEN)
    assert len(made.labels) == made.key_groups == 8
    assert open_or_create_meta(at(tmp_path), **GIVEN) == made == read_meta(at(tmp_path))


def test_a_stream_names_a_checkpoint_that_has_no_name_yet(tmp_path: Path) -> None:
    made = open_or_create_meta(at(tmp_path), **GIVEN | {"stream_id": ""})
    assert made.stream_id == ""
    named = open_or_create_meta(at(tmp_path), **GIVEN | {"stream_id": "orders"})
    assert named == replace(made, stream_id="orders") == read_meta(at(tmp_path))
    assert open_or_create_meta(at(tmp_path), **GIVEN | {"stream_id": ""}) == named
    with pytest.raises(StateError, match="fixes stream_id as 'orders'"):
        open_or_create_meta(at(tmp_path), **GIVEN | {"stream_id": "others"})
    assert [p.name for p in (tmp_path / "tagstream").iterdir()] == ["meta.json"]


def test_defaults_of_another_machine_give_way(tmp_path: Path) -> None:
    made = open_or_create_meta(at(tmp_path), **GIVEN)
    assert open_or_create_meta(at(tmp_path), **GIVEN | {"shuffle_partitions": 16, "key_groups": 64}) == made


@pytest.mark.parametrize(
    "change,explicit",
    [
        ({"key_groups": 16}, ["index.key.groups"]),
        ({"shuffle_partitions": 4}, ["spark.sql.shuffle.partitions"]),
        ({"stream_id": "other"}, []),
        ({"ordering": "bytes"}, []),
        ({"global_index": False}, []),
    ],
)
def test_contradiction_is_refused_by_name(tmp_path: Path, change: dict[str, Any], explicit: list[str]) -> None:
    open_or_create_meta(at(tmp_path), **GIVEN)
    with pytest.raises(StateError, match=next(iter(change))):
        open_or_create_meta(at(tmp_path), **GIVEN | change, explicit=explicit)


def test_a_file_of_version_1_takes_the_table_over(tmp_path: Path) -> None:
    made = open_or_create_meta(at(tmp_path), **GIVEN)
    path = tmp_path / META_FILE
    doc = json.loads(path.read_text())
    assert (doc["version"], doc.pop("table")) == (
        2,
        {"name": "flights", "path": "/data/flights", "checkpoint": str(tmp_path)},
    )
    path.write_text(json.dumps({**doc, "version": 1}))
    assert read_meta(at(tmp_path)) == replace(made, table=None)
    assert open_or_create_meta(at(tmp_path), **GIVEN) == made == read_meta(at(tmp_path))
    assert json.loads(path.read_text())["version"] == 2


def test_the_table_it_is_given_now_is_noted(tmp_path: Path) -> None:
    open_or_create_meta(at(tmp_path), **GIVEN)
    moved = open_or_create_meta(at(tmp_path), **GIVEN | {"table_path": "/elsewhere/flights"})
    assert moved.table is not None and moved.table.path == "/elsewhere/flights"
    assert read_meta(at(tmp_path)) == moved


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"version":3,"record_format":1}', '{"version":1}', '{"version":2,"record_format":1,"labels":[]}'],
)
def test_damaged_or_newer_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / META_FILE
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(StateError, match=r"meta\.json"):
        open_or_create_meta(at(tmp_path), **GIVEN)


def test_a_file_that_cannot_be_read_for_a_moment_is_not_damaged(tmp_path: Path) -> None:
    open_or_create_meta(at(tmp_path / "c"), **GIVEN)
    with pytest.raises(InjectedError):
        read_meta(FaultyStorage(at(tmp_path / "c"), Faults(str(tmp_path / "faults"), fail=1)))


def test_a_start_meets_its_own_file_after_a_lost_answer(tmp_path: Path) -> None:
    faults = Faults(str(tmp_path / "faults"), repeat=1, only=("write_new",))
    assert open_or_create_meta(FaultyStorage(at(tmp_path / "c"), faults), **GIVEN).key_groups == 8


def test_choices_under_which_nothing_was_done_give_way(tmp_path: Path) -> None:
    made = open_or_create_meta(at(tmp_path), **GIVEN)
    again = open_or_create_meta(at(tmp_path), **GIVEN | {"key_groups": 64}, unused=True)
    assert again == made  # they agree: a size of this machine's is no other choice
    other = open_or_create_meta(at(tmp_path), **GIVEN | {"ordering": "bytes"}, unused=True)
    assert other.ordering == "bytes"
    assert read_meta(at(tmp_path)) == other


def test_a_folder_in_another_spelling_is_the_same_stream_and_keeps_its_name(tmp_path: Path) -> None:
    open_or_create_meta(at(tmp_path), **GIVEN | {"stream_id": "out/orders-in"})
    found = open_or_create_meta(at(tmp_path), **GIVEN | {"stream_id": "/home/u/out/orders-in"})
    assert found.stream_id == "out/orders-in" == read_meta(at(tmp_path)).stream_id
    with pytest.raises(StateError, match="belongs to another source"):
        open_or_create_meta(at(tmp_path), **GIVEN | {"stream_id": "/home/u/out/others"})
