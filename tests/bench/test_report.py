"""The page: the figures of a file are on it, what went wrong is on top, nothing from the file is markup."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from bench.report.figures import situations
from bench.report.page import render, write_report

HOSTILE = '</td><script>alert("1")</script>&amp;'
VOID = {"meta", "link", "br", "use", "path", "rect"}


def case(run: int, writer: str, index: str, seconds: float, **more: Any) -> dict[str, Any]:
    what = {"run": run, "workload": "mixed", "table_type": "MERGE_ON_READ", "keys": 2_000_000, "records": 100_000}
    figures = {"median_seconds": seconds, "best_seconds": seconds * 0.9, "records_per_second": 100_000 / seconds}
    rest = {"start_seconds": 8.0, "bootstrap_seconds": None, "rows": 7, "right": True, "wrong": None}
    sizes = {"peak_mib": {"jvm": 700, "python": 300}, "bytes": 3 << 20}
    return {"kind": "case", **what, "writer": writer, "index": index, **figures, **rest, **sizes, **more}


def batches(run: int, writer: str, index: str, seconds: float) -> list[dict[str, Any]]:
    of = case(run, writer, index, seconds)
    same = {k: of[k] for k in ("run", "workload", "table_type", "keys", "records", "writer", "index")}
    phases = {"tasks": 0.7 * seconds, "commit": 0.3 * seconds}
    return [{"kind": "batch", **same, "batch": b, "seconds": seconds, "phases": phases} for b in range(5)]


def figures() -> list[dict[str, Any]]:
    """Three runs of ours, of Hudi on Spark (of which one failed) and on Flink, and a line of every other kind."""
    lines: list[dict[str, Any]] = [
        {"kind": "machine", "cores": 2, "memory_gib": 24, "python": "3.11.7", "java": "17.0.1", "versions": {"x": "1.2"},
         "started": "2026-01-01T00:00:00Z"},
    ]  # fmt: skip
    for run, (ours, spark, flink) in enumerate(((2.0, 18.0, 7.0), (2.5, 20.0, 5.0), (4.0, 16.0, 6.0)), 1):
        lines += [case(run, "tagstream", "STATE", ours), case(run, "hudi-flink", "FLINK_STATE", flink)]
        lines += [case(run, "delta-rs", "MERGE", 3 * ours)]
        lines += batches(run, "tagstream", "STATE", ours)
        if run != 2:
            lines.append(case(run, "hudi-spark", "GLOBAL_BLOOM", spark))
        else:
            failed = case(run, "hudi-spark", "GLOBAL_BLOOM", spark)
            lines.append({**failed, "kind": "failed", "reason": f"it ended {HOSTILE}"})
        lines.append({"kind": "tag", "run": run, "keys": 500_000, "per_second": 300_000, "raw_per_second": 600_000})
        lines.append({"kind": "limit", "run": run, "limit": "rocksdict multi-get", "keys": 500_000, "unit": "keys/s",
                      "per_second": 637_000.0 + run, "note": "8 stores"})  # fmt: skip
        lines.append({"kind": "latency", "run": run, "table_type": "MERGE_ON_READ", "keys": 2_000_000, "batch": 5,
                      "seconds": 0.7, "right": True, "steps": {"plan the batch": 0.0123, "stage: tag": 0.456}})  # fmt: skip
        lines.append({"kind": "another", "run": run, "what": "chalk", "figures": {"seen": 0.31 * run}})
        for groups in (1_000, 100_000):
            size = {"touched": 10, "file_groups": groups, "key_groups": 8, "instants": 30}
            step = {"when": "batch", "step": "pin the write profile", "seconds": 0.042, "bytes": 1234}
            lines.append({"kind": "driver", "run": run, **size, **step})
    mib = {"driver": 150.0, "jvm": 900.0, "workers": 400.0}
    lines += [{"kind": "soak", "run": 1, "rate": 28_000, "at": 5.0 * n, "lag": 1_000 * n, "mib": mib} for n in range(4)]
    end = {
        "summary": True,
        "lag_slope": 0.25,
        "memory_slope": {"driver": 0.0, "jvm": 1.5, "workers": 0.1},
        "right": True,
    }
    return [*lines, {"kind": "soak", "run": 1, "rate": 28_000, "batches": 200, "batch_seconds": 2.9, **end}]


class Tags(HTMLParser):
    """Raises when an element is closed that is not the open one."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def parsed(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    tags.close()
    assert tags.open == []
    return tags


def words(page: str) -> str:
    return re.sub(r"\s+", " ", " ".join(parsed(page).text))


def test_the_page_has_the_figures(tmp_path: Path) -> None:
    source = tmp_path / "results.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in figures()))
    write_report(source, tmp_path / "new" / "report.html")
    page = (tmp_path / "new" / "report.html").read_text("utf-8")
    text = words(page)
    assert "2 cores, 24 GiB, Python 3.11.7, Java 17.0.1" in text
    for shown in ("40,000 25,000 – 50,000", "2.5 s 2 s – 4 s"):
        assert shown in text, shown
    assert "2.0 × 1.5 × – 3.5 ×" in text  # ours against Flink, taken run by run
    assert "6.5 × 4.0 × – 9.0 ×" in text  # against Spark in the two runs that it finished
    for shown in ("637,002", "42 ms", "1,234", "plan the batch", "12.3 ms", "chalk", "0.62", "28,000", "0.25", "2.9"):
        assert shown in text, shown
    assert page.count("<svg") == page.count("<figure")
    assert page.count("<figure") == 8  # speeds, batches, phases, steps, tag step, lag, memory, driver
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_the_page_says_what_the_writers_promise() -> None:
    page = words(render(figures()))
    assert "a late event" in page
    assert "counted, not written" in page
    assert "a batch rewrites every file" in page
    assert "replaces the newer row, and moves it back" not in page  # nobody ran Paimon


def test_what_failed_is_shown_and_nothing_of_the_file_is_markup() -> None:
    page = render(figures())
    tags = parsed(page)
    assert "script" not in tags.seen
    text = words(page)
    assert "1 failed or wrong" in text
    assert f"run 2 failed: it ended {HOSTILE}" in text
    assert "1 FAILED" in text.split("Comparison")[1]
    assert "WRONG" not in text
    assert "Every case ended" not in text


@pytest.mark.parametrize("member", ["workload", "table_type", "writer", "index"])
def test_names_of_the_file_are_escaped_in_tables_and_plots(member: str) -> None:
    lines = [case(1, "tagstream", "STATE", 2.0), *batches(1, "tagstream", "STATE", 2.0)]
    page = render([{**line, member: f"$x^2$ {HOSTILE}"} for line in lines])
    assert "script" not in parsed(page).seen
    assert HOSTILE not in page
    assert "$x^2$" in page


def test_wrong_and_unread_rows_are_loud() -> None:
    wrong = case(1, "tagstream", "STATE", 2.0, right=False, wrong="3 lost, 1 doubled")
    unread = case(1, "hudi-flink", "FLINK_STATE", 2.0, right=None)
    soak = {"kind": "soak", "summary": True, "run": 1, "rate": 5_000, "right": False, "wrong": "9 lost"}
    latency = {"kind": "latency", "table_type": "COPY_ON_WRITE", "keys": 5_000, "right": False}
    text = words(render([wrong, unread, soak, latency, latency]))
    assert "4 failed or wrong" in text
    assert "latency, copy-on-write, K = 5 k: rows are wrong" in text
    assert "WRONG" in text.split("Comparison")[1]
    assert "rows are wrong: 3 lost, 1 doubled" in text
    assert "nobody has read the rows" in text
    assert "9 lost" in text
    assert "unread" in text


def test_all_right_is_said_only_when_it_is() -> None:
    assert "and is correct" in words(render([case(1, "tagstream", "STATE", 2.0)]))
    assert "and is correct" not in words(render([{"kind": "machine", "cores": 2, "memory_gib": 1, "python": "", "java": "",
                                               "versions": {}, "started": ""}]))  # fmt: skip


def test_a_bucketed_peer_is_compared_with_our_bucketed_writer() -> None:
    lines = [case(1, "tagstream", "STATE", 4.0), case(1, "tagstream", "BUCKET", 2.0)]
    lines += [case(1, "hudi-spark", "BUCKET", 6.0), case(1, "hudi-spark", "GLOBAL_BLOOM", 20.0)]
    (found,) = situations(lines)
    ratios = {s.writer: s.ratio.median if s.ratio else None for s in found.standings}
    assert ratios["hudi-spark BUCKET"] == pytest.approx(3.0)
    assert ratios["hudi-spark GLOBAL_BLOOM"] == pytest.approx(5.0)
    assert ratios["tagstream STATE"] is None


def test_with_services_ours_is_held_against_itself_without_and_peers_against_ours_with_them() -> None:
    lines = [case(1, "tagstream", "STATE", 2.0), case(1, "tagstream", "STATE+services", 2.5)]
    lines += [
        case(1, "hudi-flink", "FLINK_STATE+services", 10.0),
        case(1, "hudi-spark", "RECORD_INDEX+metadata+services", 20.0),
    ]
    (found,) = situations(lines)
    ratios = {s.writer: s.ratio and s.ratio.median for s in found.standings}
    assert ratios["tagstream STATE"] is None
    assert ratios["tagstream STATE+services"] == pytest.approx(1.25)
    assert ratios["hudi-flink FLINK_STATE+services"] == pytest.approx(4.0)
    assert ratios["hudi-spark RECORD_INDEX+metadata+services"] == pytest.approx(8.0)


def test_with_a_metadata_table_ours_is_held_against_itself_without_one() -> None:
    lines = [case(1, "tagstream", "STATE", 2.0), case(1, "tagstream", "STATE+metadata", 2.5)]
    lines += [case(1, "hudi-spark", "RECORD_INDEX+metadata", 10.0), case(1, "hudi-flink", "FLINK_STATE", 6.0)]
    (found,) = situations(lines)
    ratios = {s.writer: s.ratio.median if s.ratio else None for s in found.standings}
    assert ratios["tagstream STATE"] is None
    assert ratios["tagstream STATE+metadata"] == pytest.approx(1.25)
    assert ratios["hudi-spark RECORD_INDEX+metadata"] == pytest.approx(4.0)
    assert ratios["hudi-flink FLINK_STATE"] == pytest.approx(3.0)


def test_a_ratio_is_taken_within_one_run_of_one_sitting() -> None:
    machine = figures()[0]
    first = [machine, case(1, "tagstream", "STATE", 2.0), case(1, "hudi-flink", "FLINK_STATE", 8.0)]
    second = [machine, case(1, "tagstream", "STATE", 1.0), case(1, "hudi-flink", "FLINK_STATE", 6.0)]
    (found,) = situations([*first, *second, machine, case(1, "hudi-flink", "FLINK_STATE", 3.0)])
    (ratio,) = (s.ratio for s in found.standings if not s.ours)
    assert ratio is not None
    assert (ratio.least, ratio.greatest, ratio.runs) == (pytest.approx(4.0), pytest.approx(6.0), 2)


def test_every_failed_run_leaves_a_row_that_says_so() -> None:
    failed = {**case(1, "hudi-spark", "RECORD_INDEX", 1.0), "kind": "failed", "reason": "no memory"}
    text = words(render([case(1, "tagstream", "STATE", 2.0), failed]))
    assert "hudi-spark RECORD_INDEX – – – –" in text
    assert "FAILED" in text
    assert "no memory" in text


def test_an_empty_file_makes_a_page_and_a_damaged_one_an_error(tmp_path: Path) -> None:
    source = tmp_path / "results.jsonl"
    source.touch()
    write_report(source, tmp_path / "report.html")
    assert "No line says" in (tmp_path / "report.html").read_text("utf-8")
    source.write_text('{"kind": "machine"')
    with pytest.raises(ValueError, match="line 1 is not a JSON object"):
        write_report(source, tmp_path / "report.html")
