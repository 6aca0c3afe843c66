"""What the status page and the metrics cost the driver: `python -m bench.status_cost [--out FILE] [--batch-seconds S]`.

The largest possible status (60 batches, 1,024 key groups, 2,000 partitions, 20 commits and warnings) is served as in a job.
Each path is requested over HTTP, and each response is rendered again. The processor time of this process counts; the client
is another process. Prints one JSON line: ms per view of each path, and the share of a batch that one scrape and one view of
the page take. The limit is 1 % of a batch.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tagstream.streaming.batch.report import KINDS, BatchReport
from tagstream.streaming.monitor.health import Thresholds
from tagstream.streaming.monitor.run_status import RunStatus
from tagstream.streaming.monitor.server import Pages, StatusServer
from tagstream.streaming.monitor.snapshot import About, CommitLine, GroupSize, TableFiles, largest
from tagstream.table.services.health import FileSizes, total_sizes

PATHS = ("", "status.json", "healthz", "metrics")
VIEWS = 200
# A separate client process: its work does not count as the driver's.
_CLIENT = """
import sys, urllib.request, urllib.error
url, views = sys.argv[1], int(sys.argv[2])
for _ in range(views):
    with urllib.request.urlopen(url) as answer:
        answer.read()
"""


def full_status() -> RunStatus:
    """A status with the largest possible content."""
    now = itertools.count(1_800_000_000_000, 10_000)
    about = About(
        "events", "orders-topic", "/data/events", "/data/ck", "MERGE_ON_READ", "STATE", "kafka", "0.1.0", "4.2.0", "3"
    )
    status = RunStatus(about, lambda: next(now), Thresholds())
    status.query_started()
    for batch in range(300):
        counts: dict[str, Any] = dict.fromkeys(KINDS, 1_000)
        status.lag(batch * 7_919 % 100_000)
        status.batch(
            BatchReport(
                batch_id=batch, instant="20270115080000000", replayed=False, records=sum(counts.values()), **counts,
                files=30, bytes=9_000_000, seconds=2.0, phases={"check": 0.1, "prepare": 0.1, "tasks": 1.6, "commit": 0.2},
                index_keys=0, index_tombstones=0, index_bytes=0, lag=None,
            )
        )  # fmt: skip
    status.groups([GroupSize(label, 10**6 + label, 9, 10**8) for label in range(1_024)], whole=True)
    sizes = {f"day=2027-{n:04}": FileSizes(9, 3, 9, 10**9 + n, 4, 10**6, 2) for n in range(2_000)}
    status.files(TableFiles(1, len(sizes), len(sizes), total_sizes(sizes.values()), largest(sizes, 30)))
    line = CommitLine("20270115080000000", "deltacommit", "orders-topic", 7, 1, 2, 3, 30, 10**9)
    status.commits([line] * 20, 1, exact=True)
    for number in range(20):
        status.warned("WARNING", f"warning {number} " + "x" * 300)
    return status


def measure(views: int) -> dict[str, float]:
    """Milliseconds of this process's processor time for one response of each path."""
    seconds = itertools.count(0.0, 2.0)  # no page is cached: each view renders it again
    server = StatusServer(0, "127.0.0.1", Pages(full_status().snapshot, lambda: next(seconds)))
    found = {}
    try:
        for path in PATHS:
            command = [sys.executable, "-c", _CLIENT, f"http://127.0.0.1:{server.port}/{path}"]
            subprocess.run([*command, "5"], check=True)
            before = time.process_time()
            subprocess.run([*command, str(views)], check=True)
            found[f"/{path}"] = (time.process_time() - before) / views * 1_000
    finally:
        server.close()
    return found


def main() -> None:
    """Measure, print, and append to a file of figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--views", type=int, default=VIEWS)
    parser.add_argument("--batch-seconds", type=float, default=2.0, help="a batch to compare with (default: 2)")
    parser.add_argument("--out", type=Path, help="file of JSON lines to add to")
    args = parser.parse_args()
    found = measure(args.views)
    both = found["/"] + found["/metrics"]
    line = {
        "kind": "status",
        **{f"ms {path}": round(ms, 3) for path, ms in found.items()},
        "page and scrape, ms": round(both, 3),
        "of a batch, %": round(both / args.batch_seconds / 10, 3),
        "batch, s": args.batch_seconds,
        "shortest batch it is 1 % of, s": round(both / 10, 3),
    }
    print(json.dumps(line))
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        with args.out.open("a") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
