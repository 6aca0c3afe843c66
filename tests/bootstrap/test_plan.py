"""A plan for some file groups says of them what a plan of the whole table says, and reads only commits that can tell."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tagstream.bootstrap.plan import plan_bootstrap
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.timeline.timeline import FileGroupId
from tests.table.reference import NAMES, unpack
from tests.table.writer import Writer

TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]


def groups_of(table: HoodieTable) -> list[FileGroupId]:
    """Every file group that a commit of the timeline names."""
    timeline = table.timeline()
    metadata = [timeline.metadata(table.storage, i) for i in timeline.completed_writes]
    found = {(s.partition_path, s.file_id) for m in metadata for s in m.all_stats()}
    return sorted(found | {(p, i) for m in metadata for p, ids in m.replaced.items() for i in ids})


def agree(table: HoodieTable, rng: random.Random, lost: set[str]) -> None:
    """Plans of some file groups against the whole one; ``lost``: files that were taken away.

    Where a newest base file is lost the whole plan names what a cleaner took of the slices before, too.
    """
    whole, groups = plan_bootstrap(table), groups_of(table)
    for count in (1, 1, 1, 2, 3, len(groups)):
        some = set(rng.sample(groups, min(count, len(groups))))
        part = plan_bootstrap(table, only=some)
        slices = [s for s in whole.slices if (s.file_slice.partition_path, s.file_slice.file_id) in some]
        assert list(part.slices) == slices
        found = lost & set(whole.missing)
        theirs = {path for path in found if any(path.startswith(p) and i in path for p, i in some)}
        assert theirs <= set(part.missing) <= set(whole.missing)
        assert bool(part.missing) == bool(theirs)


@pytest.mark.extended(
    "more tables that real Hudi wrote",
    first=("cow_v6_global_bloom_moves", "mor_v6_compaction_pending", "cow_v9_record_index", "mor_v9_services"),
)
@pytest.mark.parametrize("name", NAMES)
def test_of_tables_that_real_hudi_wrote(name: str, tmp_path: Path) -> None:
    rng, lost = random.Random(name), set[str]()
    base_path = unpack(name, tmp_path)
    table = HoodieTable.open(str(base_path))
    agree(table, rng, lost)
    slices = [planned.file_slice for planned in plan_bootstrap(table).slices]
    files = [s.base_path for s in slices if s.base_path] + [path for s in slices for path in s.log_paths]
    for path in rng.sample(files, min(4, len(files))):
        (base_path / path).unlink()
        lost.add(path)
        agree(table, rng, lost)


@pytest.mark.parametrize("table_type", TYPES)
def test_commits_from_before_its_slices_are_not_read(table_type: str, tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, table_type, groups=3)
    row = {"id": "a", "part": "p", "ver": 1, "name": "x", "amount": 1.0}
    old = [writer.write([{**row, "id": f"k{n}-{i}", "part": f"old-{n}"} for i in range(3)]) for n in range(5)]
    new = writer.write([{**row, "part": "new"}])
    timeline = writer.table.timeline()
    touched = {(s.partition_path, s.file_id) for s in timeline.metadata(
        writer.table.storage, timeline.completed_writes[-1]).all_stats()}  # fmt: skip
    for instant in timeline.completed_writes[:-1]:
        assert instant.time in old
        Path(writer.table.base_path, timeline.folder, instant.file_name()).write_text("damaged")
    plan = plan_bootstrap(writer.table, only=touched)
    assert [s.file_slice.base_instant for s in plan.slices] == [new]
    assert sum((s.expected_rows or 0) + s.log_writes for s in plan.slices) == 1
