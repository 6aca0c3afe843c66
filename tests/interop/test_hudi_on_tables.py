"""Real Hudi reads and continues what the table layer wrote; hudi-rs and we read what Hudi made of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.validate import validate
from tagstream.table.timeline.instant import ROLLBACK
from tagstream.table.write.markers import list_markers
from tests.interop.histories import KINDS, ORDERINGS, create, event, live_rows, write_history
from tests.interop.hudi_spark import HudiError, HudiSpark
from tests.support.compare import compare
from tests.support.hudi_rs import keys_found_twice, read_table
from tests.support.table_version import table_version
from tests.table.writer import CrashError, Writer

pytestmark = pytest.mark.hudi_jar
LATER = 1_000
# An index of Hudi finds our rows where it looks: BLOOM and SIMPLE in base files, the record index anywhere.
CONTINUED = [
    ("cow", "BLOOM"), ("cow", "RECORD"), ("mor", "RECORD"), ("mor_base_inserts", "BLOOM"), ("mor_base_inserts", "RECORD"),
]  # fmt: skip


@pytest.fixture(scope="session")
def histories(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Writer]:
    """A table by its kind and ordering type; shared by the tests, which copy it before they change it."""

    @cache
    def make(kind: str, ordering: str, version: int) -> Writer:
        writer = create(tmp_path_factory.mktemp(f"{kind}-{ordering}-v{version}"), kind, ordering)
        write_history(writer, ordering)
        assert validate(writer.table) == []
        return writer

    return lambda kind, ordering: make(kind, ordering, table_version())


def copy_of(writer: Writer, folder: Path) -> Writer:
    """The writer on a copy of its table, with an oracle of its own."""
    shutil.copytree(writer.table.base_path, folder / "t")
    return Writer(
        HoodieTable.open(str(folder / "t")),
        writer.schema,
        writer.groups,
        writer.options,
        dict(writer.live),
        dict(writer.where),
        writer.now_ms,
        writer.attempt,
    )


def check(found: pa.Table, writer: Writer, who: str) -> None:
    """The rows found are the oracle's, with no key twice."""
    assert keys_found_twice(found, "id").num_rows == 0, who
    wrong = compare(live_rows(writer), found, ["id"])
    assert not wrong, f"{who}: {wrong}"
    assert pc.all(pc.equal(found["_hoodie_record_key"], found["id"])).as_py(), who
    assert pc.all(pc.equal(found["_hoodie_partition_path"], found["part"])).as_py(), who


def check_all(hudi: HudiSpark, writer: Writer) -> None:
    """Hudi, hudi-rs and this project read the oracle's rows."""
    path = writer.table.base_path
    check(hudi.read(path), writer, f"Hudi {hudi.version}")
    check(read_snapshot(writer.table.reload()), writer, "this project")
    if not may_be_hidden_from_hudi_rs(writer.table.reload()):
        check(read_table(path), writer, "hudi-rs")


def may_be_hidden_from_hudi_rs(table: HoodieTable) -> bool:
    """hudi-rs 0.5.0 lists by the metadata table from version 8 on, and may pass over file groups without a base file."""
    if not table.config.metadata_partitions or not table.config.has_completion_times:
        return False
    view = table.view()
    return any(found.base_file is None for part in view.partitions() for found in view.latest_merged_slices(part))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_tables_are_read(hudi: HudiSpark, histories: Callable[[str, str], Writer], kind: str, ordering: str) -> None:
    check_all(hudi, histories(kind, ordering))


@pytest.mark.parametrize(
    ("kind", "index", "ordering"),
    [
        *((kind, index, "long") for kind, index in CONTINUED),
        *((kind, "BLOOM", ordering) for kind in ("cow", "mor_base_inserts") for ordering in ("string", "timestamp")),
    ],
)
def test_hudi_upserts_and_deletes_and_we_go_on(
    hudi: HudiSpark, histories: Callable[[str, str], Writer], tmp_path: Path, kind: str, index: str, ordering: str
) -> None:
    writer = copy_of(histories(kind, ordering), tmp_path)
    value = ORDERINGS[ordering][1]
    changed = [{**row, "ver": value(LATER), "name": "hudi"} for row in list(writer.live.values())[::3]]
    new = [event(1_000 + n, n % 3, value(LATER), "new") for n in range(10)]
    rows = pa.Table.from_pylist(changed + new, schema=writer.schema)
    if builds_no_record_index(hudi, kind, index):
        with pytest.raises(HudiError, match="No value present in Option"):
            hudi.write(writer.table, rows, hudi.index(index))
        return
    hudi.write(writer.table, rows, hudi.index(index))
    writer.live |= {row["id"]: row for row in [*changed, *new]}
    check_all(hudi, writer)

    gone = list(writer.live.values())[::7]
    rows = pa.Table.from_pylist([{**row, "ver": value(LATER + 1)} for row in gone], schema=writer.schema)
    hudi.write(writer.table, rows, hudi.index(index), operation="delete")
    for row in gone:
        del writer.live[row["id"]]
    check_all(hudi, writer)

    writer.table.drop_metadata_table(writer.now_ms)
    writer.table = writer.table.reload()
    learn_places(writer)
    again = [{**row, "ver": value(LATER + 2), "name": "ours"} for row in list(writer.live.values())[::2]]
    moved = {**again[0], "part": "p1" if again[0]["part"] == "p0" else "p0"}
    writer.write([moved, *again[1:]], [row["id"] for row in list(writer.live.values())[1::6]])
    check_all(hudi, writer)


def builds_no_record_index(hudi: HudiSpark, kind: str, index: str) -> bool:
    """Hudi 0.15 takes its record index from base files: over a file group of logs only it fails, and says so."""
    return hudi.is_0x and (kind, index) == ("mor", "RECORD")


def learn_places(writer: Writer) -> None:
    """Where the rows are now, as a bootstrap finds it."""
    rows = read_snapshot(writer.table).to_pylist()
    writer.where = {row["id"]: (row["part"], row["_hoodie_file_name"].split("_")[0]) for row in rows}


@pytest.mark.parametrize("crash", ["files", "publish"])
@pytest.mark.parametrize(("kind", "index"), CONTINUED)
def test_hudi_rolls_a_failed_write_of_ours_back(
    hudi: HudiSpark, histories: Callable[[str, str], Writer], tmp_path: Path, kind: str, index: str, crash: str
) -> None:
    """It failed when its files were staged, or when they had their names."""
    writer = copy_of(histories(kind, "long"), tmp_path)
    value = ORDERINGS["long"][1]
    live = list(writer.live.values())
    lost = [{**row, "ver": value(LATER), "name": "lost"} for row in live[::2]]
    with pytest.raises(CrashError):
        writer.write([*lost, event(2_000, 1, value(LATER), "lost")], [live[1]["id"]], crash=crash)
    (failed,) = writer.table.timeline().pending_writes
    left = [marker.path for marker in list_markers(writer.table.storage, failed.time)]
    assert bool(left) == (crash == "publish")
    assert all(writer.table.storage.exists(path) for path in left)
    check_all(hudi, writer)  # nobody sees it

    # Where Hudi's indexes see base files only, a known key of a log would become a second row: new keys then.
    blind = builds_no_record_index(hudi, kind, index)
    changed = [] if blind else [{**row, "ver": value(LATER), "name": "hudi"} for row in live[::3]]
    new = [event(3_000 + n, n % 3, value(LATER), "new") for n in range(10)]
    rows = pa.Table.from_pylist(changed + new, schema=writer.schema)
    hudi.write(writer.table, rows, hudi.index("SIMPLE" if blind else index))
    writer.live |= {row["id"]: row for row in [*changed, *new]}
    if not may_be_hidden_from_hudi_rs(writer.table.reload()):
        check(read_table(writer.table.base_path), writer, "hudi-rs")
    check(read_snapshot(writer.table.reload()), writer, "this project")
    timeline = writer.table.timeline()
    assert not timeline.pending_writes
    assert timeline.find(failed.time) is None
    assert [i for i in timeline.instants if i.action == ROLLBACK and i.is_completed]
    assert not [path for path in left if path.endswith(".parquet") and writer.table.storage.exists(path)]
    assert not list(writer.table.storage.walk_files(f".hoodie/.temp/{failed.time}"))

    # Its own reader of 0.15 stops at the rollback's block, which it dates after the commit it rolls back for, until a
    # later commit; so there is one more.
    more = [event(4_000 + n, n % 3, value(LATER), "more") for n in range(10)]
    rows = pa.Table.from_pylist(more, schema=writer.schema)
    hudi.write(writer.table, rows, hudi.index("SIMPLE" if blind else index))
    writer.live |= {row["id"]: row for row in more}
    check_all(hudi, writer)
