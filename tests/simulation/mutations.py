"""Proof that the simulation can fail: defects put into the product, each of which it must find.

``python -m tests.simulation.mutations --seeds 60``. Most are defects that were there once, put back.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.defects import DEFECTS, Defect, copy_project, put_in

FIRST = 5000  # seeds of their own, so that a mutation is not found by the ones that the product was corrected with
_OF_THE_TESTS: dict[str, tuple[str, ...]] = {
    "an event of equal order is taken for late": (),
    "a record that moved is not deleted in its old partition": (),
    "a batch that the table has already is written again": (),
    "a commit is completed before its data files have names": (),
    "log blocks of a write that was not completed count": ("table_type=MERGE_ON_READ",),
    "the index is loaded with keys that a log has deleted": (),
    "an index loses what its newest delta held when a snapshot is due": (),
}


@dataclass(frozen=True)
class Mutation:
    """``needs``: what a history must have to meet the defect at all (``Program.has``): only such ones are run."""

    defect: Defect
    needs: tuple[str, ...] = ()


def _put_back(name: str, file: str, old: str, new: str, *needs: str) -> Mutation:
    return Mutation(Defect(name, file, old, new, ()), needs)


MUTATIONS = (
    *(Mutation(defect, _OF_THE_TESTS[defect.name]) for defect in DEFECTS if defect.name in _OF_THE_TESTS),
    _put_back(
        "a savepoint sees what was completed after its write",
        "table/services/retention.py",
        "    later = {i.time for i in timeline.completed_writes if completed_at(i) > end}",
        "    later = {i.time for i in timeline.completed_writes if i.time > write.time}",
        "back_over_a_service",
    ),
    _put_back(
        "replace commits are archived while their files are there",
        "table/services/retention.py",
        "    for instant in leaving:\n",
        "    for instant in ():\n",
        "savepoint_over_a_clustering",
    ),
    _put_back(
        "a clean does not look at its plan again",
        "table/services/pending_clean.py",
        "    return reduced(plan, left, times)",
        "    return plan",
        "back_over_a_clean",
    ),
    _put_back(
        "decimals of more than 28 digits are rounded in statistics",
        "table/file_group/ordering_wrapper.py",
        '    whole, shift, cut = int("".join(map(str, digits))), exponent + scale, 0',
        '    whole, shift, cut = int("".join(map(str, digits[:28])).ljust(len(digits), "0")), exponent + scale, 0',
        "version=9",
        "table_type=MERGE_ON_READ",
        "columns=wide",
        "metadata=column_stats",
    ),
    _put_back(
        "nulls beside NaN are not counted",
        "table/metadata/column_ranges.py",
        "            if name in null_counts:\n",
        "            if name in ():\n",
    ),
    _put_back(
        "what a partial record lacks is counted without the mark of deletes",
        "streaming/source/decode/plain_json.py",
        "        names = self._schema.names\n",
        "        names = [f.name for f in self._schema if f.name != DELETED]\n",
    ),
    _put_back(
        "a required list in a record that is null stops the stream",
        "table/schema/conform.py",
        "    return column if column.type == kind else column.cast(kind)",
        "    return column.cast(kind)",
    ),
    _put_back(
        "wide decimals have statistics in the form of an earlier version",
        "streaming/batch/metadata_prepare.py",
        "default_columns(schema, statistics_form(table.storage, config.version))",
        "default_columns(schema, config.version)",
        "version=8",
        "columns=wide",
        "metadata=column_stats",
        "change_version",
    ),
    _put_back(
        "the files of a partition that is gone stay in the metadata table",
        "table/metadata/changes.py",
        "        records |= [files_record(path, sizes, change.deleted)]",
        "        records |= [files_record(path, sizes, () if path in changes.deleted_partitions else change.deleted)]",
        "metadata=files",
        "partition_comes_back",
    ),
    _put_back(
        "leftovers of a dead writer stay",
        "table/services/rollback.py",
        "    storage.delete_many(rel for request in requests for rel in request.files)",
        "    del storage",
    ),
    _put_back(
        "a local store of another lineage is believed",
        "state/local_store.py",
        "    if missing is None:\n        return None",
        "    if missing is None:\n        return meta",
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 when one is not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutations", description=__doc__)
    parser.add_argument("words", nargs="*", help="only mutations whose names hold one of these")
    parser.add_argument("--seeds", type=int, default=60, help="histories that may be needed for one (default: 60)")
    told = parser.parse_args(argv)
    wanted = [m for m in MUTATIONS if not told.words or any(word in m.defect.name for word in told.words)]
    missed = 0
    for mutation in wanted:
        seconds, found = look(mutation, told.seeds)
        missed += found is None
        print(f"{mutation.defect.name}: {'NOT FOUND' if found is None else found} ({seconds:.0f} s)", flush=True)
    print(f"{len(wanted) - missed} of {len(wanted)} found")
    return 1 if missed else 0


def look(mutation: Mutation, seeds: int) -> tuple[float, str | None]:
    """Seconds, and the first failure (None: none in so many seeds)."""
    with tempfile.TemporaryDirectory(prefix="tagstream-mutation-") as name:
        copy = Path(name)
        copy_project(copy)
        put_in(mutation.defect, copy)
        command = [sys.executable, "-m", "tests.simulation.run", "--first", str(FIRST), "--seeds", str(seeds)]
        command += ["--having", *mutation.needs]
        env = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        began = time.monotonic()
        done = subprocess.run(
            [*command, "--no-shrink", "--until-failure"], cwd=copy, env=env, capture_output=True, text=True, check=False
        )
    seconds = time.monotonic() - began
    failed = re.search(r"^(seed \d+) fails:\n(.*)", done.stdout, re.M)
    if failed is not None:
        return seconds, f"{failed[1]}: {failed[2][:100]}"
    if done.returncode:
        raise RuntimeError(f"the simulation ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return seconds, None


if __name__ == "__main__":
    sys.exit(main())
