"""``python -m tests.pairs.run --seed 1``: every pair of options starts a new table and streams three batches."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from random import Random

from pyspark.sql import SparkSession

from tests.pairs.covering import completed, covering
from tests.pairs.edits import drawn_edits, one_edit
from tests.pairs.options import LEFT_OUT, OPTIONS, refused_pairs
from tests.pairs.outcome import Outcome, one_case, summary
from tests.pairs.public_settings import one_public, public_settings


@cache
def drawn(seed: int) -> tuple[Mapping[str, str], ...]:
    """The cases of a seed: a covering array of what may be together, and one case for each pair that is refused."""
    options = {name: list(values) for name, values in OPTIONS.items()}
    refused = refused_pairs()
    cases, random = covering(options, refused, seed), Random(seed)
    for pair in sorted(refused, key=sorted):
        case = completed(options, refused, dict(sorted(pair)), random)
        if case is None:
            raise ValueError(f"no case can have {sorted(pair)} and no other refused pair")
        cases.append(case)
    return tuple(cases)


def main(argv: Sequence[str]) -> int:
    """Exit code 1 when a case fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.pairs.run", description=__doc__)
    parser.add_argument("--seed", type=int, nargs="+", default=[1], help="seeds of the arrays (default: 1)")
    parser.add_argument(
        "--edits", type=int, default=0, help="tables of each seed whose settings are edited (default: 0)"
    )
    parser.add_argument(
        "--public", action="store_true", help="the settings of public projects, in place of a seed's cases"
    )
    parser.add_argument("--first", type=int, default=0, help="the first case (default: 0)")
    parser.add_argument("--cases", type=int, default=1_000_000, help="how many cases of each seed (default: all)")
    parser.add_argument("--having", nargs="*", default=[], help="only cases with these, OPTION=VALUE")
    told = parser.parse_args(argv)
    wanted = dict(text.split("=", 1) for text in told.having)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        spark = session(Path(folder))
        for seed in told.seed:
            began = time.monotonic()
            part = slice(told.first, told.first + told.cases)
            if told.public:
                named = enumerate(public_settings())
                work = [partial(one_public, spark, Path(folder, f"p{n}"), settings) for n, settings in named]
            elif told.edits:
                edits = [edit for edit in drawn_edits(seed, told.edits) if wanted.items() <= edit.values.items()]
                work = [partial(one_edit, spark, Path(folder, f"e{n}"), edit) for n, edit in enumerate(edits)]
            else:
                cases = [case for case in drawn(seed) if wanted.items() <= case.items()]
                work = [partial(one_case, spark, Path(folder, f"c{n}"), case) for n, case in enumerate(cases)]
            of_seed = list(shown(work[part]))
            outcomes += of_seed
            failed = sum(bool(outcome.problems) for outcome in of_seed)
            print(f"seed {seed}: {len(of_seed)} cases in {time.monotonic() - began:.0f} s, {failed} failed", flush=True)
        spark.stop()
    print(summary(outcomes))
    print("left out:", *(f"  {what}: {why}" for what, why in LEFT_OUT.items()), sep="\n")
    return int(any(outcome.problems for outcome in outcomes))


def shown(work: Iterable[Callable[[], Outcome]]) -> Iterator[Outcome]:
    """The outcomes, one after the other, and a line on each."""
    for number, one in enumerate(work):
        began = time.monotonic()
        outcome = one()
        print(f"{number:4d} {outcome.kind:8s} {time.monotonic() - began:5.1f} s {outcome.name}", flush=True)
        for problem in outcome.problems:
            print(f"       {problem}", flush=True)
        yield outcome


def session(folder: Path) -> SparkSession:
    """The one session of all cases."""
    from tagstream.streaming.job.session import start_session

    conf = {
        "spark.master": "local[2,4]",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.memory": "1g",
    }
    return start_session("pairs", jars=[], conf=conf, env=os.environ)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
