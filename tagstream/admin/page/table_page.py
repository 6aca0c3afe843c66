"""``tagstream table page``: a table at rest as one HTML file that needs nothing else."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from contextlib import suppress

from tagstream.admin.errors import AdminError
from tagstream.admin.output import Fact, Output
from tagstream.admin.page.facts import TableFacts, table_facts
from tagstream.streaming.page.look import render

_ROOM = "tagstream.admin.page"
GROUPS_SHOWN = 64


def run_page(arguments: argparse.Namespace, out: Output, clock_ms: Callable[[], int]) -> int:
    """Write the page; exit code 1 when index and table differ."""
    path = os.path.abspath(arguments.out)
    found = table_facts(arguments, out)
    content = table_page(found, clock_ms())
    _write(path, content)
    out.facts(
        [
            Fact("table", "table", found.table.config.name),
            Fact("base_path", "path", found.table.base_path),
            Fact("as_of", "as of", found.as_of),
            Fact("out", "page", path),
            Fact("page_bytes", "its size", len(content), "bytes"),
        ]
    )
    if found.index is None:
        return 0
    out.facts([Fact("difference_count", "differences", found.index.difference_count, "count")])
    return 1 if found.index.difference_count else 0


def table_page(found: TableFacts, at_ms: int) -> bytes:
    """The page in UTF-8."""
    groups = found.index.groups if found.index is not None else ()
    most = max((group.keys for group in groups), default=0)
    shown = [(group, group.keys / most if most else 0.0) for group in groups[:GROUPS_SHOWN]]
    slices = max(1, found.files.total.file_groups)
    return render(
        _ROOM,
        "table.html.j2",
        {
            "f": found,
            "at_ms": at_ms,
            "groups": shown,
            "groups_more": max(0, len(groups) - GROUPS_SHOWN),
            "depths": [(name, count, count / slices) for name, count in found.files.log_depths],
            "inserts": [(n, line.inserts + line.updates) for n, line in enumerate(reversed(found.timeline.commits))],
            "written": [(n, line.bytes) for n, line in enumerate(reversed(found.timeline.commits))],
        },
    )


def _write(path: str, content: bytes) -> None:
    """The file appears whole or not at all; one that is there is replaced."""
    hidden = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{os.getpid()}.tmp")
    try:
        with open(hidden, "wb") as file:
            file.write(content)
        os.replace(hidden, path)
    except OSError as e:
        with suppress(OSError):
            os.unlink(hidden)
        raise AdminError(f"{path} cannot be written ({e.strerror}); give another --out") from None
