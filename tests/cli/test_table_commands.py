"""The table commands on tables that real Hudi wrote: what they show is what Hudi reads, and nothing is changed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tests.cli.running import run, run_json, state_of
from tests.table.reference import NAMES, expected, expected_records, unpack
from tests.table.writer import Writer, row

UNFINISHED = {"cow_v6_failed_left", "flink_mor", "flink_mor_moves", "mor_v6_rollback_and_inflight"}


@pytest.mark.extended(
    "more tables that real Hudi wrote",
    first=("cow_v6_global_bloom_moves", "mor_v6_compaction_pending", "cow_v9_record_index", "mor_v9_services"),
)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_shown_is_what_hudi_reads(tmp_path: Path, name: str) -> None:
    base = unpack(name, tmp_path)
    before = state_of(base)
    at = ("--target-base-path", base)

    rows = run_json("table", "rows", *at, "--meta", "--limit", 0)["rows"]
    keys = sorted((r["_hoodie_partition_path"], r["_hoodie_record_key"]) for r in rows)
    assert keys == [(p, k) for p, k, _, _ in expected_records(base)]

    files = run_json("table", "files", *at)
    groups = {(f["partition_path"], f["file_id"]) for f in files["files"]}
    assert len(groups) == len(files["files"]) == files["file_groups"]
    assert {(p, f) for p, _, f, _ in expected_records(base)} <= groups
    assert files["bytes"] == sum((f["base_bytes"] or 0) + f["log_bytes"] for f in files["files"])
    paths = [p for f in files["files"] for p in (f["base_file"], *f["log_files"]) if p]
    assert sum((base / p).stat().st_size for p in paths) == files["bytes"]

    timeline = HoodieTable.open(str(base)).timeline()
    shown = run_json("table", "timeline", *at)
    assert [i["instant"] for i in shown["timeline"]] == [i.time for i in reversed(timeline.instants)]
    assert shown["pending"] == Counter(i["state"] == "completed" for i in shown["timeline"])[False]
    commits = run_json("table", "commits", *at)
    assert [c["instant"] for c in commits["commits"]] == [i.time for i in reversed(timeline.completed_writes)]
    assert commits["commits_total"] == len(commits["commits"])

    sound = run_json("table", "validate", *at, code=int(name in UNFINISHED))
    assert sound["sound"] is (name not in UNFINISHED)
    assert sound["keys"] == len(expected(base)["records"])
    assert [p["problem"].split()[0] for p in sound["problems"]] == ["unfinished"] * sound["problem_count"]

    for command in ("timeline", "commits", "files", "rows"):
        assert run("table", command, *at).startswith("table")
    assert state_of(base) == before


def test_a_row_by_its_key_and_partition(tmp_path: Path) -> None:
    base = unpack("cow_v6_hive_alltypes", tmp_path)
    at = ("--target-base-path", base)
    for partition, key, _, _ in expected_records(base)[::40]:
        found = run_json("table", "rows", *at, "--key", key)["rows"]
        assert [r["id"] for r in found] == [key]
        assert run_json("table", "rows", *at, "--key", key, "--partition", partition)["rows"] == found
        other = next(p for p, *_ in expected_records(base) if p != partition)
        assert run_json("table", "rows", *at, "--key", key, "--partition", other, code=1)["rows"] == []
    assert "no such row" in run("table", "rows", *at, "--key", "nobody", code=1)


def test_columns_limits_and_what_is_left_out(tmp_path: Path) -> None:
    at = ("--target-base-path", unpack("mor_v6_parquet_log", tmp_path))
    doc = run_json("table", "rows", *at, "--columns", "ver,id", "--limit", 3)
    assert [list(r) for r in doc["rows"]] == [["ver", "id"]] * 3
    assert doc["more"] is True
    assert "the first 3 rows" in run("table", "rows", *at, "--limit", 3)
    assert run_json("table", "rows", *at, "--limit", 0)["more"] is False
    newest, *_ = run_json("table", "timeline", *at)["timeline"]
    assert run_json("table", "timeline", *at, "--limit", 1)["timeline"] == [newest]
    assert len(run_json("table", "commits", *at, "--limit", 2)["commits"]) == 2


def test_numbers_of_a_commit(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, "COPY_ON_WRITE", groups=1)
    writer.write([row(n, "p0", 1) for n in range(9)] + [row(n, "p1", 1) for n in range(20, 24)])
    writer.write([row(1, "p0", 2), row(30, "p0", 1)], deletes=["k2"])
    newest, first = run_json("table", "commits", "--target-base-path", tmp_path / "t")["commits"]
    assert (first["partitions"], first["files"], first["inserts"], first["updates"], first["deletes"]) == (
        2,
        2,
        13,
        0,
        0,
    )
    assert (newest["partitions"], newest["inserts"], newest["updates"], newest["deletes"]) == (1, 1, 1, 1)
    assert newest["stream"] is None


def test_every_problem_is_listed(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, "COPY_ON_WRITE", groups=1)
    writer.write([row(n, "p0", 1) for n in range(30)])
    at = ("--target-base-path", tmp_path / "t")
    assert run_json("table", "validate", *at)["problems"] == []
    (tmp_path / "t" / "p0" / "notes.txt").write_text("mine")
    found = run_json("table", "validate", *at, code=1)
    assert found["problems"] == [{"problem": "p0/notes.txt is not a file of a Hudi table"}]
    assert (found["problem_count"], found["sound"], found["keys"]) == (1, False, 30)
    assert "p0/notes.txt is not a file of a Hudi table" in run("table", "validate", *at, code=1)


def test_a_key_in_two_partitions_is_wrong_only_for_global_keys(tmp_path: Path) -> None:
    writer = Writer.without_metadata(tmp_path, "MERGE_ON_READ", groups=1)
    writer.write([row(n, "p0", 1) for n in range(30)])
    for key in ("k1", "k2"):
        writer.where.pop(key)
        writer.live.pop(key)
    writer.write([row(1, "p1", 1), row(2, "p2", 1)])
    at = ("--target-base-path", tmp_path / "t")
    assert run_json("table", "validate", *at)["sound"]
    found = run_json("table", "validate", *at, "--global-keys", code=1)["problems"]
    assert [p["problem"] for p in found] == [
        "key 'k1' is in 2 partitions: 'p0', 'p1'",
        "key 'k2' is in 2 partitions: 'p0', 'p2'",
    ]


def test_an_empty_table(tmp_path: Path) -> None:
    Writer.create(tmp_path, "COPY_ON_WRITE")
    at = ("--target-base-path", tmp_path / "t")
    assert run_json("table", "rows", *at)["rows"] == []
    assert "no rows" in run("table", "rows", *at)
    assert run_json("table", "files", *at)["file_groups"] == 0
    assert run_json("table", "validate", *at)["sound"]


def test_rows_for_which_something_holds(tmp_path: Path) -> None:
    base = unpack("cow_v9_record_index", tmp_path)
    at = ("--target-base-path", base)
    rows = [r["row"] for r in expected(base)["records"]]
    doc = run_json("table", "rows", *at, "--limit", 0, "--where", "amount >= 300", "--where", "part != 2024-01")
    wanted = [r["id"] for r in rows if r["amount"] is not None and r["amount"] >= 300 and r["part"] != "2024-01"]
    assert sorted(r["id"] for r in doc["rows"]) == sorted(wanted)
    assert wanted
    assert (doc["skipped"]["partitions"], doc["skipped"]["partitions_skipped"]) == (4, 1)
    assert 0 < doc["skipped"]["files_skipped"] < doc["skipped"]["files"]
    assert doc["skipped"]["skipped_by"] == {"metadata table": doc["skipped"]["files_skipped"]}
    text = run("table", "rows", *at, "--where", "part = 2025-01", "--where", "qty < 3", "--columns", "id")
    assert "skipped 3 of 4 partitions and 4 of 4 files (4 by metadata table)" in text
    assert "no such row" in run("table", "rows", *at, "--where", "amount > 9999")
    assert "skipped" not in run("table", "rows", *at)


def test_a_filter_that_is_none_is_an_error(tmp_path: Path) -> None:
    at = ("--target-base-path", unpack("cow_v6_nonpart_simplebloom", tmp_path))
    for text in ("nothing = 1", "ver = x", "ver ~ 1"):
        run("table", "rows", *at, "--where", text, code=2)
