"""The machine that the figures are of, and how the writers stand: ratios within a run, medians over the runs."""

from __future__ import annotations

import os
import platform
import re
import statistics
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import psutil

from bench.peers import home
from bench.writers.case import TAGSTREAM

_PACKAGES = ("pyspark", "pyarrow", "rocksdict", "numpy", "hudi")


def machine_line() -> dict[str, Any]:
    """What the figures were measured on and with."""
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    java = re.search(r'version "([^"]+)"', said)
    versions = {name: version(name) for name in _PACKAGES}
    peers = {"peer pyspark": home.PYSPARK.partition("==")[2], "peer Hudi on Spark": home.HUDI_VERSIONS[-1]}
    peers |= {"peer Flink": home.FLINK, "peer Hudi on Flink": home.FLINK_HUDI}
    return {
        "kind": "machine",
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "python": platform.python_version(),
        "java": java.group(1) if java else None,
        "versions": versions | peers,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


@dataclass(frozen=True)
class Standing:
    """One writer on one workload, medians over the runs; `ours_is`: ours is so many times as fast (None: this is ours)."""

    workload: str
    table_type: str
    keys: int
    records: int
    writer: str
    runs: int
    records_per_second: float
    median_seconds: float
    best_seconds: float
    ours_is: float | None
    right: bool | None
    peak_mib: float


def standings(lines: Iterable[dict[str, Any]]) -> list[Standing]:
    """Writers in the order they came, by workload. A ratio is taken within one run, then the median over the runs."""
    found: dict[tuple[str, str, int, int], dict[str, list[dict[str, Any]]]] = {}
    for case in (line for line in lines if line["kind"] == "case"):
        group = found.setdefault((case["workload"], case["table_type"], case["keys"], case["records"]), {})
        group.setdefault(f"{case['writer']}:{case['index']}", []).append(case)
    return [
        _standing(what, name, cases, _ours(writers))
        for what, writers in found.items()
        for name, cases in writers.items()
    ]


def _ours(writers: dict[str, list[dict[str, Any]]]) -> dict[str, dict[int, float]]:
    return {
        name.partition(":")[2]: {case["run"]: case["records_per_second"] for case in cases}
        for name, cases in writers.items()
        if name.startswith(TAGSTREAM)
    }


def _standing(
    what: tuple[str, str, int, int], name: str, cases: Sequence[dict[str, Any]], ours: dict[str, dict[int, float]]
) -> Standing:
    index = name.partition(":")[2]
    by_run = ours.get("BUCKET" if index == "BUCKET" and "BUCKET" in ours else "STATE", {})
    ratios = [by_run[case["run"]] / case["records_per_second"] for case in cases if case["run"] in by_run]
    peer = not name.startswith(TAGSTREAM)
    rights = [case["right"] for case in cases]
    return Standing(
        *what,
        name,
        len(cases),
        statistics.median(case["records_per_second"] for case in cases),
        statistics.median(case["median_seconds"] for case in cases),
        min(case["best_seconds"] for case in cases),
        statistics.median(ratios) if ratios and peer else None,
        False if False in rights else None if None in rights else True,
        max(sum(case["peak_mib"].values()) for case in cases),
    )
