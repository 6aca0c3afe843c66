"""A stream with table and checkpoint on S3 or HDFS, compared with this disk: `python -m bench.stores`.

Real servers on loopback (MinIO, HDFS with two DataNodes), each without and with `--delays` milliseconds more for every
request, by a proxy. The same files are streamed in each place: `--batches` of `--records` records into a table of `--keys`
keys, and as many of ten records. Prints records/s and seconds per batch, also relative to the local disk; for S3 also the
requests per batch by kind, of this project and of Spark's checkpoint, and the limit by the design: three for each data file,
two for each changed key group, and twenty. hudi-rs reads a copy of the tables; exit code 1 when one is wrong.

`--peers hudi-spark:GLOBAL_SIMPLE`: then also Hudi's own writer on Spark, in each place on the same server with the same
files and the options of `bench.compare`. Prints the ratio of its seconds to this writer's.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.base_tables import base_of
from bench.inputs.lines import append_lines
from bench.inputs.workload import Workload, make_workload
from bench.peers import home
from bench.store_places import HDFS, HDFS_COMMITTED, LOCAL, S3, Place, place
from bench.writers.case import (
    HUDI_SPARK,
    TABLE_TYPES,
    TAGSTREAM,
    WARM_UP,
    WITH_SERVICES,
    Case,
    Writer,
    batch_lines,
    read_events,
)
from bench.writers.run import order_of, run_writer
from bench.writers.verdict import judge
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tests.support.http_proxy import Logged

SMALL = 10  # records of a batch whose cost is only the fixed cost of a batch
Cases = dict[tuple[str, str], list[dict[str, Any]]]  # lines by place and writer
KINDS = ("LIST", "HEAD", "GET", "PUT", "PUT_IF", "COPY", "DELETE_MANY", "DELETE")


def measure(case: Case, where: Place, timeout_s: float, *, checkpoint_here: bool = False) -> list[dict[str, Any]]:
    """Run a case in a place and return a line per batch. ``checkpoint_here``: the checkpoint is on this disk."""
    shutil.rmtree(case.place, ignore_errors=True)
    case.place.mkdir(parents=True)
    name = f"{case.writer.name}-{case.writer.called}".lower()
    where.copy_up(case.base, f"{name}/table")
    order = order_there(case, where, f"{where.url}/{name}")
    if checkpoint_here:
        order.pop("checkpoint", None)
    if where.proxy is not None:
        where.proxy.reset()
    run_writer(case, order, timeout_s)
    events = read_events(case.events)
    log = [] if where.proxy is None else list(where.proxy.log)
    where.copy_down(f"{name}/table", case.table)
    verdict = judge(case, timeout_s)
    files = files_of_batches(case)
    moments = [e["at"] for e in events if e["event"] in ("ready", "batch")]
    lines = []
    for line, (begin, end), made in zip(batch_lines(case, events), pairwise(moments), files, strict=True):
        asked = requests_of([r for r in log if begin <= r.at < end])
        most = 3 * made + 2 * asked["groups"] + 20  # requests that a batch may make by the design
        more: dict[str, Any] = {"kind": "store", "place": where.name, "right": verdict.right, "checked_by": verdict.by}
        more |= {"wrong": verdict.why, "files": made, "checkpoint_here": checkpoint_here}
        lines.append(line | more | asked | {"most": most})
    return lines


def order_there(case: Case, where: Place, folder: str) -> dict[str, Any]:
    """The order of a case with table and checkpoint in a folder of a place."""
    order = order_of(case) | {"table": f"{folder}/table", "checkpoint": f"{folder}/checkpoint"}
    if case.writer.name == HUDI_SPARK:
        jars = home.s3a_jars() if where.kind == S3 else []
        return order | {"hadoop": dict(where.settings), "jars": list(map(str, jars))}
    return order | {"options": order["options"] | where.options()}


def requests_of(log: Sequence[Logged]) -> dict[str, Any]:
    """Requests by kind. ``groups``: key groups with a new delta."""
    ours = Counter(r.kind for r in log if r.ours)
    puts = [r.target for r in log if r.kind.startswith("PUT") and "/deltas/" in r.target]
    groups = {target.split("/deltas/")[1].split("/")[0] for target in puts}
    return {"ours": dict(ours), "spark": dict(Counter(r.kind for r in log if not r.ours)), "groups": len(groups)}


def files_of_batches(case: Case) -> list[int]:
    """Number of data files in each commit of the stream, in order."""
    opened = HoodieTable.open(str(case.table))
    timeline = opened.timeline()
    found = [timeline.metadata(opened.storage, i) for i in timeline.completed_writes]
    if case.writer.name == TAGSTREAM:
        found = [each for each in found if "tagstream.commit" in each.extra]  # without the commits of services
    return [len(list(each.all_stats())) for each in found[-case.workload.batches :]]


def speed_table(cases: Cases) -> Table:
    """A row per place and writer. ``of local``: relative to the same writer on the local disk."""
    first = next(iter(cases.values()))[0]
    title = f"{first['table_type']}, {first['keys']:,} keys, batches of {first['records']:,} records"
    columns = ("s a batch (median)", "records/s", "of local", "more than local (s)", "this writer is faster", "right")
    table = Table("", "writer", *columns, title=title)
    seconds = {name: statistics.median(line["seconds"] for line in warm(lines)) for name, lines in cases.items()}
    for (place_name, writer), each in seconds.items():
        lines = cases[place_name, writer]
        local = seconds[first["place"], writer]
        ours = seconds[place_name, _writer_of(first)]
        times = "" if writer == _writer_of(first) else f"{each / ours:.1f} times"
        right = {True: "yes", False: "NO", None: "NOBODY COULD READ IT"}[lines[0]["right"]]
        speed = (f"{each:.2f}", f"{first['records'] / each:,.0f}", f"{local / each:.0%}", f"{each - local:+.2f}")
        table.add_row(place_name, writer, *speed, times, right)
    return table


def request_table(cases: Cases) -> Table:
    """Requests per batch: the mean of the warm batches, because services run every few batches."""
    table = Table("requests of a batch", *KINDS, "all", "at most", "files", "key groups", title="S3, mean")
    for (place_name, writer), lines in cases.items():
        is_ours = lines[0]["writer"] == TAGSTREAM
        for who in ("ours", "spark") if is_ours else ("spark",):  # all of a peer's requests come from Hadoop's client
            counts = [statistics.mean(line[who].get(kind, 0) for line in warm(lines)) for kind in KINDS]
            total = statistics.mean(sum(line[who].values()) for line in warm(lines))
            sizes = [statistics.mean(line[name] for line in warm(lines)) for name in ("most", "files", "groups")]
            shown = [f"{value:.0f}" for value in sizes] if who == "ours" else ["", "", ""]
            name = f"{place_name}: {who if is_ours else writer}"
            table.add_row(name, *(f"{count:.0f}" for count in counts), f"{total:.0f}", *shown)
    return table


def _writer_of(line: dict[str, Any]) -> str:
    return f"{line['writer']}:{line['index']}"


def warm(lines: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Without the first batches, in which Java compiles."""
    return lines[WARM_UP:] or lines


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="default: %(default)s")
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--records", type=int, nargs="+", default=[400_000, SMALL], help="default: %(default)s")
    parser.add_argument("--batches", type=int, default=7, help="the first two are warm-up (default: %(default)s)")
    parser.add_argument("--table-types", nargs="+", choices=TABLE_TYPES, default=["MERGE_ON_READ"])
    parser.add_argument("--stores", nargs="*", choices=(S3, HDFS, HDFS_COMMITTED), default=[S3, HDFS])
    parser.add_argument("--delays", type=float, nargs="+", default=[0, 20], help="ms (default: %(default)s)")
    parser.add_argument("--checkpoint-here", action="store_true", help="checkpoints on this disk, tables on the stores")
    parser.add_argument("--services", action="store_true", help="compaction every five commits, cleaning, archiving")
    parser.add_argument(
        "--peers",
        nargs="*",
        type=Writer.parse,
        default=[],
        metavar="WRITER",
        help=f"{HUDI_SPARK}:INDEX, after this writer",
    )
    parser.add_argument("--conf", nargs="*", default=[], metavar="KEY=VALUE", help="options of this writer's job")
    parser.add_argument("--case-timeout", type=float, default=1800.0, metavar="S")
    args = parser.parse_args(argv)
    out = args.out.absolute()
    console = Console(width=150 if not sys.stdout.isatty() else None)
    if any(peer.name != HUDI_SPARK for peer in args.peers):
        parser.error(f"peers on stores are {HUDI_SPARK}'s alone")
    writers = [Writer.parse("tagstream:STATE" + WITH_SERVICES * args.services), *args.peers]
    places = [(LOCAL, 0.0), *((store, delay) for store in args.stores for delay in args.delays)]
    conf = dict(text.split("=", 1) for text in args.conf)
    wrong = 0
    for records in args.records:
        workload = Workload("mixed", args.keys, records, args.batches)
        folder = make_workload(workload, out / "cache")
        for table_type in args.table_types:
            cache, limit = out / "cache" / "tables", args.case_timeout
            bases = [
                base_of(each, workload, folder, table_type, codec="zstd", cache=cache, timeout_s=limit)
                for each in writers
            ]
            cases: Cases = {}
            for kind, delay in places:
                at = out / "cases" / f"store-{kind}-{delay:g}-{records}-{table_type}".lower()
                shutil.rmtree(at, ignore_errors=True)
                with place(kind, delay, at) as where:
                    for writer, base in zip(writers, bases, strict=True):
                        own = conf if writer.name == TAGSTREAM else {}
                        case = Case(1, workload, folder, table_type, writer, base, at / "case", conf=own)
                        lines = measure(case, where, limit, checkpoint_here=args.checkpoint_here)
                        cases[where.name, str(writer)] = lines
                        append_lines(out / "results.jsonl", lines)
                        wrong += not lines[0]["right"]
                shutil.rmtree(at, ignore_errors=True)
            console.print(speed_table(cases))
            if S3 in args.stores:
                console.print(request_table({name: lines for name, lines in cases.items() if name[0].startswith(S3)}))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
