"""Draw what `bench.index_family` measured: `python -m bench.plot_indexes out/index_family.json docs/images/indexes.svg`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from bench.report.picture import save


def series(figures: list[dict[str, Any]]) -> dict[str, dict[int, float]]:
    """Records/s by name and number of keys. BLOOM has one line for each order of keys and kind of batch."""
    found: dict[str, dict[int, float]] = {}
    for f in figures:
        name = f["index"]
        if (f["layout"], f["batch"]) != ("ordered", "random") and f["layout"] != "bucket":
            kind = "recent keys" if f["batch"] == "recent" else "keys at random over the files"
            if "BLOOM" not in name:
                continue
            name = f"{name}, {kind}"
        found.setdefault(name, {})[f["keys"]] = f["rate"]
    return found


def main() -> None:
    """Read the figures, write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", type=Path)
    parser.add_argument("picture", type=Path)
    args = parser.parse_args()
    found = series(json.loads(args.figures.read_text("utf-8")))
    sizes = sorted({keys for rates in found.values() for keys in rates})
    names = sorted(found, key=lambda name: found[name].get(sizes[-1], 0))
    figure, axes = plt.subplots(figsize=(8, 0.5 * len(names) + 1.2), layout="constrained")
    height = 0.8 / len(sizes)
    for n, keys in enumerate(sizes):
        places = [i + (n - (len(sizes) - 1) / 2) * height for i in range(len(names))]
        bars = axes.barh(places, [found[name].get(keys, 0) for name in names], height, label=f"{keys / 1e6:g} M keys")
        axes.bar_label(bars, fmt="{:,.0f}", padding=3, fontsize=7)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_xlabel("records/s of tagging, batches of 100,000")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.margins(x=0.12)
    axes.legend(loc="lower right")
    save(figure, args.picture)


if __name__ == "__main__":
    main()
