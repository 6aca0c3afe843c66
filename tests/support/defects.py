"""Defects put into the code one at a time, to see whether the tests find them: ``python -m tests.support.defects``.

Each is one changed place in a copy of the product. The tests named with it run first, since they should find it; only if
they pass, the whole tier runs. A defect that no test of ``make test`` finds is looked for by the rest of ``make test-all``.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT
from tests.support.tiers import FIRST, SECOND

_COPIED = ("bench", "conf", "docs", "examples", "tests", "tagstream")
_FILES = ("run_stream.py", "pyproject.toml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "LICENSE",
          "mkdocs.yml")  # fmt: skip
_LINKED = (".venv", ".jars")
_NO_TESTS = 5  # pytest's exit code when no test of the tier is among those named


@dataclass(frozen=True)
class Defect:
    """``old`` is in ``file`` (below ``tagstream/``) once; ``new`` takes its place. ``tests``: where it should be found."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


DEFECTS = (
    Defect(
        "an event of equal order is taken for late",
        "state/decide.py",
        "late[both] = (ordering[both] < known.records.ordering[both])",
        "late[both] = (ordering[both] <= known.records.ordering[both])",
        ("tests/state",),
    ),
    Defect(
        "a record that moved is not deleted in its old partition",
        "state/tag_group.py",
        "np.flatnonzero(decision.move | decision.delete)",
        "np.flatnonzero(decision.delete)",
        ("tests/state",),
    ),
    Defect(
        "an escaped partition path in lower case",
        "table/keys/keys.py",
        '''f"%{ord(m.group()):02X}"''',
        '''f"%{ord(m.group()):02x}"''',
        ("tests/table/keys",),
    ),
    Defect(
        "a batch of a newer copy of the checkpoint is taken for a replay",
        "streaming/recovery/coverage.py",
        "(time in by_index_load and is_begun_here(index.query_folder, record.query_id, record.batch_id, time))",
        "time in by_index_load",
        ("tests/streaming/recovery/test_coverage.py",),
    ),
    Defect(
        "a batch that the table has already is written again",
        "streaming/job/timeline_guard.py",
        "found = made if made is not None and made[1].same_batch(spark_batch) else None",
        "found = None",
        ("tests/streaming/test_stream.py",),
    ),
    Defect(
        "a commit is completed before its data files have names",
        "table/write/commit.py",
        "        table.storage.publish(pairs, are_free=is_alone and all(instant in s.stat.file_name for s in statuses))",
        "        del pairs, is_alone",
        ("tests/table/write",),
    ),
    Defect(
        "an error of the job ends with exit code 0",
        "streaming/job/main.py",
        "    except TagstreamError as e:\n        return fail(str(e), exit_code(e))",
        "    except TagstreamError as e:\n        return fail(str(e), 0)",
        ("tests/streaming/job", "tests/streaming/test_command.py"),
    ),
    Defect(
        "bad records do not count",
        "streaming/job/sink.py",
        'self._bad_records += outcome.counts["quarantined"]',
        'self._bad_records += 0 * outcome.counts["quarantined"]',
        ("tests/streaming/test_bad_records.py",),
    ),
    Defect(
        "the cleaner retains one commit too few",
        "table/services/cleaning_plan.py",
        "wanted = len(done) - options.commits\n",
        "wanted = len(done) - options.commits + 1\n",
        ("tests/table/services",),
    ),
    Defect(
        "commits with a savepoint are archived",
        "table/services/archiving.py",
        "        yield from needed_by_savepoints(timeline)",
        "        yield from ()",
        ("tests/table/services",),
    ),
    Defect(
        "log blocks of a write that was not completed count",
        "table/read/slice_reader.py",
        "return time is not None and time <= self.as_of and self.timeline.is_valid(time)",
        "return time is not None and time <= self.as_of",
        ("tests/table/read",),
    ),
    Defect(
        "the index is loaded with keys that a log has deleted",
        "bootstrap/scan.py",
        "        yield SliceKeys(*_some(keys, ordering, keep), False, batch.num_rows)",
        "        yield SliceKeys(keys, ordering, False, batch.num_rows)",
        ("tests/bootstrap",),
    ),
    Defect(
        "statistics of several blocks have the greatest lower end",
        "table/metadata/column_ranges.py",
        "low=min(lows, key=_order, default=None)",
        "low=max(lows, key=_order, default=None)",
        ("tests/table/metadata", "tests/table/read"),
    ),
    Defect(
        "a file of the timeline is written over another one",
        "table/storage/posix.py",
        "            self._link(temp, self.where(rel))",
        "            os.path.exists(self.where(rel)) and os.unlink(self.where(rel))\n"
        "            self._link(temp, self.where(rel))",
        ("tests/behaviours/test_storages.py", "tests/table/storage"),
    ),
    Defect(
        "a writer that lost its lease writes on",
        "table/timeline/lease.py",
        "    if newest is None or newest.owner != lease.owner:",
        "    if newest is None:",
        ("tests/table/timeline",),
    ),
    Defect(
        "an index loses what its newest delta held when a snapshot is due",
        "state/tag_group.py",
        "            new = Pointer(new.index_load, new.catch_up, snapshot, (*deltas, delta))",
        "            new = Pointer(new.index_load, new.catch_up, snapshot, (*deltas, delta) if deltas else ())",
        ("tests/state",),
    ),
    Defect(
        "an index forgets a place that the batch itself fills again",
        "state/sweep.py",
        "    used.use(codes)\n",
        "",
        ("tests/state",),
    ),
    Defect(
        "the store of a key group is removed while another process has it open",
        "state/local_store.py",
        "if not free or _changed(folder, name) >= before:",
        "if _changed(folder, name) >= before:",
        ("tests/state",),
    ),
    Defect(
        "a JSON number is rounded to what a double holds",
        "streaming/source/decode/json_decoder.py",
        "patterns(has_floats and not rules.round_numbers)",
        "patterns(False)",
        ("tests/streaming/source/decode",),
    ),
    Defect(
        "an index that differs from the table is called equal",
        "cli/index_verify.py",
        'Fact("equal", "equal", total == 0)',
        'Fact("equal", "equal", total >= 0)',
        ("tests/cli",),
    ),
    Defect(
        "HBase keeps the place of a deleted row",
        "index/hbase_index.py",
        'found.filter(pc.less(found["commit_ts"], instant))',
        'found.filter(pc.less(found["commit_ts"], ""))',
        ("tests/index",),
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Put in the defects whose names hold a word (all without one); exit code 1 when one is found by no test."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only defects whose names hold one of these")
    parser.add_argument("--named-only", action="store_true", help="run the named tests alone, not the whole tiers")
    chosen = parser.parse_args(argv)
    wanted = [d for d in DEFECTS if not chosen.words or any(word in d.name for word in chosen.words)]
    missed = 0
    for defect in wanted:
        found = find(defect, whole=not chosen.named_only)
        missed += found.startswith("not found")
        print(f"{defect.name}: {found}", flush=True)
    print(f"{len(wanted) - missed} of {len(wanted)} found")
    return 1 if missed else 0


def find(defect: Defect, *, whole: bool) -> str:
    """Which tier finds a defect and by which test, in words; ``whole``: where the named tests do not, all tests are run."""
    with tempfile.TemporaryDirectory(prefix="tagstream-defect-") as name:
        copy = Path(name)
        copy_project(copy)
        put_in(defect, copy)
        tries = [("make test", FIRST, defect.tests), ("make test-all", SECOND, defect.tests)]
        if whole:
            tries = [tries[0], ("make test", FIRST, ()), tries[1], ("make test-all", SECOND, ())]
        for target, tier, paths in tries:
            started = time.monotonic()
            test = first_failure(copy, tier, paths)
            if test is not None:
                where = "" if paths else ", by none of the tests named for it"
                return f"found by {target} in {time.monotonic() - started:.0f} s ({test}{where})"
    return "not found"


def copy_project(copy: Path) -> None:
    """The product and its tests; the virtual environment and the jars are links."""
    for name in _COPIED:
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in _FILES:
        shutil.copy2(ROOT / name, copy / name)
    for name in _LINKED:
        (copy / name).symlink_to(ROOT / name)


def put_in(defect: Defect, copy: Path) -> None:
    """Change the one place."""
    path = copy / "tagstream" / defect.file
    text = path.read_text("utf-8")
    if text.count(defect.old) != 1:
        raise ValueError(
            f"{defect.name}: its place is {text.count(defect.old)} times in {defect.file}: correct the list"
        )
    path.write_text(text.replace(defect.old, defect.new), "utf-8")


def first_failure(copy: Path, tier: str, paths: Sequence[str]) -> str | None:
    """Run tests until one fails; its name, or None when all pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "2", "--dist", "worksteal", "--tier", tier, *paths]
    # The copy's code is the one that counts, in the processes that tests start, too.
    env = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, check=False)
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.M)
    if failed is not None:
        return failed[1]
    if done.returncode not in (0, _NO_TESTS):
        raise RuntimeError(f"pytest ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return None


if __name__ == "__main__":
    sys.exit(main())
