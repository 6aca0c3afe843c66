"""``python -m tests.simulation.run --first 1 --seeds 100``: histories one after the other; a failing one is made smaller and
printed as a program that runs again.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa

from tests.simulation.program import Outcome, Program, run, shrink


def main(argv: Sequence[str]) -> int:
    """Exit code 1 when a history fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.run", description=__doc__)
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--seeds", type=int, default=100, help="how many (default: 100)")
    parser.add_argument(
        "--having", nargs="*", default=[], help="only histories with these steps and settings (Program.has)"
    )
    parser.add_argument("--workers", type=int, default=2, help="processes side by side (default: 2)")
    parser.add_argument("--program", type=Path, help="run the program of this file in place of seeds")
    parser.add_argument("--no-shrink", action="store_true", help="leave failing histories as long as they are")
    parser.add_argument("--until-failure", action="store_true", help="end with the first history that fails")
    parser.add_argument("--verbose", action="store_true", help="show what happens")
    told = parser.parse_args(argv)
    if told.program is not None or told.seeds == 1:
        program = Program.of(told.first) if told.program is None else Program.from_json(told.program.read_text("utf-8"))
        print(program.to_json())
        with tempfile.TemporaryDirectory() as folder:
            found = run(program, Path(folder, "world"), print if told.verbose else lambda _: None)
        print("\n".join(found.problems) or "all held")
        return bool(found.problems)
    began, failed = time.monotonic(), 0
    # Not an executor: one whose processes end after some tasks can stop for good (CPython issue 115634).
    with get_context("spawn").Pool(told.workers, _settle, maxtasksperchild=50) as pool:
        seeds = [*islice((n for n in count(told.first) if Program.of(n).has(told.having)), told.seeds)]
        for number, (seed, text) in enumerate(pool.imap_unordered(partial(one, smaller=not told.no_shrink), seeds), 1):
            if number % 100 == 0:
                print(f"{number} of {told.seeds}: {failed} failed", file=sys.stderr, flush=True)
            if text is not None:
                failed += 1
                print(f"seed {seed} fails:\n{text}\n", flush=True)
                if told.until_failure:
                    return 1
    minutes = (time.monotonic() - began) / 60
    print(f"{told.seeds} seeds from {told.first}: {failed} failed; {told.seeds / minutes:.0f} seeds a minute")
    return 1 if failed else 0


def _settle() -> None:
    """A worker has a core for itself: more threads and frequent garbage collections cost a tenth of its time."""
    pa.set_cpu_count(1)
    gc.set_threshold(100_000, 50, 100)


def one(seed: int, smaller: bool) -> tuple[int, str | None]:
    """Run the history of a seed: None when all held, else what is to be shown."""
    program = Program.of(seed)
    with tempfile.TemporaryDirectory() as folder:
        found = run(program, Path(folder, "world"))
        if not found.problems:
            return seed, None
        if smaller:
            program = shrink(program, Path(folder, "world"), found.kind)
            found = run(program, Path(folder, "world"))
    return seed, report(program, found)


def report(program: Program, found: Outcome) -> str:
    """A failure for people: what was wrong, what had happened, and the program."""
    return "\n".join([*found.problems[:8], "what happened:", *found.log[-40:], "program:", program.to_json()])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
