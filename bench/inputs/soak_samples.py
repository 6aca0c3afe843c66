"""Samples taken while a soak runs: lag, memory by kind of process, bytes on disk; and their growth."""

from __future__ import annotations

import os
import re
import statistics
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil

MIB = 1 << 20
WARM_S = 120.0  # growth of memory counts after this time, growth of lag after a quarter of it
KINDS = ("driver", "jvm", "workers")
_BATCH = re.compile(r"batch (\d+) \((\d+)\) ([\d,]+) records in ([\d.]+) s")


def memory_mib(driver: int) -> dict[str, float]:
    """Resident MiB of the driver's Python, of its JVM, and of the Python workers.

    Workers are forks of one daemon. Their shared pages must count once, so their memory is the sum of proportional sizes.
    """
    found = dict.fromkeys(KINDS, 0.0)
    with suppress(psutil.Error):
        root = psutil.Process(driver)
        found["driver"] = root.memory_info().rss / MIB
        for process in root.children(recursive=True):
            with suppress(psutil.Error, OSError):
                if process.name() == "java":
                    found["jvm"] += process.memory_info().rss / MIB
                else:
                    found["workers"] += process.memory_full_info().pss / MIB
    return {kind: round(mib, 1) for kind, mib in found.items()}


def bytes_below(folder: Path) -> int:
    """Bytes of all files. Files that are removed meanwhile are not counted."""
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(at, name)).st_size
    return total


def batches_of(log: str) -> list[dict[str, Any]]:
    """Number, records and seconds of every batch in the job's log."""
    return [
        {"batch": int(b), "records": int(n.replace(",", "")), "seconds": float(s)} for b, _, n, s in _BATCH.findall(log)
    ]


def slope(seconds: Sequence[float], values: Sequence[float]) -> float | None:
    """Growth per second, by least squares; None for fewer than three points."""
    if len(seconds) < 3:
        return None
    return float(np.polyfit(np.asarray(seconds, float), np.asarray(values, float), 1)[0])


def summary(samples: Sequence[dict[str, Any]], batches: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Growth of lag (records per second) and memory (MiB per minute), and the batches' times.

    For a run shorter than twice the warm-up only its second half counts.
    """
    end = samples[-1]["at"] if samples else 0.0
    late = [s for s in samples if s["at"] >= min(WARM_S, end / 2)]
    steady = [s for s in samples if s["at"] >= min(WARM_S / 4, end / 2)]
    memory = {}
    for kind in KINDS:
        grown = slope([s["at"] for s in late], [s["mib"][kind] for s in late])
        memory[kind] = None if grown is None else round(grown * 60, 3)
    lag = slope([s["at"] for s in steady], [s["lag"] for s in steady])
    seconds = [b["seconds"] for b in batches]
    return {
        "lag_slope": None if lag is None else round(lag, 2),
        "lag_median": statistics.median(s["lag"] for s in steady) if steady else None,
        "lag_greatest": max((s["lag"] for s in steady), default=None),
        "memory_slope": memory,
        "memory_greatest": {kind: max((s["mib"][kind] for s in samples), default=None) for kind in KINDS},
        "batches": len(batches),
        "batch_seconds": statistics.median(seconds) if seconds else None,
        "batch_seconds_greatest": max(seconds, default=None),
        "batch_records": statistics.median(b["records"] for b in batches) if batches else None,
    }
