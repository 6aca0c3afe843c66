"""What is said at the end of a load."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tagstream.streaming.recovery.cover import report_load
from tagstream.table.meta_client.table_config import COPY_ON_WRITE
from tests.bootstrap.index_content import load, make_layout
from tests.table.writer import Writer, row


def test_what_is_odd_is_listed_and_the_end_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    writer.write([row(i, f"p{i % 3}", 1) for i in range(60)])
    (old, file_id) = writer.where.pop("k5")  # so the writer does not know that it moves
    writer.write([row(5, "p9", 0)])
    path = writer.miscounted("p0", 4)
    table = writer.table.reload()
    first = table.timeline().completed_writes[0]
    layout = make_layout(tmp_path, table)
    report = load(table, layout)
    with caplog.at_level(logging.INFO, "tagstream"):
        report_load(report, layout, deletes_known=False)
    said = [r.getMessage() for r in caplog.records]
    newest, kept = table.timeline().newest_completed, writer.where["k5"]
    assert (
        "loading the index: key found twice (the slice with the newest base instant wins): "
        f"k5: kept is p9/{kept[1]} of {newest}, not {old}/{file_id} of {first.time}"
    ) in said
    assert (
        f"loading the index: another number of rows than its commit says: {path} has 10 rows, its commit says 14"
        in said
    )
    assert [line for line in said if line.startswith("loading the index: deletes that are not in the table")]
    where = layout.durable.where(layout.index_load_dir(1)) + "/*.twice.jsonl"
    assert said[-1] == (
        f"index loaded in 0.0 s: 60 keys (0 keys/s) and 0 tombstones, {report.index_bytes / 1024:.1f} KiB, "
        f"{report.bytes_per_key:.1f} bytes a key; 61 rows scanned in 7 files (65 by the commits); "
        f"1 keys found twice (the slice with the newest base instant wins; listed with all places in {where})"
    )


def test_deletes_that_the_index_before_knew_are_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = Writer.create(tmp_path, COPY_ON_WRITE).table
    layout = make_layout(tmp_path, table)
    report = load(table, layout)
    with caplog.at_level(logging.WARNING, "tagstream"):
        report_load(report, layout, deletes_known=True)
    assert not caplog.records
