"""The cost of Parquet codecs and the file sizes that they give: `python -m bench.codecs`.

One process, in memory: rows are written as in a base file (`table/file_group/base_file.py`), then read. Three kinds of rows:
the flights of 2013, generated events of 8 and of 100 columns, and lines of text (the sources of Python's library). Prints
processor seconds to write (least of `--runs`) and to read, and KiB.
"""

from __future__ import annotations

import argparse
import io
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from bench.flights.data import read_flights
from bench.inputs.event_rows import event_rows
from bench.inputs.lines import append_lines
from tagstream.table.file_group.parquet_options import compression_of, writer_options

_CODECS: tuple[tuple[str, int | None], ...] = (
    ("gzip", 9), ("gzip", 6), ("gzip", 5), ("gzip", 4), ("gzip", 3), ("gzip", 1), ("zstd", 3), ("zstd", 1), ("snappy", None),
)  # fmt: skip


def inputs(share: float) -> Iterator[tuple[str, pa.Table]]:
    """Rows of each kind. ``share``: the share of rows to use, 1 for all."""
    flights = read_flights(12)
    yield "flights", flights.slice(0, int(share * flights.num_rows))
    random = np.random.default_rng(1)
    for columns, count in ((8, 250_000), (100, 60_000)):
        numbers = np.arange(int(share * count))
        yield f"{columns} columns", event_rows(numbers, numbers % 4, numbers, columns, random)
    texts = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    lines = [line for path in texts for line in path.read_text("utf-8", errors="replace").splitlines()]
    yield "text", pa.table({"text": lines[: int(share * len(lines))]})


def cpu_seconds(work: Callable[[], Any], runs: int) -> float:
    """The least processor seconds of some runs."""
    found = []
    for _ in range(runs):
        started = time.process_time()
        work()
        found.append(time.process_time() - started)
    return min(found)


def measure(rows: pa.Table, codec: str, level: int | None, runs: int) -> dict[str, Any]:
    """Seconds and bytes of one codec."""
    options = writer_options(codec, rows) | {"compression_level": level}

    def written() -> bytes:
        out = io.BytesIO()
        pq.write_table(rows, out, **options)
        return out.getvalue()

    data = written()
    return {
        "codec": codec, "level": level, "bytes": len(data), "write_s": cpu_seconds(written, runs),
        "read_s": cpu_seconds(lambda: pq.read_table(io.BytesIO(data)), runs),
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Measure all, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--share", type=float, default=1.0, help="of the rows (default: all)")
    parser.add_argument("--json", type=Path, help="add the figures to this file of JSON lines")
    args = parser.parse_args(argv)
    table = Table("rows", "codec", "write, CPU s", "read, CPU s", "KiB", "size beside gzip 6", "")
    for name, rows in inputs(args.share):
        found = [measure(rows, codec, level, args.runs) for codec, level in _CODECS]
        (usual,) = [one["bytes"] for one in found if (one["codec"], one["level"]) == ("gzip", 6)]
        for one in found:
            codec, level = one["codec"], one["level"]
            label = codec if level is None else f"{codec} {level}"
            ours = "what is written" if compression_of(codec) == (codec, level) else ""
            beside = f"{100 * (one['bytes'] / usual - 1):+.1f} %"
            seconds = (f"{one['write_s']:.2f}", f"{one['read_s']:.2f}")
            table.add_row(name, label, *seconds, f"{one['bytes'] / 1024:,.0f}", beside, ours)
            append_lines(args.json, [{"kind": "codec", "input": name, "rows": rows.num_rows, **one}])
        table.add_section()
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
