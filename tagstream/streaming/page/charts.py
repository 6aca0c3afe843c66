"""Small charts as inline SVG: shapes only, coloured by the style sheet's classes; words and figures stand beside them.

No text is put into a drawing, so nothing from outside gets there, and it can be stretched to any width.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

WIDTH, HEIGHT = 600.0, 100.0


def trend(points: Sequence[tuple[float, float]], label: str) -> Markup:
    """A line over (x, y) with the area under it; y begins at 0. Empty for less than two points."""
    if len(points) < 2:
        return Markup("")
    first, last = points[0][0], points[-1][0]
    top = max(y for _, y in points) or 1.0
    across = (last - first) or 1.0
    path = " L".join(f"{(x - first) / across * WIDTH:.1f} {_height(y, top):.1f}" for x, y in points)
    shapes = Markup('<path class="area" d="M0 {h} L{p} L{w} {h} Z"/><path class="line" d="M{p}"/>').format(
        h=f"{HEIGHT:.0f}", w=f"{WIDTH:.0f}", p=path
    )
    return _drawing(shapes, label)


def stacks(columns: Sequence[Sequence[float]], label: str) -> Markup:
    """A column for each of ``columns``, its values on top of one another as classes s0, s1, ..."""
    if not columns:
        return Markup("")
    top = max(sum(column) for column in columns) or 1.0
    step = WIDTH / max(len(columns), 12)
    shapes = []
    for place, column in enumerate(columns):
        below = 0.0
        for kind, value in enumerate(column):
            upper = below + value
            y, height = _height(upper, top), (upper - below) / top * (HEIGHT - 2)
            if height > 0:
                shapes.append(
                    f'<rect class="s{kind}" x="{place * step:.1f}" y="{y:.2f}" '
                    f'width="{step * 0.8:.1f}" height="{height:.2f}"/>'
                )
            below = upper
    return _drawing(Markup("".join(shapes)), label)  # made of numbers alone


def bar(share: float, kind: str = "s0") -> Markup:
    """A flat bar of a share of 1. ``kind`` is a class of the style sheet."""
    wide = min(1.0, max(0.0, share)) * 100
    return Markup(
        '<svg class="bar" aria-hidden="true"><rect class="rest" width="100%" height="100%" rx="3"/>'
        '<rect class="{}" width="{}%" height="100%" rx="3"/></svg>'
    ).format(kind, f"{wide:.1f}")


def _height(value: float, top: float) -> float:
    return HEIGHT - value / top * (HEIGHT - 2)


def _drawing(shapes: Markup, label: str) -> Markup:
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(f"{WIDTH:.0f}", f"{HEIGHT:.0f}", label, shapes)
