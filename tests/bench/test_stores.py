"""What the programs for stores print, of lines that were not measured; orders of cases on a store."""

from __future__ import annotations

import signal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from bench import bootstrap, store_growth, stores
from bench.inputs.grown_table import Grown
from bench.store_places import HDFS, LOCAL, S3, Place, place
from bench.writers.case import TAGSTREAM
from tests.support.http_proxy import Logged


def line(place_name: str, writer: str, seconds: float, **more: Any) -> dict[str, Any]:
    made = {
        "place": place_name, "writer": writer, "index": "STATE", "seconds": seconds, "table_type": "MERGE_ON_READ",
        "keys": 100, "records": 10, "right": True, "ours": {"PUT": 4}, "spark": {"LIST": 2}, "most": 30, "files": 1,
        "groups": 2,
    }  # fmt: skip
    return made | more


def text_of(table: Table) -> list[list[str]]:
    console = Console(width=250, record=True, file=StringIO())
    console.print(table)
    rows = [row.split("│")[1:-1] for row in console.export_text().splitlines() if row.startswith("│")]
    return [[cell.strip() for cell in row] for row in rows]


def test_peers_stand_beside_this_writer_in_each_place() -> None:
    cases = {
        (LOCAL, "tagstream:STATE"): [line(LOCAL, "tagstream", 1.0)] * 3,
        (LOCAL, "hudi-spark:STATE"): [line(LOCAL, "hudi-spark", 4.0)] * 3,
        ("s3, 0 ms", "tagstream:STATE"): [line("s3, 0 ms", "tagstream", s) for s in (9.0, 9.0, 2.0)],
        ("s3, 0 ms", "hudi-spark:STATE"): [line("s3, 0 ms", "hudi-spark", 16.0, right=None)] * 3,
    }
    rows = text_of(stores.speed_table(cases))
    assert [row[2:] for row in rows] == [
        ["1.00", "10", "100%", "+0.00", "", "yes"],
        ["4.00", "2", "100%", "+0.00", "4.0 times", "yes"],
        ["2.00", "5", "50%", "+1.00", "", "yes"],
        ["16.00", "1", "25%", "+12.00", "8.0 times", "NOBODY COULD READ IT"],
    ]
    on_s3 = {name: lines for name, lines in cases.items() if name[0].startswith(S3)}
    named = [row[0] for row in text_of(stores.request_table(on_s3))]
    assert named == ["s3, 0 ms: ours", "s3, 0 ms: spark", "s3, 0 ms: hudi-spark:STATE"]


def test_requests_are_counted_by_kind_and_key_groups_by_their_deltas() -> None:
    log = [
        Logged(1.0, "PUT", "/b/c/deltas/3/x.sst", ours=True),
        Logged(1.0, "PUT", "/b/c/deltas/3/y.sst", ours=True),
        Logged(1.0, "PUT_IF", "/b/c/deltas/5/x.sst", ours=True),
        Logged(1.0, "LIST", "/b?prefix=c", ours=False),
    ]
    assert stores.requests_of(log) == {"ours": {"PUT": 2, "PUT_IF": 1}, "spark": {"LIST": 1}, "groups": 2}


def test_peers_of_another_engine_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        stores.main(["--peers", "hudi-flink:FLINK_STATE"])
    assert "peers on stores are hudi-spark's alone" in capsys.readouterr().err


def test_growth_varies_one_thing_at_a_time() -> None:
    assert store_growth.tables_of([10, 1000], [100, 10_000]) == [(10, 100), (1000, 100), (10, 10_000)]
    assert store_growth.tables_of([10], [100]) == [(10, 100)]


def test_growth_has_a_row_for_each_table_and_size_of_a_batch() -> None:
    grown = Grown(10, 100, (10, 10, 10, 50, 50), "MERGE_ON_READ", 6)
    lines = store_growth.grown_lines([line("s3, 0 ms", TAGSTREAM, float(n)) for n in range(5)], grown)
    assert [each["records"] for each in lines] == [10, 50, 50]
    rows = text_of(store_growth.as_table(lines, "ours"))
    assert [row[:3] + row[-3:] for row in rows] == [
        ["10", "10", "100", "4.0", "1", "2.00"],
        ["50", "10", "100", "4.0", "1", "3.50"],
    ]


def test_loads_from_stores_are_shares_of_the_local_disks() -> None:
    seconds = {"local": (9.0, 2.0, 2.0), "s3, 20 ms": (9.0, 4.0, 4.0)}
    lines = [{"place": name, "keys": 8, "seconds": s} for name, each in seconds.items() for s in each]
    assert bootstrap.compared(lines)[2:] == ["| local | 2.00 | 4 | 100% |", "| s3, 20 ms | 4.00 | 2 | 50% |"]


def test_files_go_to_a_place_and_come_back(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_text("x")
    with place(LOCAL, 0, tmp_path / "place") as where:
        where.copy_up(tmp_path / "a", "there")
        where.copy_down("there", tmp_path / "back")
    assert (tmp_path / "back" / "b" / "file").read_text() == "x"
    assert not (tmp_path / "place" / "local").exists()
    assert Place(HDFS, 20, "hdfs://h/x", {"dfs.replication": "2"}).options() == {"spark.hadoop.dfs.replication": "2"}


def test_sigterm_ends_a_place_as_an_exception(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, place(LOCAL, 0, tmp_path):
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
