"""Plot of a table and its job over many small batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
import numpy as np

_LOOKS = (
    ("logs", "log files of the fullest slice"),
    ("files", "files on disk"),
    ("instants", "active instants"),
    ("driver_mib", "driver (MiB)"),
)
_SMOOTHED = 20  # batches


Seen = tuple[Sequence[float], Sequence[Mapping[str, Any]], Sequence[tuple[int, float]]]


def plot(runs: Mapping[str, Seen], path: Path) -> None:
    """A row per figure, a line per table: seconds of each batch, samples by batch, seconds of starts by batch."""
    figure, axes = plt.subplots(2 + len(_LOOKS), 1, figsize=(9, 13), sharex=True)
    for name, (seconds, samples, starts) in runs.items():
        window = min(_SMOOTHED, len(seconds))
        smooth = np.convolve(seconds, np.ones(window) / window, mode="valid")
        axes[0].plot(np.arange(len(smooth)) + window, smooth, label=name)
        for axis, (look, _) in zip(axes[1:-1], _LOOKS, strict=True):
            axis.plot([s["batch"] for s in samples], [s[look] for s in samples], label=name)
        axes[-1].plot([batch for batch, _ in starts], [took for _, took in starts], marker="o", label=name)
    axes[-1].set_ylabel("a start that finds\nnothing new (s)")
    axes[0].set_ylabel(f"seconds a batch\n(mean of {_SMOOTHED})")
    for axis, (_, text) in zip(axes[1:-1], _LOOKS, strict=True):
        axis.set_ylabel(text)
    for axis in axes:
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[0].legend()
    axes[-1].set_xlabel("batch")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
