"""One HTML page from the JSON lines of the benchmarks: no network, no script, light and dark.

`python -m bench.report.page out/bench/results.jsonl`. Known kinds are ``machine``, ``case``, ``failed``, ``batch``, ``tag``,
``limit``, ``soak`` and ``driver``. Any other kind is shown as a table of its members.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from bench.inputs.lines import read_lines
from bench.report import sections
from bench.report.figures import Line, Spread, of_kind, problems, short, situations, type_name

_TEMPLATE = "page.html.j2"


def write_report(jsonl: Path, html: Path) -> None:
    """Write the page for a file of JSON lines. ValueError names an invalid line."""
    lines = read_lines(jsonl)
    html.parent.mkdir(parents=True, exist_ok=True)
    hidden = html.with_name(f".{html.name}.tmp")
    hidden.write_text(render(lines), "utf-8")
    hidden.replace(html)


def render(lines: Sequence[Line]) -> str:
    """The page's text. Everything from the lines is escaped."""
    loader = FileSystemLoader(Path(__file__).parent)
    env = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    filters: dict[str, Callable[..., object]] = {
        "spread": spread,
        "number": number,
        "seconds": seconds,
        "mib": mib,
        "times": times,
        "type": type_name,
    }
    env.filters |= filters
    found = situations(lines)
    return env.get_template(_TEMPLATE).render(
        machines=of_kind(lines, "machine"),
        lines=len(lines),
        problems=problems(lines, found),
        cards=sections.cards(found),
        situations=found,
        plots=sections.plots(lines, found),
        tables=sections.tables(lines),
    )


def number(value: Any) -> str:
    """Digits in groups, three significant ones for small numbers; a dash for no value."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{value:.3g}"


def spread(value: Spread | None, how: str = "number") -> Markup:
    """The median, and after it in small type the least and greatest of several runs."""
    shown = {"number": number, "seconds": seconds, "times": times, "mib": mib}[how]
    if value is None:
        return Markup("–")
    least, greatest = shown(value.least), shown(value.greatest)
    if least == greatest:
        return Markup("<b>{}</b>").format(shown(value.median))
    return Markup("<b>{}</b> <small>{} – {}</small>").format(shown(value.median), least, greatest)


def seconds(value: float | None) -> str:
    """Seconds, in ms if below one."""
    if value is None:
        return "–"
    return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s" if value < 100 else f"{value:,.0f} s"


def mib(value: float | None) -> str:
    """Bytes as MiB."""
    return "–" if value is None else f"{value / 2**20:,.1f} MiB"


def times(value: float | None) -> str:
    """A ratio."""
    if value is None:
        return "–"
    return f"{value:.2f} ×" if value < 1 else f"{value:.1f} ×" if value < 100 else f"{short(value)} ×"


def main() -> None:
    """Write the page next to the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", type=Path)
    parser.add_argument("page", type=Path, nargs="?", help="default: report.html next to the figures")
    args = parser.parse_args()
    page = args.page or args.figures.with_name("report.html")
    write_report(args.figures, page)
    print(page)


if __name__ == "__main__":
    main()
