"""Plots as SVG for the page: no background, text and axes in the colour of the page's text."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from itertools import accumulate, count
from typing import Any

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from bench.report.figures import Spread, short

_INK = "#123457"  # a unique colour, which is replaced by the page's colour afterwards
# The same colours in every plot. All are readable on white and on near black.
_WRITERS = {
    "tagstream STATE": "#e8590c",
    "tagstream BUCKET": "#f08c00",
    "hudi-spark GLOBAL_BLOOM": "#1c7ed6",
    "hudi-spark GLOBAL_SIMPLE": "#0c8599",
    "hudi-spark RECORD_INDEX": "#9c36b5",
    "hudi-spark BUCKET": "#e64980",
    "hudi-spark bulk_insert": "#868e96",
    "hudi-flink FLINK_STATE": "#2f9e44",
}
_COLOURS = (
    "#1c7ed6",
    "#2f9e44",
    "#9c36b5",
    "#0c8599",
    "#f08c00",
    "#868e96",
    "#e64980",
    "#5c7cfa",
    "#74b816",
    "#a9744f",
)
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tagstream",  # otherwise every run gives other ids
    "text.parse_math": False,  # a name from the figures is not a formula
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.18,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "axes.prop_cycle": cycler(color=_COLOURS),
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "grid.color"), _INK
    ),
}
_WIDTH = 5.2
_numbers = count(1)

Series = Mapping[str, Mapping[float, float]]


def colour_of(name: str, number: int) -> str:
    """A writer's own colour, or the next of the other colours."""
    return _WRITERS.get(name, _COLOURS[number % len(_COLOURS)])


def bars(values: Mapping[str, Spread], unit: str) -> str:
    """A horizontal bar per name, the longest on top, with a line from least to greatest."""
    names = sorted(values, key=lambda n: values[n].median)
    with mpl.rc_context(_STYLE):
        figure, axes = _new(0.38 * len(names) + 0.8)
        axes.grid(axis="y", visible=False)
        medians = [values[n].median for n in names]
        errors = [
            [values[n].median - values[n].least for n in names],
            [values[n].greatest - values[n].median for n in names],
        ]
        colours = [colour_of(n, sorted(names).index(n)) for n in names]
        drawn = axes.barh(
            range(len(names)), medians, 0.66, color=colours, xerr=errors, error_kw={"ecolor": _INK, "lw": 1}
        )
        axes.bar_label(drawn, [f" {short(round(m))}" for m in medians], padding=6, fontsize=9)
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel(unit)
        axes.set_xlim(0, 1.2 * max(v.greatest for v in values.values()))
        _shorten(axes, x=True)
        return _svg(figure)


def lines(
    series: Series,
    across: str,
    up: str,
    *,
    log_x: bool = False,
    log_y: bool = False,
    markers: bool = True,
    whole: bool = False,
) -> str:
    """A line per name. ``whole``: the x axis has only whole numbers."""
    with mpl.rc_context(_STYLE):
        figure, axes = _new(3.4)
        for number, (name, points) in enumerate(sorted(series.items())):
            at = sorted(points)
            axes.plot(
                at,
                [points[x] for x in at],
                label=name,
                color=colour_of(name, number),
                marker="o" if markers else None,
                ms=4,
            )
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        if whole:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if log_x:
            axes.set_xscale("log")
        if log_y:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        _shorten(axes, x=True, y=True)
        _legend(figure, axes, len(series))
        return _svg(figure)


def stacked(parts: Mapping[str, Mapping[str, float]], unit: str) -> str:
    """A horizontal bar per name, divided into its parts."""
    names = list(reversed(list(parts)))
    kinds = list(dict.fromkeys(kind for each in parts.values() for kind in each))
    with mpl.rc_context(_STYLE):
        figure, axes = _new(0.5 * len(names) + 1.4)
        axes.grid(axis="y", visible=False)
        left = [0.0] * len(names)
        for number, kind in enumerate(kinds):
            widths = [parts[n].get(kind, 0.0) for n in names]
            axes.barh(range(len(names)), widths, 0.6, left=left, label=kind, color=_COLOURS[number % len(_COLOURS)])
            left = [a + b for a, b in zip(left, widths, strict=True)]
        axes.set_yticks(range(len(names)), [n.replace(", K", "\nK") for n in names])
        axes.set_xlabel(unit)
        _legend(figure, axes, len(kinds))
        return _svg(figure)


def waterfall(steps: Mapping[str, float], unit: str) -> str:
    """A bar per step from the top down. Each begins where the one before ended."""
    names = list(reversed(list(steps)))
    ends = list(accumulate(steps.values()))
    with mpl.rc_context(_STYLE):
        figure, axes = _new(0.3 * len(names) + 0.8)
        axes.grid(axis="y", visible=False)
        lefts = [end - steps[name] for name, end in zip(steps, ends, strict=True)][::-1]
        drawn = axes.barh(
            range(len(names)), [steps[n] for n in names], 0.7, left=lefts, color=_WRITERS["tagstream STATE"]
        )
        axes.bar_label(drawn, [f"{steps[n]:,.0f}" for n in names], padding=4, fontsize=9)
        axes.set_yticks(range(len(names)), names, fontsize=9)
        axes.set_xlim(0, 1.12 * max(ends[-1], 1e-9))
        axes.set_xlabel(unit)
        return _svg(figure)


def dots(values: Mapping[str, Sequence[float]], unit: str) -> str:
    """Every value as a dot in its name's row, the median as a stroke, on a logarithmic axis."""
    names = sorted(values, key=lambda n: -sorted(values[n])[len(values[n]) // 2])
    with mpl.rc_context(_STYLE):
        figure, axes = _new(0.42 * len(names) + 0.9)
        for row, name in enumerate(names):
            found = sorted(values[name])
            colour = colour_of(name, sorted(names).index(name))
            axes.plot(found, [row] * len(found), "o", ms=5, alpha=0.35, color=colour, mew=0)
            axes.plot([found[len(found) // 2]], [row], "|", ms=18, mew=2.5, color=colour)
        axes.set_yticks(range(len(names)), names)
        axes.set_xscale("log")
        axes.set_xlabel(unit)
        axes.set_ylim(-0.6, len(names) - 0.4)
        _shorten(axes, x=True)
        return _svg(figure)


def _new(height: float) -> tuple[Figure, Axes]:
    figure, axes = plt.subplots(figsize=(_WIDTH, height), layout="constrained")
    return figure, axes


def _legend(figure: Figure, axes: Axes, entries: int) -> None:
    names = axes.get_legend_handles_labels()[1]
    if entries:
        narrow = max(map(len, names)) <= 24
        figure.legend(loc="outside upper left", ncols=2 if narrow else 1, fontsize=9)


def _shorten(axes: Axes, *, x: bool = False, y: bool = False) -> None:
    """2 M for 2000000."""
    for axis, wanted in ((axes.xaxis, x), (axes.yaxis, y)):
        if not wanted:
            continue
        axis.set_major_formatter(FuncFormatter(_tick))
        if axis.get_scale() == "log":
            low, high = axis.get_view_interval()
            few = high / low < 50
            axis.set_minor_formatter(
                FuncFormatter(lambda v, _, few=few: _tick(v) if few and f"{v:e}"[0] in "25" else "")
            )


def _tick(value: float, _: object = None) -> str:
    return short(value) if abs(value) >= 1000 else f"{value:g}"


def _svg(figure: Figure) -> str:
    """The figure's SVG element, with unique ids, as wide as its container."""
    out = io.StringIO()
    figure.savefig(
        out, format="svg", transparent=True, metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
    )
    plt.close(figure)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    prefix = f"plot{next(_numbers)}-"
    text = re.sub(r"<style.*?</style>", "", text, count=1, flags=re.DOTALL)  # it would apply to the whole page
    text = re.sub(r"font-family: [^;]*;", "", text)
    text = re.sub(r'\bid="', f'id="{prefix}', text)
    text = re.sub(r'(xlink:href="|url\()#', rf"\g<1>#{prefix}", text)
    text = re.sub(r'<svg ([^>]*?)width="[^"]*pt" ', r"<svg \1", text, count=1)
    text = re.sub(r'<svg ([^>]*?)height="[^"]*pt" ', r"<svg \1", text, count=1)
    return text.replace(_INK, "currentColor")
