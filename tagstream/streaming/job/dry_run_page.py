"""Facts by name, and lists under them: a table on a terminal, `name: value` lines in a pipe."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

_SHOWN = 30


class Page:
    """Collects what is to be said, and writes it once."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._rows: list[tuple[str, str]] = []
        self._lists: list[tuple[str, list[str]]] = []

    def row(self, name: str, value: str) -> None:
        """A fact."""
        self._rows.append((name, value))

    def list(self, name: str, items: list[str]) -> None:
        """Several items of a kind; on a terminal only the first are shown."""
        self._lists.append((name, items))

    def write(self, out: TextIO, *, terminal: bool | None = None) -> None:
        """Write everything; ``terminal`` None: as the stream is."""
        if not (out.isatty() if terminal is None else terminal):
            lines = [self._title, *(f"{name}: {value}" for name, value in self._rows)]
            for name, items in self._lists:
                lines += [f"{name}: {item}" for item in items]
            out.write("\n".join(lines) + "\n")
            return
        console = Console(file=out, force_terminal=True, highlight=False)
        table = Table(title=Text(self._title), title_justify="left", show_header=False)
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for name, value in self._rows:
            table.add_row(name, Text(value))
        console.print(table)
        for name, items in self._lists:
            console.print(Text(name, style="bold"))
            for item in items[:_SHOWN]:
                console.print(Text(f"  {item}"))
            if len(items) > _SHOWN:
                console.print(Text(f"  and {len(items) - _SHOWN:,} more; all in a pipe"))
