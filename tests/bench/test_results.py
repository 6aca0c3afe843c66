"""Lines of figures: written, read back, and what the writers' standings make of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.lines import append_lines, read_lines
from bench.results import machine_line, standings
from bench.workload import Workload
from bench.writers.case import BenchError, Case, Writer, batch_lines, read_events, speed
from tests.bench.comparing import case_line


def case(records: int = 100, batches: int = 5) -> Case:
    workload = Workload("mixed", 1000, records, batches)
    return Case(2, workload, Path("w"), "MERGE_ON_READ", Writer("tagstream", "STATE"), Path("b"), Path("p"))


def batch(number: int, seconds: float) -> dict[str, object]:
    return {
        "event": "batch",
        "batch": number,
        "seconds": seconds,
        "phases": {"tasks": seconds},
        "load1": 0.5,
        "at": 1.0,
    }


def test_lines_are_appended_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    append_lines(path, [{"kind": "machine"}])
    append_lines(path, [{"kind": "case", "right": None}, {"kind": "failed", "reason": "a\nb"}])
    assert read_lines(path) == [
        {"kind": "machine"},
        {"kind": "case", "right": None},
        {"kind": "failed", "reason": "a\nb"},
    ]


@pytest.mark.parametrize("bad", ['{"kind": "ca', "[1]", '{"run": 1}'])
def test_a_line_that_is_none_is_named(bad: str, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"kind": "machine"}\n' + bad + "\n")
    with pytest.raises(ValueError, match="line 2 is no JSON object with a kind"):
        read_lines(path)


def test_the_machine_is_described() -> None:
    line = machine_line()
    assert line["kind"] == "machine"
    assert line["cores"] >= 1
    assert line["memory_gib"] >= 1
    assert line["java"].startswith("17")
    assert line["versions"]["peer Hudi on Spark"] == "1.2.0"


def test_the_warm_up_is_in_no_figure() -> None:
    found = speed(case(), [batch(n, s) for n, s in enumerate((90.0, 80.0, 4.0, 2.0, 5.0))])
    assert found == {"median_seconds": 4.0, "best_seconds": 2.0, "records_per_second": 25.0}


def test_five_batches_of_one_row_are_warm_up() -> None:
    found = speed(case(records=1), [batch(n, s) for n, s in enumerate((9.0, 9.0, 9.0, 9.0, 9.0, 0.5, 0.25, 1.0))])
    assert found == {"median_seconds": 0.5, "best_seconds": 0.25, "records_per_second": 2.0}


def test_with_nothing_after_the_warm_up_the_last_batch_counts() -> None:
    assert speed(case(), [batch(0, 9.0), batch(1, 4.0)])["median_seconds"] == 4.0


def test_batches_become_lines_with_the_case_they_belong_to() -> None:
    lines = batch_lines(case(batches=2), [{"event": "ready"}, batch(0, 1.5), batch(1, 1.0), {"event": "end"}])
    assert [line["batch"] for line in lines] == [0, 1]
    assert lines[0] == {
        "kind": "batch", "run": 2, "workload": "mixed", "table_type": "MERGE_ON_READ", "keys": 1000, "records": 100,
        "writer": "tagstream", "index": "STATE", "batch": 0, "seconds": 1.5, "phases": {"tasks": 1.5}, "load1": 0.5,
    }  # fmt: skip


@pytest.mark.parametrize("made", [[0], [0, 2], [0, 1, 2], []])
def test_another_number_of_batches_is_no_figure(made: list[int]) -> None:
    with pytest.raises(BenchError, match="made batches"):
        batch_lines(case(batches=2), [batch(n, 1.0) for n in made])


def test_events_of_a_writer_that_was_cut_off(tmp_path: Path) -> None:
    assert read_events(tmp_path / "none.jsonl") == []
    (tmp_path / "events.jsonl").write_text('{"event": "ready"}\n{"event": "bat')
    assert read_events(tmp_path / "events.jsonl") == [{"event": "ready"}]


def test_ratios_are_of_the_same_run_and_the_median_of_the_runs() -> None:
    ours, peer = (100.0, 50.0, 80.0), (10.0, 10.0, 4.0)  # 10, 5 and 20 times; of the medians it would be 8 times
    lines = [case_line("tagstream:STATE", run, rate) for run, rate in enumerate(ours, 1)]
    lines += [case_line("hudi-spark:GLOBAL_BLOOM", run, rate) for run, rate in enumerate(peer, 1)]
    first, second = standings([{"kind": "machine"}, *lines])
    assert (first.writer, first.runs, first.records_per_second, first.ours_is) == ("tagstream:STATE", 3, 80.0, None)
    assert (second.writer, second.records_per_second, second.ours_is) == ("hudi-spark:GLOBAL_BLOOM", 10.0, 10.0)
    assert (second.median_seconds, second.best_seconds, second.peak_mib) == (1.0, 0.5, 153)


def test_a_bucketed_peer_is_compared_with_our_buckets_where_there_are_some() -> None:
    state, buckets = case_line("tagstream:STATE", 1, 60.0), case_line("tagstream:BUCKET", 1, 90.0)
    peers = [case_line("hudi-spark:BUCKET", 1, 30.0), case_line("hudi-spark:bulk_insert", 1, 20.0)]
    ratios = {s.writer: s.ours_is for s in standings([state, buckets, *peers])}
    assert ratios == {
        "tagstream:STATE": None, "tagstream:BUCKET": None, "hudi-spark:BUCKET": 3.0, "hudi-spark:bulk_insert": 3.0,
    }  # fmt: skip
    assert standings([state, peers[0]])[1].ours_is == 2.0
    assert standings([peers[0]])[0].ours_is is None


def test_one_wrong_run_makes_a_writer_wrong_and_one_unread_run_unread() -> None:
    def right(*runs: bool | None) -> bool | None:
        lines = [case_line("tagstream:STATE", n, 1.0, right=each) for n, each in enumerate(runs)]
        return standings(lines)[0].right

    assert [right(True, True), right(True, None), right(None, False, True)] == [True, None, False]
