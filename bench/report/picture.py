"""Pictures for the docs: SVG files that are identical each time they are drawn."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure


def save(figure: Figure, picture: Path) -> None:
    """Write a figure to a file, whose folder is made if missing, and close the figure."""
    picture.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "tagstream"}):  # otherwise every run gives other ids
        figure.savefig(picture, format="svg", metadata={"Date": None})
    plt.close(figure)
