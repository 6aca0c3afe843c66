"""Templates to pages: autoescape always on, one style sheet inline, a policy that lets nothing else in."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tagstream.streaming.page import charts, values

_HERE = "tagstream.streaming.page"


@cache
def environment(package: str) -> Environment:
    """The environment of a room's templates (``package``: its import name), over those that all pages share."""
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
        "bar": charts.bar,
        "trend": charts.trend,
        "stacks": charts.stacks,
        "size_bounds": values.size_bounds(),
    }
    return env


@cache
def source(package: str, name: str) -> str:
    """A file of ours as it is: the style sheet, a script."""
    env = environment(package)
    assert env.loader is not None
    return env.loader.get_source(env, name)[0]


@cache
def policy(package: str, script: str | None = None) -> str:
    """The Content-Security-Policy of a room's pages: our style sheet, our script if there is one, nothing from elsewhere."""
    parts = ["default-src 'none'", f"style-src '{_digest(source(package, 'style.css'))}'", "img-src data:"]
    if script is not None:
        parts += [f"script-src '{_digest(source(package, script))}'", "connect-src 'self'"]
    return "; ".join([*parts, "base-uri 'none'", "form-action 'none'"])


def render(package: str, template: str, values_of: Mapping[str, Any], script: str | None = None) -> bytes:
    """A page in UTF-8; what UTF-8 cannot hold (half of a surrogate pair) becomes a question mark."""
    env = environment(package)
    ours = {
        "style": Markup(source(package, "style.css")),  # files of ours
        "script": Markup(source(package, script)) if script else "",
        "policy": policy(package, script),
    }
    return env.get_template(template).render({**ours, **values_of}).encode("utf-8", "replace")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
