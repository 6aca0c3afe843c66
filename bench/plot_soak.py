"""Plot the figures of `bench.soak`: `python -m bench.plot_soak out/bench/results.jsonl docs/images/soak.svg`.

Shows of the last run in the file: uncommitted records, and resident memory by kind of process, over the minutes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from bench.inputs.soak_samples import KINDS
from bench.report.picture import save


def last_run(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The samples of the last soak; ValueError when none has ended."""
    soaks = [line for line in lines if line["kind"] == "soak"]
    ends = [n for n, line in enumerate(soaks) if line.get("summary")]
    if not ends:
        raise ValueError("no soak has ended: run `python -m bench.soak --json FILE` to its end")
    return soaks[ends[-2] + 1 if len(ends) > 1 else 0 : ends[-1]]


def plot(samples: Sequence[dict[str, Any]], picture: Path) -> None:
    """Lag in the upper plot, memory in the lower."""
    minutes = [s["at"] / 60 for s in samples]
    figure, (above, below) = plt.subplots(2, 1, figsize=(8, 5), sharex=True, layout="constrained")
    above.plot(minutes, [s["lag"] for s in samples], linewidth=0.8)
    above.set_ylabel("records behind")
    above.yaxis.set_major_formatter("{x:,.0f}")
    for kind in KINDS:
        below.plot(minutes, [s["mib"][kind] for s in samples], linewidth=0.8, label=kind)
    below.set_ylabel("resident MiB")
    below.set_xlabel("minutes")
    figure.legend(loc="outside lower center", ncols=len(KINDS))
    for axis in (above, below):
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    save(figure, picture)


def main() -> None:
    """Read the figures, write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", type=Path, help="JSON lines")
    parser.add_argument("picture", type=Path)
    args = parser.parse_args()
    with args.figures.open(encoding="utf-8") as f:
        plot(last_run([json.loads(line) for line in f]), args.picture)


if __name__ == "__main__":
    main()
