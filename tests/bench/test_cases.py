"""What a writer says becomes lines of figures; the warm-up is in none; the table at the end has each run's own ratios."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.compare import _earlier_runs, as_table, parser, planned
from bench.inputs.lines import append_lines, read_lines
from bench.inputs.workload import Workload
from bench.machine import machine_line
from bench.writers.case import BenchError, Case, Writer, batch_lines, read_events, speed
from bench.writers.run import writer_options
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


def test_a_writer_with_a_metadata_table_is_one_of_its_own() -> None:
    found = Writer.parse("hudi-spark:RECORD_INDEX+metadata")
    assert (found.index, found.metadata, str(found)) == ("RECORD_INDEX", True, "hudi-spark:RECORD_INDEX+metadata")
    with pytest.raises(ValueError, match="there is no writer 'hudi-flink:FLINK_STATE\\+metadata'"):
        Writer.parse("hudi-flink:FLINK_STATE+metadata")


def test_services_make_another_writer_and_all_its_batches_count() -> None:
    found = Writer.parse("tagstream:STATE+metadata+services")
    assert (found.index, found.metadata, found.services, found.called) == (
        "STATE",
        True,
        True,
        "STATE+metadata+services",
    )
    assert Writer.parse("hudi-flink:FLINK_STATE+services").services
    with pytest.raises(ValueError, match="there is no writer 'delta-rs:MERGE\\+services'"):
        Writer.parse("delta-rs:MERGE+services")
    batches = [batch(n, s) for n, s in enumerate((90.0, 80.0, 4.0, 2.0, 6.0))]
    assert speed(replace(case(), writer=found), batches)["records_per_second"] == pytest.approx(100 / 4)


def test_our_writer_has_its_services_where_they_are_told() -> None:
    off = writer_options(case())
    on = writer_options(replace(case(), writer=Writer.parse("tagstream:STATE+services")))
    assert off["hoodie.datasource.write.streaming.disable.compaction"] == "true"
    assert "hoodie.datasource.write.streaming.disable.compaction" not in on
    assert on["hoodie.compact.inline.max.delta.commits"] == "5"


def test_flink_here_knows_one_table_version() -> None:
    assert [Writer.parse(text).version(9) for text in ("hudi-flink:FLINK_STATE", "tagstream:STATE")] == [6, 9]


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
    with pytest.raises(ValueError, match="line 2 is not a JSON object with a kind"):
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


def test_the_table_has_ratios_of_the_same_run_and_what_failed() -> None:
    ours, peer = (100.0, 50.0, 80.0), (10.0, 10.0, 4.0)  # 10, 5 and 20 times; of the medians it would be 8 times
    lines = [case_line("tagstream:STATE", run, rate) for run, rate in enumerate(ours, 1)]
    lines += [case_line("hudi-spark:GLOBAL_BLOOM", run, rate) for run, rate in enumerate(peer, 1)]
    failed = {"kind": "failed", "run": 1, "reason": "no room"}
    lines.append(case_line("hudi-flink:FLINK_STATE", 1, 1.0) | failed)
    table = as_table([{"kind": "machine"}, *lines])
    first, second, third = zip(*(column.cells for column in table.columns), strict=True)
    assert first[3:] == ("tagstream STATE", "3", "80", "0.125", "0.050", "", "right", "153")
    assert second[3:] == ("hudi-spark GLOBAL_BLOOM", "3", "10", "1.000", "0.500", "10.0 x", "right", "153")
    assert third[3:] == ("hudi-flink FLINK_STATE", "0", "failed", "", "", "", "1 FAILED", "")


def test_runs_of_a_later_invocation_are_other_runs() -> None:
    flags = ["--keys", "100", "--records", "10", "--runs", "1", "--workloads", "mixed", "update"]
    mixed, update = planned(
        parser().parse_args([*flags, "--table-types", "MERGE_ON_READ", "--writers", "tagstream:STATE"])
    )
    lines = [{"kind": "machine"}, case_line("tagstream:STATE", 1, 1.0), case_line("hudi-flink:FLINK_STATE", 2, 1.0)]
    assert _earlier_runs(lines, mixed) == 2
    assert _earlier_runs(lines, update) == 0
