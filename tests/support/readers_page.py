"""docs/reference/readers.md: which engine reads what, from what ``tests/interop/readers.py`` saw.

``python -m tests.support.readers_page`` writes it, ``--check`` fails when it is stale.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "reference" / "readers.md"
FOUND = ROOT / "tests" / "fixtures" / "readers.json"


@dataclass(frozen=True)
class Shape:
    """One kind of table."""

    merge_on_read: bool
    version: int
    metadata: bool
    compacted: bool = False

    @property
    def name(self) -> str:
        """Of the table."""
        kind = "mor" if self.merge_on_read else "cow"
        return f"{kind}_v{self.version}{'_metadata' * self.metadata}{'_compacted' * self.compacted}"


SHAPES = [
    *(Shape(False, version, metadata) for version, metadata in itertools.product((6, 9), (False, True))),
    *(
        Shape(True, version, metadata, compacted)
        for version, compacted, metadata in itertools.product((6, 9), (False, True), (False, True))
    ),
]

_HEAD = """# Readers

<!-- Written by `python -m tests.support.readers_page` from what `make interop` measured; do not edit. -->

Some engines read merge-on-read tables without their log files and give no error. Their results lack new rows, and have
old and deleted ones. Look up your readers here before you choose the table type and the version.

Each engine read the same rows from every kind of table. The rows were inserted, updated, deleted and moved between
partitions. The result of each was compared with the rows that must be there.

- **all rows**: exactly the current rows.
- **base files alone**: old values and deleted rows are returned, new rows are missing. This is right for an entry `_ro`,
  which is Hudi's read-optimised view.
- The numbers: how many of the current rows were returned, and how many old or deleted ones.

The result is the same with and without a metadata table, unless a cell says something else.
"""
_TAIL = """
Not measured here:

| engine | what its documentation or its issues say |
|---|---|
| Athena, engine 3 | [Hudi 0.14][aws]: copy-on-write of version 6; of merge-on-read compacted rows |
| Trino 473 and earlier releases | fail on the [timeline of version 8][trino] and later |
| Hive, Presto, StarRocks, Doris, BigQuery | nothing was tried |

## What to do

- For Trino, Athena, ClickHouse and Daft write **copy-on-write** tables. Choose version 6 for Daft, Athena and Flink with
  Hudi 0.14.
- If such an engine has to read a merge-on-read table, [compact often](../operations/services.md), and let it read the entry
  `_ro`: its rows are those of the newest compaction.
- The job and `tagstream sync` warn when a merge-on-read table goes to a [catalogue](../operations/catalogues.md).

[aws]: https://docs.aws.amazon.com/athena/latest/ug/querying-hudi.html
[trino]: https://github.com/trinodb/trino/issues/25361
"""
_COLUMNS = [(shape, f"{kind}, version {shape.version}{', compacted' * shape.compacted}")
            for shape in SHAPES if not shape.metadata
            for kind in ["merge-on-read" if shape.merge_on_read else "copy-on-write"]]  # fmt: skip
_ENTRIES = (("", ""), ("_ro", ", entry `_ro`"), ("_rt", ", entry `_rt`"))


def page(found: dict[str, dict[str, dict[str, Any]]]) -> str:
    """The page. `found`: reader -> table, or its entry -> what it read."""
    text, errors = _HEAD, list[str]()
    for merge_on_read, title in ((False, "Copy-on-write"), (True, "Merge-on-read")):
        columns = [(shape, name) for shape, name in _COLUMNS if shape.merge_on_read is merge_on_read]
        short = [name.partition(", ")[2] for _, name in columns]
        text += f"\n## {title}\n\n| engine | {' | '.join(short)} |\n|{'---|' * (len(columns) + 1)}\n"
        for reader, of_reader in found.items():
            for ending, shown in _ENTRIES if merge_on_read else _ENTRIES[:1]:
                if columns[0][0].name + ending in of_reader:
                    cells = [_cell(of_reader, shape, ending, errors) for shape, _ in columns]
                    text += f"| {reader}{shown} | {' | '.join(cells)} |\n"
    text += "\nThe errors:\n\n" + "".join(f"{number}. `{error}`\n" for number, error in enumerate(errors, 1))
    return text + _TAIL


def _cell(of_reader: dict[str, dict[str, Any]], shape: Shape, ending: str, errors: list[str]) -> str:
    with_metadata = Shape(shape.merge_on_read, shape.version, True, shape.compacted)
    plain, other = (_outcome(of_reader[each.name + ending], ending, errors) for each in (shape, with_metadata))
    return plain if plain == other else f"{plain}; with a metadata table: {other}"


def _outcome(seen: dict[str, Any], ending: str, errors: list[str]) -> str:
    """`errors`: what was said so far; a cell has the number."""
    if seen["reads"] == "all":
        return "all rows"
    if seen["reads"] == "nothing":
        if seen["says"] not in errors:
            errors.append(seen["says"])
        return f"error {errors.index(seen['says']) + 1}"
    base = seen["reads"] == "base"
    numbers = f"{seen['there'] - seen['missing']} of {seen['there']} rows" + f", {seen['extra']} old" * bool(
        seen["extra"]
    )
    if base and ending == "_ro":
        return f"base files alone: {numbers}"
    return f"**{'base files alone' if base else 'wrong'}**: {numbers}"


def main(args: Sequence[str] = ()) -> int:
    """Write the page, or check it. Returns the exit code."""
    text = page(json.loads(FOUND.read_text()))
    if "--check" not in args:
        PAGE.write_text(text)
        return 0
    if PAGE.read_text() != text:
        print(f"{PAGE} is stale: run python -m tests.support.readers_page", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
