"""How the loading of the index shows itself: a bar on a terminal, a log line for each tenth elsewhere."""

from __future__ import annotations

import logging

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tagstream.bootstrap.report import BootstrapProgress

LOG = logging.getLogger("tagstream")
_STAGES = {"scan": "step 1 of 2, reading files", "load": "step 2 of 2, loading key groups"}


class LoadLog:
    """One log line for each tenth of a stage."""

    def __init__(self) -> None:
        self._said = ("", -1)

    def __call__(self, at: BootstrapProgress) -> None:
        step = (at.stage, int(at.share * 10))
        if step == self._said:
            return
        self._said = step
        LOG.info("loading the index, %s", " · ".join([f"{_STAGES[at.stage]} {at.share:.0%}", *_facts(at)]))


def bar(title: str, at: BootstrapProgress) -> RenderableType:
    """The bar of the stage, and under it what is done."""
    head = Table.grid(padding=(0, 1), expand=True)
    head.add_column(no_wrap=True)
    head.add_column(ratio=1)
    head.add_column(no_wrap=True, justify="right")
    name = f"{title}: loading the index, {_STAGES[at.stage]}"
    head.add_row(name, ProgressBar(total=1.0, completed=at.share), f"{at.share:4.0%}")
    return Group(head, Text("  " + " · ".join(_facts(at)), no_wrap=True, overflow="ellipsis"))


def _facts(at: BootstrapProgress) -> list[str]:
    groups = [f"{at.done:,}/{at.total:,} groups"] if at.stage == "load" else []
    left = at.seconds_left
    return [
        *groups,
        f"{at.files:,}/{at.total_files:,} files",
        f"{at.keys:,} keys",
        f"{at.rate:,.0f} keys/s",
        "time left ?" if left is None else f"{_duration(left)} left{', step 2 included' if at.stage == 'scan' else ''}",
    ]


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
