"""Real Hudi reads tables after our services, goes on with its own, and we after it: clean, archive, savepoint, restore,
rollback of a completed write, partitions deleted and overwritten."""

from __future__ import annotations

from pathlib import Path
from time import time_ns

import pyarrow as pa
import pytest

from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.metadata.compaction import compact
from tagstream.table.services.archiving import archive_metadata, archive_table
from tagstream.table.services.cleaning import clean
from tagstream.table.services.options import ArchiveOptions, CleanOptions
from tagstream.table.services.replaced_partitions import delete_partitions
from tagstream.table.services.restore import restore
from tagstream.table.services.rollback_completed import rollback_completed
from tagstream.table.services.savepoint import create_savepoint, delete_savepoint
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tagstream.table.timeline.instant import CLEAN
from tests.interop.hudi_spark import HudiSpark
from tests.interop.test_archived_instants import EAGER, listed
from tests.interop.test_hudi_on_tables import check, learn_places
from tests.interop.test_metadata_tables import options, read_by_both
from tests.support.table_version import table_version
from tests.table.history.archives import archived_times
from tests.table.metadata.case import Case
from tests.table.services.compacting import plan_compaction
from tests.table.services.overwriting import follow, overwrite
from tests.table.services.tables import rounds
from tests.table.writer import Writer, row

pytestmark = pytest.mark.hudi_jar
# Hudi's own instants are of the machine's clock, and ours must not be ahead of it.
FEW = ArchiveOptions(3, 5, compaction_deltas=2)
ONE = CleanOptions(commits=1)


def now_ms() -> int:
    return time_ns() // 1_000_000


def upsert(hudi: HudiSpark, writer: Writer, ver: int, settings: dict[str, str]) -> None:
    """Hudi updates what it finds by its index, and inserts a row; the oracle follows."""
    rows = [{**found, "ver": ver, "name": "hudi"} for found in list(writer.live.values())[::2]]
    rows.append(row(1000 + ver, "p0", ver))
    hudi.write(writer.table, pa.Table.from_pylist(rows, writer.schema), settings)
    writer.live |= {found["id"]: found for found in rows}
    writer.table = writer.table.reload()
    learn_places(writer)


def test_clean_and_archive_in_turns(hudi: HudiSpark, tmp_path: Path) -> None:
    case = Case.create(tmp_path, MERGE_ON_READ, table_version(), {"files": 1, "record_index": 1})
    writer = case.writer

    def ours() -> None:
        rounds(writer, 3, keys=8)
        plan_compaction(writer)(lambda at, statuses: case.tell(at, statuses, writer.where))
        rounds(writer, 3, keys=8)
        assert clean(writer.table, ONE, lambda: writer.now_ms) is not None
        assert compact(case.metadata_writer, case.times, 1) is not None
        assert archive_table(writer.table, FEW, ONE, lambda: writer.now_ms) is not None
        archive_metadata(case.metadata_writer)
        assert validate(writer.table) == []
        assert validate_metadata(writer.table) == []
        writer.now_ms += 1000

    ours()
    archived = archived_times(writer.table)
    assert set(listed(hudi, writer.table)) <= set(archived)
    read_by_both(hudi, case)
    settings = {**options(hudi, case), **{k: v for k, v in EAGER.items() if "metadata" not in k and "index" not in k}}
    settings |= {"hoodie.clean.automatic": "true", "hoodie.archive.automatic": "true"}
    for number in range(2):
        upsert(hudi, writer, 100 + number, settings)
        read_by_both(hudi, case)
    assert validate_metadata(writer.table) == []
    cleans = [i for i in writer.table.timeline().instants if i.action == CLEAN]
    writer.now_ms = now_ms()
    ours()
    assert [i for i in writer.table.timeline().instants if i.action == CLEAN] != cleans
    read_by_both(hudi, case)


@pytest.mark.parametrize("kind", [COPY_ON_WRITE, MERGE_ON_READ])
def test_savepoints_and_restores_in_turns(hudi: HudiSpark, tmp_path: Path, kind: str) -> None:
    writer = Writer.create(tmp_path, kind)
    rounds(writer, 2, keys=8)
    if kind == MERGE_ON_READ:
        plan_compaction(writer)(None)
        rounds(writer, 1, keys=8)
    table, kept = writer.table, (dict(writer.live), dict(writer.where))
    time = create_savepoint(table, None, "tests", "", lambda: writer.now_ms).time
    settings = {"hoodie.index.type": "BLOOM", "hoodie.metadata.enable": "false"}
    upsert(hudi, writer, 100, settings)
    upsert(hudi, writer, 101, settings)
    name = "services_" + "".join(c if c.isalnum() else "_" for c in tmp_path.name)
    make = f"create table if not exists {name} using hudi location '{table.base_path}'"
    (found,) = hudi.sql(table.base_path, make, f"call show_savepoints(table => '{name}')")
    assert found["savepoint_time"] == time
    # We take back what Hudi has written.
    restore(table, time, now_ms)
    writer.live, writer.where = kept
    check(hudi.read(table.base_path), writer, f"Hudi {hudi.version}")
    assert validate(table.reload()) == []
    upsert(hudi, writer, 102, settings)
    check(hudi.read(table.base_path), writer, f"Hudi {hudi.version}")
    delete_savepoint(table, time)
    # Our instant (a second later than this) must not be ahead of Hudi's clock: Hudi stops in a log at a block of an instant
    # that is later than its own.
    writer.now_ms = now_ms() - 1000
    # A write of ours is taken back by us, and Hudi goes on.
    kept = (dict(writer.live), dict(writer.where))
    newest = writer.write([row(1, "p1", 500), row(77, "p0", 500)], ["k2"])
    rollback_completed(table, newest, now_ms)
    writer.live, writer.where = kept
    check(hudi.read(table.base_path), writer, f"Hudi {hudi.version}")
    upsert(hudi, writer, 600, settings)
    check(hudi.read(table.base_path), writer, f"Hudi {hudi.version}")


def test_hudi_restores_to_our_savepoint(hudi: HudiSpark, tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    rounds(writer, 2, keys=8)
    table = writer.table
    kept = (dict(writer.live), dict(writer.where))
    time = create_savepoint(table, None, "tests", "", lambda: writer.now_ms).time
    rounds(writer, 2, keys=8)
    name = "restored_" + "".join(c if c.isalnum() else "_" for c in tmp_path.name)
    make = f"create table if not exists {name} using hudi location '{table.base_path}'"
    settings = {"hoodie.metadata.enable": "false"}
    if not hudi.is_0x:
        settings |= {"hoodie.write.table.version": str(table.config.version), "hoodie.write.auto.upgrade": "false"}
    call = f"call rollback_to_savepoint(table => '{name}', instant_time => '{time}')"
    hudi.sql(table.base_path, make, *(f"set {key}={value}" for key, value in settings.items()), call)
    writer.table = table.reload()
    assert writer.table.config.version == table.config.version
    writer.table.drop_metadata_table(writer.now_ms)  # which Hudi makes where it is not kept from it
    writer.table = table.reload()
    writer.live, writer.where = kept
    check(hudi.read(table.base_path), writer, f"Hudi {hudi.version}")
    writer.now_ms = now_ms()
    rounds(writer, 1, keys=8)
    check(hudi.read(table.base_path), writer, f"Hudi {hudi.version}")


def test_deleted_partitions(hudi: HudiSpark, tmp_path: Path) -> None:
    case = Case.create(tmp_path, COPY_ON_WRITE, table_version(), {"files": 1, "record_index": 1})
    writer = case.writer
    rounds(writer, 2, keys=9)
    assert delete_partitions(writer.table, ["p1"], lambda: writer.now_ms) is not None
    writer.live = {key: found for key, found in writer.live.items() if found["part"] != "p1"}
    writer.where = {key: place for key, place in writer.where.items() if place[0] != "p1"}
    writer.now_ms += 10_000
    read_by_both(hudi, case)
    writer.write([row(0, "p0", 30)])
    done = clean(writer.table, ONE, lambda: writer.now_ms)
    assert done is not None
    assert done.partitions == ("p1",)
    read_by_both(hudi, case)
    writer.groups = 7
    upsert(hudi, writer, 100, options(hudi, case))
    read_by_both(hudi, case)
    assert validate_metadata(writer.table) == []


@pytest.mark.parametrize("kind", [COPY_ON_WRITE, MERGE_ON_READ])
def test_overwritten_partitions(hudi: HudiSpark, tmp_path: Path, kind: str) -> None:
    """A partition replaced, then the table; Hudi finds the keys by our record index, and overwrites on its own."""
    case = Case.create(tmp_path, kind, table_version(), {"files": 1, "record_index": 1})
    writer = case.writer
    rounds(writer, 2, keys=9)
    new = [row(1, "p1", 50), row(20, "p1", 50), row(21, "p5", 50)]
    result = overwrite(writer.table, new, lambda: writer.now_ms)
    follow(writer, new, result, ["p1"])
    read_by_both(hudi, case)
    upsert(hudi, writer, 100, options(hudi, case))
    read_by_both(hudi, case)
    case.check_record_index(case.metadata)
    assert validate_metadata(writer.table) == []
    over = [row(1, "p1", 200), row(300, "p1", 200)]
    hudi.write(
        writer.table,
        pa.Table.from_pylist([dict(r) for r in over], writer.schema),
        {**options(hudi, case), "hoodie.datasource.write.operation": "insert_overwrite"},
    )
    writer.live = {key: found for key, found in writer.live.items() if found["part"] != "p1"}
    writer.live |= {r["id"]: r for r in over}
    writer.table = writer.table.reload()
    learn_places(writer)
    read_by_both(hudi, case)
    writer.now_ms = now_ms()
    whole = [row(5, "p0", 300), row(6, "p2", 300)]
    result = overwrite(writer.table, whole, lambda: writer.now_ms, whole_table=True)
    follow(writer, whole, result, ["p0", "p1", "p5"])
    read_by_both(hudi, case)
    assert validate(writer.table) == []
    assert validate_metadata(writer.table) == []
