"""Planning a service looks at what has changed: the same folders and files in a table twice as large."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from bench import services_scale

CHANGED, PER_PARTITION = 12, 5


def figures(folder: Path, groups: int) -> list[dict[str, Any]]:
    args = argparse.Namespace(per_partition=PER_PARTITION, changed=[CHANGED, 10**6], runs=2)
    return services_scale.measure_table(folder, groups, args)


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("services-scale")
    return figures(folder / "small", 100) + figures(folder / "large", 200)


@pytest.mark.extended("runs the benchmarks' programs")
@pytest.mark.parametrize("service", ["archiving", "cleaning", "clustering", "compaction"])
def test_a_plan_looks_at_what_changed(lines: list[dict[str, Any]], service: str) -> None:
    found = [line for line in lines if line["service"] == service and line["changed"] == CHANGED]
    looks = {
        groups: [(x["listed"], x["read"], x["holds"]) for x in found if x["groups"] == groups] for groups in (100, 200)
    }
    assert looks[100] == looks[200]
    assert len(looks[100]) == 2  # one a run
    # The changed groups lie one to a partition; a look at the timeline, the archive and the like comes to it.
    assert all(listed <= CHANGED + 10 for listed, _, _ in looks[100])


@pytest.mark.extended("runs the benchmarks' programs")
def test_the_first_plan_looks_at_all(lines: list[dict[str, Any]]) -> None:
    first = [line for line in lines if line["changed"] is None and line["groups"] == 200]
    assert {line["service"] for line in first} == {"archiving", "cleaning", "clustering", "compaction"}
    assert all(line["listed"] > 200 // PER_PARTITION for line in first if line["service"] != "archiving")


@pytest.mark.extended("a benchmark in small")
def test_compaction_and_clean_hold_what_changed(lines: list[dict[str, Any]]) -> None:
    held = {line["service"]: line["holds"] for line in lines if line["changed"] == CHANGED}
    assert held["compaction"] == CHANGED
    # Of each changed group the base file and log before its compaction; ten small batches' logs of ten groups each.
    assert held["cleaning"] == 2 * CHANGED + services_scale.RETAINED * services_scale.SMALL_BATCH
    assert services_scale.as_table(lines).row_count == 4 * 2 * 2
