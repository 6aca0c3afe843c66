"""Render pages from templates. Autoescape is always on, the style sheet is inline, and the security policy allows
nothing else.

Small charts are inline SVG: only shapes, coloured by classes of the style sheet. Labels and figures are next to them. A
chart contains no text, so no foreign text can get into it, and it can be stretched to any width.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tagstream.streaming.monitor import values

WIDTH, HEIGHT = 600.0, 100.0


def trend(points: Sequence[tuple[float, float]], label: str) -> Markup:
    """A line through (x, y) with the area under it; y starts at 0. Empty for fewer than two points."""
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
    """Stacked columns: one for each of ``columns``, with its values as classes s0, s1, ..."""
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
    return _drawing(Markup("".join(shapes)), label)  # contains only numbers


def bar(share: float, kind: str = "s0") -> Markup:
    """A flat bar for a share from 0 to 1. ``kind``: a class of the style sheet."""
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


_HERE = "tagstream.streaming.monitor"


@cache
def environment(package: str) -> Environment:
    """The Jinja environment for the templates of a package (its import name) and for the shared ones of this package."""
    loader = ChoiceLoader([PackageLoader(package, "."), PackageLoader(_HERE, ".")])
    env = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    env.filters |= {
        "outside": values.outside,
        "number": values.number,
        "size": values.size,
        "span": values.span,
        "moment": values.moment,
    }
    env.globals |= {
        "bar": bar,
        "trend": trend,
        "stacks": stacks,
        "size_bounds": values.size_bounds(),
    }
    return env


@cache
def source(package: str, name: str) -> str:
    """The text of one of our files: the style sheet or a script."""
    env = environment(package)
    assert env.loader is not None
    return env.loader.get_source(env, name)[0]


@cache
def policy(package: str, script: str | None = None) -> str:
    """The Content-Security-Policy of a package's pages: it allows our style sheet and our script, if there is one."""
    parts = ["default-src 'none'", f"style-src '{_digest(source(package, 'style.css'))}'", "img-src data:"]
    if script is not None:
        parts += [f"script-src '{_digest(source(package, script))}'", "connect-src 'self'"]
    return "; ".join([*parts, "base-uri 'none'", "form-action 'none'"])


def render(package: str, template: str, values_of: Mapping[str, Any], script: str | None = None) -> bytes:
    """A page in UTF-8. Characters that UTF-8 cannot encode (half of a surrogate pair) become question marks."""
    env = environment(package)
    ours = {
        "style": Markup(source(package, "style.css")),  # safe, because it is our file
        "script": Markup(source(package, script)) if script else "",
        "policy": policy(package, script),
    }
    return env.get_template(template).render({**ours, **values_of}).encode("utf-8", "replace")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
