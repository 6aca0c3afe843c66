"""The comparison with the real peers, small: every writer leads to the right rows of what it can do."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.compare import WRITERS, main
from bench.inputs.lines import read_lines

pytestmark = [pytest.mark.hudi_jar, pytest.mark.spark]
SMALL = ["--runs", "1", "--keys", "2000", "--records", "500", "--batches", "3", "--partitions", "3"]


def cases(folder: Path, *flags: str) -> dict[tuple[str, str, str], object]:
    assert main([*SMALL, "--out", str(folder), *flags]) == 0
    lines = read_lines(folder / "results.jsonl")
    assert lines[0]["kind"] == "machine"
    found = [line for line in lines if line["kind"] == "case"]
    return {
        (line["workload"], line["table_type"], f"{line['writer']}:{line['index']}"): line["right"] for line in found
    }


def test_global_indexes_with_moves(tmp_path: Path) -> None:
    found = cases(tmp_path, "--table-types", "MERGE_ON_READ")
    writers = {writer for _, _, writer in found}
    assert writers == {writer for writer in WRITERS if "BUCKET" not in writer and "bulk" not in writer}
    assert set(found.values()) == {True}


def test_buckets_and_bulk_insert(tmp_path: Path) -> None:
    found = cases(tmp_path, "--workloads", "insert", "update", "--writers", "tagstream:BUCKET", "hudi-spark:BUCKET",
                  "hudi-spark:bulk_insert", "--table-types", "COPY_ON_WRITE")  # fmt: skip
    assert len(found) == 5  # bulk insert can do one of the two workloads
    assert set(found.values()) == {True}


def test_a_failed_case_is_recorded_and_the_others_go_on(tmp_path: Path) -> None:
    flags = ["--table-types", "MERGE_ON_READ", "--writers", "hudi-spark:GLOBAL_SIMPLE", "tagstream:STATE"]
    assert main([*SMALL, "--out", str(tmp_path), *flags, "--conf", "hudi-spark:hoodie.index.class=no.such.Class"]) == 1
    _, failed, *_, case = read_lines(tmp_path / "results.jsonl")
    assert (failed["kind"], failed["writer"], "no.such.Class" in failed["reason"]) == ("failed", "hudi-spark", True)
    assert (case["kind"], case["writer"], case["right"]) == ("case", "tagstream", True)


def test_version_9_with_and_without_a_metadata_table(tmp_path: Path) -> None:
    writers = [
        "tagstream:STATE",
        "tagstream:STATE+metadata",
        "hudi-spark:RECORD_INDEX+metadata",
        "hudi-flink:FLINK_STATE",
    ]
    found = cases(tmp_path, "--table-types", "MERGE_ON_READ", "--table-version", "9", "--writers", *writers)
    assert {writer for _, _, writer in found} == set(writers)
    assert set(found.values()) == {True}
