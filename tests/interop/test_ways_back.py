"""Tables that went back in time, and tables whose savepoints, cleans and archiving keep files that others still need, as
real Hudi and hudi-rs read them; and Hudi writes on in them.

What ought to be there is the writer's own oracle, which goes back with the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from tagstream.table.errors import InstantConflictError
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.metadata.compaction import compact as compact_metadata
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.archiving import archive_table
from tagstream.table.services.cleaning import clean, schedule_clean
from tagstream.table.services.clustering import cluster
from tagstream.table.services.clustering_options import ClusteringOptions
from tagstream.table.services.clustering_plan import schedule_clustering
from tagstream.table.services.compaction import compact
from tagstream.table.services.compaction_plan import schedule_compaction
from tagstream.table.services.options import ArchiveOptions, CleanOptions, CleanPolicy
from tagstream.table.services.replaced_partitions import delete_partitions
from tagstream.table.services.restore import restore
from tagstream.table.services.rollback_completed import rollback_completed
from tagstream.table.services.savepoint import create_savepoint, delete_savepoint
from tagstream.table.services.upgrade import downgrade
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tagstream.table.timeline.instant import REPLACE_COMMIT
from tests.interop.hudi_spark import HudiSpark
from tests.interop.test_hudi_on_tables import check, learn_places
from tests.support.hudi_rs import read_table
from tests.support.table_version import table_version, using
from tests.table.metadata.case import Case
from tests.table.services.clusters import learn
from tests.table.services.compaction_compacting import ALL, clock
from tests.table.writer import Row, Writer, row

pytestmark = pytest.mark.hudi_jar
TYPES = [COPY_ON_WRITE, MERGE_ON_READ]
COMPACTION, CLUSTERING = "compaction", "clustering"
SERVICES = [(COPY_ON_WRITE, CLUSTERING), (MERGE_ON_READ, COMPACTION), (MERGE_ON_READ, CLUSTERING)]
ONE_COMMIT = CleanOptions(commits=1)
ONE_VERSION = CleanOptions(CleanPolicy.KEEP_LATEST_FILE_VERSIONS, file_versions=1)
# Release of Hudi and version of the tables, and whether these have a metadata table.
CASES = [(("1.2.0", 6), False), (("1.2.0", 8), False), (("0.15.0", 6), True), (("1.2.0", 9), True)]
each_case = pytest.mark.parametrize(  # of the session, so that all tests of a case come together: one Hudi for them
    ("hudi", "has_metadata"), CASES, indirect=["hudi"], scope="session",
    ids=[f"{release}-v{version}-{'metadata' if has else 'listing'}" for (release, version), has in CASES],
)  # fmt: skip


@dataclass
class Judged:
    """A table and who reads it."""

    hudi: HudiSpark
    writer: Writer
    case: Case | None  # of a table that has a metadata table

    @staticmethod
    def of(hudi: HudiSpark, folder: Path, kind: str, has_metadata: bool) -> Judged:
        """An empty table, with the metadata table that Hudi's own writers make by default, or without one."""
        groups = {"files": 1, "column_stats": 1, "record_index": 1}
        case = Case.create(folder, kind, table_version(), groups) if has_metadata else None
        writer = case.writer if case is not None else Writer.without_metadata(folder, kind)
        # hudi-rs passes over file groups of logs alone, and Hudi's indexes look keys up in base files.
        return Judged(hudi, writer.with_options(inserts_to_base_files=True), case)

    def archive(self, options: ArchiveOptions, cleaning: CleanOptions = ONE_COMMIT) -> list[str]:
        """The actions that left the active timeline, once a metadata table needs them no more."""
        self.writer.now_ms += 1000
        if self.case is not None:
            compact_metadata(self.case.metadata_writer, self.case.times, 1)
        done = archive_table(self.writer.table, options, cleaning, clock(self.writer))
        return [] if done is None else [i.action for i in done.instants]

    def read(self, pending: bool = False) -> None:
        """By Hudi, by hudi-rs and by us; and the table is in order. ``pending``: a compaction is."""
        writer, path = self.writer, self.writer.table.base_path
        table = writer.table.reload()
        check(read_snapshot(table), writer, "this project")
        # On version 6 hudi-rs does not see what was written between a plan and its commit.
        if not (pending and table.config.version == 6):
            check(read_table(path), writer, "hudi-rs")
        for listed in ("true", "false") if self.case is not None else ("false",):
            who = f"Hudi {self.hudi.version}, hoodie.metadata.enable={listed}"
            check(self.hudi.read(path, **{"hoodie.metadata.enable": listed}), writer, who)
        assert validate(table) == []
        assert validate_metadata(table) == []

    def go_on(self) -> None:
        """Hudi updates half of the rows and inserts one, cleans and archives as it likes; all read it."""
        rows = [{**found, "ver": 1000, "name": "hudi"} for found in list(self.writer.live.values())[::2]]
        rows.append(row(900, "p0", 1000))
        index = self.hudi.index("RECORD" if self.case is not None else "BLOOM")
        settings = {"hoodie.clean.automatic": "true", "hoodie.cleaner.commits.retained": "1",
                    "hoodie.clean.commits.retained": "1", "hoodie.metadata.index.column.stats.enable": "true"}  # fmt: skip
        writer = self.writer
        self.hudi.write(writer.table, pa.Table.from_pylist(rows, writer.schema), {**settings, **index})
        writer.live |= {found["id"]: found for found in rows}
        writer.table = writer.table.reload()
        learn_places(writer)
        self.read()


def kept(writer: Writer) -> Callable[[], None]:
    """The oracle goes back to what it is now."""
    live, where = dict(writer.live), dict(writer.where)

    def back() -> None:
        writer.live, writer.where = live, where

    return back


def write(writer: Writer, rows: list[Row]) -> str:
    writer.now_ms += 1000
    return writer.write(rows)


def begin(writer: Writer, service: str) -> Callable[[], None]:
    """A service is requested, of partition p0 if it is a clustering; what is returned carries it out."""
    if service == COMPACTION:
        plan = schedule_compaction(writer.table, ALL, clock(writer), force=True)
    else:
        options = ClusteringOptions(max_commits=1, partitions=("p0",))
        plan = schedule_clustering(writer.table, options, clock(writer), force=True)
    assert plan is not None

    def complete() -> None:
        assert plan is not None
        (compact if service == COMPACTION else cluster)(writer.table, plan, clock(writer))
        if service == CLUSTERING:
            learn(writer)

    return complete


def writes(writer: Writer) -> set[str]:
    """Kinds of the completed writes on the active timeline."""
    return {i.action for i in writer.table.timeline().completed_writes}


def drop_partition(writer: Writer, partition: str) -> None:
    assert delete_partitions(writer.table, [partition], clock(writer)) is not None
    writer.live = {key: found for key, found in writer.live.items() if found["part"] != partition}
    writer.where = {key: place for key, place in writer.where.items() if place[0] != partition}
    writer.era += 1


@each_case
@pytest.mark.parametrize("when", ["pending", "completed"])
@pytest.mark.parametrize(("kind", "service"), SERVICES)
def test_a_restore_to_a_write_that_a_service_ran_beside(
    hudi: HudiSpark, has_metadata: bool, kind: str, service: str, when: str, tmp_path: Path
) -> None:
    judged = Judged.of(hudi, tmp_path, kind, has_metadata)
    writer = judged.writer
    writer.groups = 1
    writer.write([row(key, "p0", 1) for key in range(4)])
    writer.write([row(key, "p1", 1) for key in range(10, 13)])
    writer.write([row(key, "p0", 2) for key in range(2)])
    complete = begin(writer, service)
    write(writer, [row(key, "p1", 3) for key in range(10, 13)] + ([row(0, "p0", 4)] if service == COMPACTION else []))
    back = kept(writer)
    if when == "completed":
        complete()
    saved = create_savepoint(writer.table, None, "", "", clock(writer))
    judged.read(pending=when == "pending" and service == COMPACTION)
    if when == "pending":
        complete()
    for ver in (5, 6):
        write(writer, [row(key, "p0", ver) for key in range(4)] + [row(50 + ver, "p2", ver)])
    if kind == MERGE_ON_READ:
        begin(writer, COMPACTION)()
    write(writer, [row(key, "p1", 7) for key in range(10, 13)])
    writer.now_ms += 1000
    assert clean(writer.table, ONE_VERSION, clock(writer)) is not None
    restore(writer.table.reload(), saved.time, clock(writer))
    back()
    judged.read()
    learn_places(writer)
    judged.go_on()


@each_case
@pytest.mark.parametrize("kind", TYPES)
def test_a_restore_over_archived_commits(hudi: HudiSpark, has_metadata: bool, kind: str, tmp_path: Path) -> None:
    """The savepoint's own write is all that stays on the timeline; the rows of those before it still count."""
    judged = Judged.of(hudi, tmp_path, kind, has_metadata)
    writer = judged.writer
    for key in range(4):
        write(writer, [row(key, f"p{key}", 1)])
    back = kept(writer)
    saved = create_savepoint(writer.table, None, "", "", clock(writer))
    for ver in range(2, 6):
        write(writer, [row(3, "p3", ver), row(10 + ver, "p0", ver)])
    if kind == MERGE_ON_READ:
        begin(writer, COMPACTION)()
    assert len(judged.archive(ArchiveOptions(1, 2, compaction_deltas=1))) == 3
    judged.read()
    restore(writer.table.reload(), saved.time, clock(writer))
    assert [i.time for i in writer.table.timeline().completed_writes] == [saved.time]
    back()
    judged.read()
    judged.go_on()


@each_case
@pytest.mark.parametrize("kind", TYPES)
def test_a_restore_over_writes_that_were_archived_past_the_savepoint_is_refused(
    hudi: HudiSpark, has_metadata: bool, kind: str, tmp_path: Path
) -> None:
    """Until the savepoint is deleted Hudi and hudi-rs take its write for the first that is not archived, also in a table
    that Hudi itself archived so, and do not see the archived ones after it."""
    judged = Judged.of(hudi, tmp_path, kind, has_metadata)
    writer = judged.writer
    write(writer, [row(key, f"p{key % 2}", 1) for key in range(4)])
    saved = create_savepoint(writer.table, None, "", "", clock(writer))
    for ver in range(2, 11):
        write(writer, [row(ver % 4, f"p{ver % 2}", ver), row(100 + ver, f"new{ver}", ver)])
    if kind == MERGE_ON_READ:
        begin(writer, COMPACTION)()
    assert judged.archive(ArchiveOptions(2, 3, beyond_savepoint=True, compaction_deltas=1))
    with pytest.raises(InstantConflictError, match="archived"):
        restore(writer.table.reload(), saved.time, clock(writer))
    assert read_snapshot(writer.table.reload()).num_rows == len(writer.live)
    assert hudi.read(writer.table.base_path).num_rows < len(writer.live)
    delete_savepoint(writer.table, saved.time)
    judged.read()
    judged.go_on()


@each_case
@pytest.mark.parametrize(("options", "count"), [(ONE_VERSION, 1), (ONE_COMMIT, 2)], ids=["versions", "commits"])
@pytest.mark.parametrize("kind", TYPES)
def test_a_rollback_of_the_newest_writes_beside_a_planned_clean(
    hudi: HudiSpark, has_metadata: bool, kind: str, options: CleanOptions, count: int, tmp_path: Path
) -> None:
    judged = Judged.of(hudi, tmp_path, kind, has_metadata)
    writer = judged.writer
    backs, times = [], []
    for ver in range(1, 5):
        backs.append(kept(writer))
        times.append(write(writer, [row(key, f"p{key % 2}", ver) for key in range(4)]))
        if kind == MERGE_ON_READ and ver == 2:
            begin(writer, COMPACTION)()
    writer.now_ms += 1000
    assert schedule_clean(writer.table, options, clock(writer)) is not None
    for number in range(1, count + 1):
        rollback_completed(writer.table.reload(), times[-number], clock(writer))
        backs[-number]()
    judged.read()
    clean(writer.table.reload(), options, clock(writer))
    judged.read()
    judged.go_on()


@each_case
@pytest.mark.parametrize("how", [CLUSTERING, "delete partition"])
@pytest.mark.parametrize("kind", TYPES)
def test_archiving_and_a_savepoint_that_goes_before_the_next_clean(
    hudi: HudiSpark, has_metadata: bool, kind: str, how: str, tmp_path: Path
) -> None:
    """It was what kept replaced file groups on disk."""
    judged = Judged.of(hudi, tmp_path, kind, has_metadata)
    writer = judged.writer
    write(writer, [row(key, f"p{key % 2}", 1) for key in range(6)])
    write(writer, [row(key, f"p{key % 2}", 2) for key in range(3)])
    saved = create_savepoint(writer.table, None, "", "", clock(writer))
    if how == CLUSTERING:
        begin(writer, CLUSTERING)()
    else:
        drop_partition(writer, "p0")
    archive = ArchiveOptions(2, 3, compaction_deltas=1)

    def later(first: int) -> None:
        for ver in range(first, first + 5):
            write(writer, [row(key, "p1", ver) for key in (1, 3)] + [row(60 + ver, "p0", ver)])
        if kind == MERGE_ON_READ:
            begin(writer, COMPACTION)()
        writer.now_ms += 1000

    later(10)
    clean(writer.table, ONE_COMMIT, clock(writer))
    judged.archive(archive)
    delete_savepoint(writer.table, saved.time)
    assert judged.archive(archive)
    assert REPLACE_COMMIT in writes(writer)
    judged.read()
    later(20)
    assert clean(writer.table, ONE_COMMIT, clock(writer)) is not None
    assert REPLACE_COMMIT in judged.archive(archive)
    assert REPLACE_COMMIT not in writes(writer)
    judged.read()
    judged.go_on()


@each_case
@pytest.mark.parametrize("kind", TYPES)
def test_archiving_before_a_clean_has_deleted_what_was_replaced(
    hudi: HudiSpark, has_metadata: bool, kind: str, tmp_path: Path
) -> None:
    """A clustering that was requested long before it was completed, and a clean that is not due."""
    judged = Judged.of(hudi, tmp_path, kind, has_metadata)
    writer = judged.writer
    write(writer, [row(key, "p0", 1) for key in range(6)])
    write(writer, [row(key, "p1", 1) for key in (11, 13)])
    complete = begin(writer, CLUSTERING)
    for ver in range(2, 5):
        write(writer, [row(key, "p1", ver) for key in (11, 13)])
    clean(writer.table, ONE_VERSION, clock(writer))
    complete()
    if kind == MERGE_ON_READ:
        begin(writer, COMPACTION)()
    for ver in range(5, 10):
        write(writer, [row(key, "p1", ver) for key in (11, 13)])
    rarely = CleanOptions(CleanPolicy.KEEP_LATEST_FILE_VERSIONS, file_versions=1, max_commits=20)
    assert judged.archive(ArchiveOptions(2, 3, compaction_deltas=1), rarely)
    assert REPLACE_COMMIT in writes(writer)
    judged.read()
    judged.go_on()


@each_case
@pytest.mark.parametrize("kind", TYPES)
def test_a_restore_past_a_deleted_partition(hudi: HudiSpark, has_metadata: bool, kind: str, tmp_path: Path) -> None:
    judged = Judged.of(hudi, tmp_path, kind, has_metadata)
    writer = judged.writer
    write(writer, [row(key, f"p{key % 3}", 1) for key in range(9)])
    write(writer, [row(key, f"p{key % 3}", 2) for key in range(0, 9, 2)])
    back = kept(writer)
    saved = create_savepoint(writer.table, None, "", "", clock(writer))
    drop_partition(writer, "p1")
    write(writer, [row(key, f"p{key % 3}", 3) for key in (0, 2, 3)] + [row(40, "p1", 3)])
    writer.now_ms += 1000
    clean(writer.table, ONE_VERSION, clock(writer))
    judged.read()
    restore(writer.table.reload(), saved.time, clock(writer))
    back()
    judged.read()
    judged.go_on()


@pytest.mark.parametrize("hudi", [("0.15.0", 6), ("1.2.0", 9)], indirect=True, ids=["0.15.0", "1.2.0"])
def test_a_downgrade_with_a_savepoint_that_keeps_logs_is_refused(hudi: HudiSpark, tmp_path: Path) -> None:
    with using(9):
        judged = Judged.of(hudi, tmp_path, MERGE_ON_READ, has_metadata=False)
    writer = judged.writer
    write(writer, [row(key, "p0", 1) for key in range(6)])
    writer.now_ms += 1000
    writer.write([row(key, "p0", 2) for key in range(3)], ["k5"])
    saved = create_savepoint(writer.table, None, "", "", clock(writer))
    write(writer, [row(key, "p0", 3) for key in range(5)])
    with pytest.raises(InstantConflictError, match=f"savepoint {saved.time} .* keeps the log file p0/.*--delete"):
        downgrade(writer.table, 6, clock(writer))
    assert writer.table.reload().config.version == 9
    if not hudi.is_0x:
        judged.read()
    delete_savepoint(writer.table, saved.time)
    downgrade(writer.table, 6, clock(writer))
    writer.table = writer.table.reload()
    assert writer.table.config.version == 6
    judged.read()
    judged.go_on()
