"""Generated workloads: the same from the same seed, and their expected rows against a replay of the files, row by row."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bench.inputs.workload import NAMES, Workload, make_workload


def make(folder: Path, name: str = "mixed", **settings: int) -> tuple[Workload, Path]:
    keys = {"keys": 900, "records": 1 if name == "one-row" else 300, "batches": 4, "partitions": 3} | settings
    workload = Workload(name, **keys)
    return workload, make_workload(workload, folder)


def batches(folder: Path) -> list[list[dict[str, object]]]:
    files = sorted((folder / "batches").iterdir(), key=lambda file: file.stat().st_mtime)
    assert [file.name for file in files] == [f"batch-{n:05d}.json" for n in range(len(files))]
    lines = [[json.loads(line) for line in file.read_text("ascii").splitlines()] for file in files]
    return [[line.get("after", line) for line in batch] for batch in lines]


@pytest.mark.parametrize("name", NAMES)
def test_a_replay_of_the_files_leads_to_the_expected_rows(name: str, tmp_path: Path) -> None:
    _, folder = make(tmp_path, name)
    rows = {row["id"]: row for row in pq.read_table(folder / "load.parquet").to_pylist()}
    for batch in batches(folder):
        for event in batch:
            if event["id"] not in rows or event["ts"] > rows[event["id"]]["ts"]:
                rows[event["id"]] = event
    expected = pq.read_table(folder / "expected.parquet").to_pylist()
    assert sorted((row["id"], row["part"], row["ts"]) for row in rows.values()) == sorted(
        (row["id"], row["part"], row["ts"]) for row in expected
    )


def test_change_events_have_the_row_before_them(tmp_path: Path) -> None:
    _, folder = make(tmp_path, "debezium")
    rows = {row["id"]: row for row in pq.read_table(folder / "load.parquet").to_pylist()}
    ops = set()
    for file in sorted((folder / "batches").iterdir()):
        for line in file.read_text("ascii").splitlines():
            event = json.loads(line)
            before, after = event["before"], event["after"]
            known = rows.get(after["id"])
            assert event["op"] == ("c" if known is None else "u")
            if known is None:
                assert before is None
            else:
                assert list(before) == list(after)
                assert [before[name] for name in ("id", "part", "ts")] == [known[name] for name in ("id", "part", "ts")]
            assert event["source"]["lsn"] == after["ts"]
            rows[after["id"]] = after
            ops.add(event["op"])
    assert ops == {"c", "u"}


@pytest.mark.parametrize("name", NAMES)
def test_events_have_the_columns_of_the_schema(name: str, tmp_path: Path) -> None:
    workload, folder = make(tmp_path, name)
    names = [field["name"] for field in json.loads((folder / "event.avsc").read_text())["fields"]]
    assert len(names) == len(set(names)) == workload.columns == (100 if name == "wide" else 8)
    assert pq.read_schema(folder / "load.parquet").names == names
    assert all(list(event) == names for batch in batches(folder) for event in batch)


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("mixed", (180, 60, 60)),
        ("debezium", (180, 60, 60)),
        ("wide", (180, 60, 60)),
        ("insert", (0, 300, 0)),
        ("update", (300, 0, 0)),
    ],
)
def test_a_batch_has_its_share_of_updates_inserts_and_moves(
    name: str, shares: tuple[int, int, int], tmp_path: Path
) -> None:
    _, folder = make(tmp_path, name)
    place = {row["id"]: row["part"] for row in pq.read_table(folder / "load.parquet").to_pylist()}
    for batch in batches(folder):
        assert len({event["id"] for event in batch}) == len(batch) == 300
        inserts = sum(event["id"] not in place for event in batch)
        moves = sum(place.get(event["id"], event["part"]) != event["part"] for event in batch)
        assert (len(batch) - inserts - moves, inserts, moves) == shares
        place |= {event["id"]: event["part"] for event in batch}


def test_zipf_draws_some_keys_often(tmp_path: Path) -> None:
    _, folder = make(tmp_path, "zipf")
    keys = [event["id"] for event in batches(folder)[0]]
    often = max(keys.count(key) for key in set(keys))
    assert len(set(keys)) < 250
    assert often > 10  # 240 of the 300 are drawn with weights of 1/rank: the first has a tenth of them


def test_one_row_batches_are_updates_inserts_and_moves(tmp_path: Path) -> None:
    _, folder = make(tmp_path, "one-row", batches=40)
    place = {row["id"]: row["part"] for row in pq.read_table(folder / "load.parquet").to_pylist()}
    kinds = set()
    for (event,) in batches(folder):
        was = place.get(event["id"])
        kinds.add("insert" if was is None else "update" if was == event["part"] else "move")
        place[event["id"]] = event["part"]
    assert kinds == {"insert", "update", "move"}


def test_the_same_seed_gives_the_same_files_and_another_one_others(tmp_path: Path) -> None:
    def content(folder: Path) -> dict[str, object]:
        files = {file.name: file.read_bytes() for file in (folder / "batches").iterdir()}
        return files | {"load": pq.read_table(folder / "load.parquet")}

    first, again = (content(make(tmp_path / each)[1]) for each in ("a", "b"))
    other = content(make(tmp_path / "c", seed=8)[1])
    assert first == again
    assert all(first[name] != other[name] for name in first)


def test_workloads_of_one_shape_share_the_existing_rows_and_are_made_once(tmp_path: Path) -> None:
    _, mixed = make(tmp_path, "mixed")
    _, update = make(tmp_path, "update")
    assert (mixed / "load.parquet").samefile(update / "load.parquet")
    made = (mixed / "expected.parquet").stat().st_mtime_ns
    assert (make(tmp_path, "mixed")[1] / "expected.parquet").stat().st_mtime_ns == made


def test_a_folder_of_other_settings_is_made_anew(tmp_path: Path) -> None:
    workload, folder = make(tmp_path)
    settings = json.loads((folder / "workload.json").read_text())
    (folder / "workload.json").write_text(json.dumps(settings | {"format": 0}))
    assert json.loads((make_workload(workload, tmp_path) / "workload.json").read_text()) == settings


@pytest.mark.parametrize(
    ("name", "keys", "records", "says"),
    [("mixed", 10, 20, "as many existing"), ("other", 10, 5, "no workload 'other'"), ("insert", 10, 0, "1 to")],
)
def test_impossible_settings_are_refused(name: str, keys: int, records: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Workload(name, keys, records, 2)
