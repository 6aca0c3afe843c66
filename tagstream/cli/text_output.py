"""Output as text: tables on a terminal, plain aligned columns everywhere else.

A table that is wider than the terminal is shown row by row, one column per line. Names, instants and numbers are never cut.
Long values are shortened to ``width`` characters; JSON has them whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.status import Status
from rich.table import Table
from rich.text import Text

from tagstream.cli.output import Column, Fact, Kind, plain
from tagstream.streaming.monitor.values import size

SHOWN_CHARS = 100
_FOLDED = 20  # a text may be wrapped to this width; a table that is still too wide is shown row by row
_CHUNK_ROWS = 1000
_GAP = "  "
_NOTHING = "-"
_NUMBERS = ("count", "bytes")
_CONTROL = {code: repr(chr(code))[1:-1] for code in (*range(32), 127)}


class TerminalOutput:
    """Tables by rich. Long listings are tables of a thousand rows, each with its header."""

    def __init__(self, stream: TextIO, *, vertical: bool = False, width: int = SHOWN_CHARS) -> None:
        self._console = Console(file=stream, highlight=False)
        self._vertical = vertical
        self._width = width
        self._status: Status | None = None

    def facts(self, facts: Sequence[Fact]) -> None:
        """Write two columns without a frame."""
        grid = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(overflow="fold")
        for fact in facts:
            if not fact.json_only:
                grid.add_row(fact.title, Text(shown(fact.value, fact.kind)))
        self._console.print(grid)

    def listing(self, name: str, columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> int:
        """Write a table with a header, or the rows one below the other. ``name`` is only for JSON."""
        del name
        wanted = [i for i, column in enumerate(columns) if not column.json_only]
        count = 0
        for chunk in _chunks(rows):
            cells = [[shortened(shown(row[i], columns[i].kind), self._width) for i in wanted] for row in chunk]
            of = [columns[i] for i in wanted]
            if self._vertical or self._too_wide(of, cells):
                self._console.print(_below_one_another(of, cells, count), end="")
            else:
                self._console.print(_table(of, cells))
            count += len(chunk)
        return count

    def _too_wide(self, columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> bool:
        needed = 0
        for place, column in enumerate(columns):
            widest = max(cell_len(row[place]) for row in cells)
            may_fold = column.kind == "text"
            needed += max(cell_len(column.title), min(widest, _FOLDED) if may_fold else widest) + 1
        return needed - 1 > self._console.width

    def note(self, text: str) -> None:
        """Write a dim line."""
        self._console.print(Text(text, style="dim"))

    def progress(self, text: str) -> None:
        """Show a line that is removed at the end."""
        if self._status is None:
            self._status = self._console.status("")
            self._status.start()
        self._status.update(Text(text, style="dim"))

    def close(self, error: str | None = None) -> None:
        """Remove the progress line. The caller prints an error on standard error."""
        del error
        if self._status is not None:
            self._status.stop()


class PlainOutput:
    """Aligned columns without colour or wrapping. Numbers have no separators, so that other programs can sort them."""

    def __init__(self, stream: TextIO, *, vertical: bool = False, width: int = SHOWN_CHARS) -> None:
        self._stream = stream
        self._vertical = vertical
        self._width = width

    def facts(self, facts: Sequence[Fact]) -> None:
        """Write ``title  value`` lines."""
        found = [fact for fact in facts if not fact.json_only]
        width = max((cell_len(fact.title) for fact in found), default=0)
        for fact in found:
            self._stream.write(f"{_pad(fact.title, width)}{_GAP}{_bare(fact.value)}".rstrip() + "\n")

    def listing(self, name: str, columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> int:
        """Write a line of titles and one line per row. The widths are those of the first rows; wider values extend them."""
        del name
        wanted = [i for i, column in enumerate(columns) if not column.json_only]
        widths = [0] * len(wanted)
        count = 0
        for chunk in _chunks(rows):
            lines = [[shortened(_bare(row[i]), self._width) for i in wanted] for row in chunk]
            if self._vertical:
                self._stream.write(_below_one_another([columns[i] for i in wanted], lines, count).plain)
                count += len(chunk)
                continue
            if count == 0:
                lines.insert(0, [columns[i].title for i in wanted])
            for place in range(len(wanted)):
                widths[place] = max(widths[place], *(cell_len(line[place]) for line in lines))
            for line in lines:
                cells = (
                    _pad(cell, width, right=columns[i].kind in _NUMBERS)
                    for cell, width, i in zip(line, widths, wanted, strict=True)
                )
                self._stream.write(_GAP.join(cells).rstrip() + "\n")
            count += len(chunk)
        return count

    def note(self, text: str) -> None:
        """Write a line."""
        self._stream.write(text + "\n")

    def progress(self, text: str) -> None:
        """Only on terminals."""

    def close(self, error: str | None = None) -> None:
        """Flush the output. The caller prints an error on standard error."""
        del error
        self._stream.flush()


def shortened(text: str, width: int) -> str:
    """A value cut to ``width`` characters, with the number of characters left out; whole when ``width`` is 0."""
    if not width or len(text) <= width:
        return text
    rest = f"… +{len(text) - width:,}"
    return text[: max(1, width - len(rest))] + f"… +{len(text) - max(1, width - len(rest)):,}"


def _table(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in columns:
        justify: JustifyMethod = "right" if column.kind in _NUMBERS else "left"
        whole = column.kind != "text"
        table.add_column(Text(column.title.translate(_CONTROL)), justify=justify, overflow="fold", no_wrap=whole)
    for row in cells:
        table.add_row(*map(Text, row))
    return table


def _below_one_another(columns: Sequence[Column], cells: Sequence[Sequence[str]], before: int) -> Text:
    """Each row as lines of title and value, below its number. ``before``: number of rows already shown."""
    titles = [column.title.translate(_CONTROL) for column in columns]
    width = max(map(cell_len, titles))
    out = Text(overflow="fold")
    for number, row in enumerate(cells, before + 1):
        out.append(f"-- {number:,} --\n", style="dim")
        for title, cell in zip(titles, row, strict=True):
            out.append(_pad(title, width), style="bold")
            out.append(f"{_GAP}{cell}".rstrip() + "\n")
    return out


def shown(value: Any, kind: Kind) -> str:
    """A value as text for people: separators in counts, units for bytes."""
    if value is not None and kind == "count":
        return f"{value:,}"
    if value is not None and kind == "bytes":
        return size(value)
    return _bare(value)


def _bare(value: Any) -> str:
    value = plain(value)
    if value is None:
        return _NOTHING
    if isinstance(value, bool):
        return str(value).lower()
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
    # A control character of a key or value must not reach the terminal as a command.
    return text.translate(_CONTROL)


def _pad(text: str, width: int, *, right: bool = False) -> str:
    blanks = " " * (width - cell_len(text))
    return blanks + text if right else text + blanks


def _chunks(rows: Iterable[Sequence[Any]]) -> Iterator[list[Sequence[Any]]]:
    stream = iter(rows)
    for first in stream:
        yield list(chain([first], islice(stream, _CHUNK_ROWS - 1)))
