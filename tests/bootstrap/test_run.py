"""A bootstrap that is interrupted, meets damaged files, or finds the table changed."""

from __future__ import annotations

import signal
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tagstream.bootstrap import tasks
from tagstream.bootstrap.errors import BootstrapError
from tagstream.bootstrap.plan import plan_bootstrap
from tagstream.bootstrap.report import BootstrapProgress
from tagstream.bootstrap.tasks import TWICE_SUFFIX
from tagstream.state.errors import StateError
from tagstream.state.index_loads import newest_index_load, start_path, starting_pointer
from tagstream.state.local_store import open_at
from tagstream.table.errors import ConfigError, CorruptFileError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tests.bootstrap.index_content import LABELS, content, live, load, make_layout
from tests.table.writer import Writer, row


class KilledError(BaseException):
    """Stands for the death of the process."""


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    """A merge-on-read table with three commits in four partitions."""
    writer = Writer.create(tmp_path, MERGE_ON_READ, groups=4)
    writer.write([row(i, f"p{i % 4}", 1) for i in range(60)])
    writer.write([row(i, f"p{(i + 1) % 4}", 2) for i in range(20)])
    writer.write(deletes=[f"k{i}" for i in range(40, 45)], orderings={"k40": 3, "k41": 4})
    return writer


def rows_of(writer: Writer) -> set[tuple[str, str, str]]:
    return {(key, *place) for key, place in writer.where.items()}


def table_of(writer: Writer) -> HoodieTable:
    return writer.table.reload()


@pytest.mark.parametrize("kill_at", [1, 3, 6, 7, 9])
def test_a_killed_run_goes_on_where_it_stopped(kill_at: int, writer: Writer, tmp_path: Path) -> None:
    table, ticks = table_of(writer), []
    layout = make_layout(tmp_path, table)

    def kill(progress: BootstrapProgress) -> None:
        ticks.append(progress)
        if len(ticks) == kill_at:
            raise KilledError

    with pytest.raises(KilledError):
        load(table, layout, progress=kill)
    assert newest_index_load(layout) is None
    written = {p: p.stat().st_mtime_ns for p in Path(layout.durable.where("gen-1")).rglob("*.*") if p.suffix != ".tmp"}
    report = load(table, layout)
    assert report.resumed == kill_at
    assert live(layout) == rows_of(writer)
    kept = [p for p in written if p.exists()]
    assert [p for p in kept if p.stat().st_mtime_ns != written[p]] == []
    assert not layout.durable.exists("gen-1/scan")


PROGRAM = """
import sys
from pathlib import Path
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tests.bootstrap.index_content import load, make_layout
from tests.support.table_version import timeline_of

def tell(progress):
    print(progress.stage, progress.done, flush=True)
    sys.stdin.readline()  # goes on when it is told to

table = HoodieTable.open(sys.argv[1])
load(table, make_layout(Path(sys.argv[2]), table), progress=tell)
"""


@pytest.mark.kill
def test_a_process_killed_by_sigkill_leaves_what_another_goes_on_with(writer: Writer, tmp_path: Path) -> None:
    table = table_of(writer)
    layout = make_layout(tmp_path, table)
    command = [sys.executable, "-c", PROGRAM, table.base_path, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        while process.stdout.readline().split() != ["load", "1"]:
            process.stdin.write("\n")
            process.stdin.flush()
        process.send_signal(signal.SIGKILL)
    assert load(table, layout).resumed > 1
    assert live(layout) == rows_of(writer)


def test_progress_ends_at_all_of_both_stages(writer: Writer, tmp_path: Path) -> None:
    table, ticks = table_of(writer), list[BootstrapProgress]()
    report = load(table, make_layout(tmp_path, table), progress=ticks.append)
    for stage in ("scan", "load"):
        last = [t for t in ticks if t.stage == stage][-1]
        assert last.done == last.total
    assert ticks[-1].keys == report.live == len(writer.live)


def test_deletes_leave_the_greatest_ordering_the_slice_knows(writer: Writer, tmp_path: Path) -> None:
    table = table_of(writer)
    layout = make_layout(tmp_path, table)
    load(table, layout)
    dead = {k: e.ordering for k, e in content(layout).items() if e.partition is None}
    assert dead == {"k40": 3, "k41": 4, "k42": 1, "k43": 1, "k44": 1}


def test_a_delete_without_ordering_takes_that_of_the_base_file(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, MERGE_ON_READ).with_options(inserts_to_base_files=True)
    writer.write([row(i, "p0", i + 5) for i in range(9)])
    writer.with_options(inserts_to_base_files=False).write(deletes=["k1", "k2"], orderings={"k2": 20})
    table = table_of(writer)
    assert all(s.file_slice.base_file is not None for s in plan_bootstrap(table).slices)
    layout = make_layout(tmp_path, table)
    load(table, layout)
    assert {k: e.ordering for k, e in content(layout).items() if e.partition is None} == {"k1": 6, "k2": 20}


def test_a_table_that_changed_after_the_kill_is_planned_anew(writer: Writer, tmp_path: Path) -> None:
    table = table_of(writer)
    layout = make_layout(tmp_path, table)

    def kill(progress: BootstrapProgress) -> None:
        if progress.stage == "load":
            raise KilledError

    with pytest.raises(KilledError):
        load(table, layout, progress=kill)
    writer.write([row(i, "p0", 9) for i in range(55, 70)])
    report = load(table, layout)
    assert (report.resumed, live(layout)) == (0, rows_of(writer))


def test_a_complete_generation_is_reported_again_and_never_changed(writer: Writer, tmp_path: Path) -> None:
    table = table_of(writer)
    layout = make_layout(tmp_path, table)
    report = load(table, layout)
    assert load(table, layout) == report
    writer.write([row(99, "p0", 1)])
    with pytest.raises(BootstrapError, match="make index load 2"):
        load(table, layout)
    load(table, layout, 2)
    assert live(layout, 2) == rows_of(writer)


def test_a_table_without_commits_gives_an_empty_index(tmp_path: Path) -> None:
    table = Writer.create(tmp_path, COPY_ON_WRITE).table
    layout = make_layout(tmp_path, table)
    report = load(table, layout)
    assert (report.instant, report.live, content(layout)) == (None, 0, {})


def base_files(writer: Writer) -> list[Path]:
    return sorted(Path(writer.table.base_path).rglob("p*/*.parquet"))


@pytest.fixture
def written(tmp_path: Path) -> Writer:
    """A copy-on-write table of one commit."""
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    writer.write([row(i, f"p{i % 3}", 1) for i in range(60)])
    return writer


@pytest.mark.parametrize("damage", ["cut", "footer", "pages"])
def test_a_corrupt_file_is_named_or_skipped_and_counted(damage: str, written: Writer, tmp_path: Path) -> None:
    victim, table = base_files(written)[2], table_of(written)
    data = victim.read_bytes()
    if damage == "cut":
        victim.write_bytes(data[: len(data) // 2])
    elif damage == "footer":
        victim.write_bytes(data[:-20] + b"\xff" * 12 + data[-8:])
    else:
        victim.write_bytes(data[:4] + bytes(len(data) // 2) + data[4 + len(data) // 2 :])  # pages of zeros
    layout = make_layout(tmp_path, table)
    with pytest.raises(CorruptFileError, match=victim.name):
        load(table, layout)
    assert newest_index_load(layout) is None
    report = load(table, layout, corrupt="skip")
    file_id = victim.name.split("_")[0]
    assert len(report.skipped) == 1 and victim.name in report.skipped[0]
    assert live(layout) == {r for r in rows_of(written) if r[2] != file_id}


@pytest.mark.parametrize("kind", ["base", "log"])
def test_a_file_that_a_commit_names_and_that_is_gone_is_noticed(kind: str, writer: Writer, tmp_path: Path) -> None:
    table = table_of(writer)
    slices = [s.file_slice for s in plan_bootstrap(table).slices]
    victim = next(s for s in slices if len(s.log_files) > 1).log_paths[-1]
    if kind == "base":
        writer = Writer.create(tmp_path / "cow", COPY_ON_WRITE)
        writer.write([row(i, "p0", 1) for i in range(9)])
        writer.write([row(i, "p0", 2) for i in range(9)])
        table = table_of(writer)
        victim = plan_bootstrap(table).slices[0].file_slice.base_path or ""
    Path(table.base_path, victim).unlink()
    layout = make_layout(tmp_path, table)
    with pytest.raises(CorruptFileError, match=Path(victim).name):
        load(table, layout)
    assert load(table, layout, corrupt="skip").skipped == [f"{victim} is missing"]


def test_an_empty_file_is_skipped_and_said(written: Writer, tmp_path: Path) -> None:
    victim, table = base_files(written)[0], table_of(written)
    victim.write_bytes(b"")
    layout = make_layout(tmp_path, table)
    report = load(table, layout)
    assert [x for x in report.left_out if victim.name in x and "empty" in x]
    assert live(layout) == {r for r in rows_of(written) if r[2] != victim.name.split("_")[0]}


def test_a_file_with_other_rows_than_its_commit_says_is_listed(written: Writer, tmp_path: Path) -> None:
    table = table_of(written)
    path = written.miscounted("p0", 1)
    report = load(table, make_layout(tmp_path, table))
    assert len(report.mismatched) == 1 and path in report.mismatched[0]


def test_scanned_keys_that_were_damaged_before_the_load_are_not_used(written: Writer, tmp_path: Path) -> None:
    table = table_of(written)
    layout = make_layout(tmp_path, table)

    def damage(progress: BootstrapProgress) -> None:
        if progress.stage == "scan" and progress.done == progress.total:
            for path in Path(layout.durable.where("gen-1/scan")).glob("*.arrows"):
                data = bytearray(path.read_bytes())
                data[len(data) // 2] ^= 1
                path.write_bytes(data)

    with pytest.raises(BootstrapError, match="another checksum"):
        load(table, layout, progress=damage)
    assert newest_index_load(layout) is None


@pytest.mark.parametrize("damage", ["no account", "half an account", "half the keys", "no keys"])
def test_a_scan_that_a_power_cut_took_is_done_again(damage: str, written: Writer, tmp_path: Path) -> None:
    table = table_of(written)
    layout = make_layout(tmp_path, table)

    def kill(progress: BootstrapProgress) -> None:
        if progress.stage == "load":
            raise KilledError

    with pytest.raises(KilledError):
        load(table, layout, progress=kill)
    scan = Path(layout.durable.where("gen-1/scan"))
    victim = sorted(scan.glob("*.json" if "account" in damage else "*.arrows"))[1]
    if damage.startswith("no"):
        victim.unlink()
    else:
        victim.write_bytes(victim.read_bytes()[: victim.stat().st_size // 2])
    load(table, layout)
    assert live(layout) == rows_of(written)


def test_a_key_found_twice_is_listed_and_the_newest_slice_wins(written: Writer, tmp_path: Path) -> None:
    del written.where["k5"]  # so the writer does not know that it moves
    written.write([row(5, "p9", 0)])
    table = table_of(written)
    layout = make_layout(tmp_path, table)
    report = load(table, layout)
    newest = table.timeline().newest_completed
    assert live(layout) == rows_of(written)
    assert (report.twice, report.live) == (1, 60)
    (found,) = report.twice_examples
    assert (found["key"], found["kept"][0], found["kept"][2], [o[0] for o in found["others"]]) == (
        "k5", "p9", newest, ["p2"]
    )  # fmt: skip
    assert len(list(Path(layout.durable.where("gen-1")).glob(f"*{TWICE_SUFFIX}"))) == 1


def test_key_ranges_bound_the_memory_of_a_load(writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(writer)
    layout = make_layout(tmp_path, table)
    monkeypatch.setattr(tasks, "RUN_ROWS", 5)
    load(table, layout)
    assert live(layout) == rows_of(writer)


def test_string_orderings_are_kept(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("ver", pa.string()), ("name", pa.string()),
                        ("amount", pa.float64())])  # fmt: skip
    writer = Writer.create(tmp_path, COPY_ON_WRITE, schema=schema)
    writer.write([{**row(i, "p0", i), "ver": f"v{i}"} for i in range(20)])
    table = table_of(writer)
    layout = make_layout(tmp_path, table)
    load(table, layout)
    assert {k: e.ordering for k, e in content(layout).items()} == {f"k{i}": b"v%d" % i for i in range(20)}


def test_a_table_without_ordering_field_has_no_tombstones(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, MERGE_ON_READ, settings={"ordering_fields": ()})
    writer.write([row(i, f"p{i % 2}", 1) for i in range(20)])
    writer.write([row(2, "p1", 1)], deletes=["k0", "k1"])
    table = table_of(writer)
    layout = make_layout(tmp_path, table)
    report = load(table, layout)
    assert (live(layout), report.tombstones) == (rows_of(writer), 0)
    assert {e.ordering for e in content(layout).values()} == {None}


def test_every_key_is_in_the_group_that_the_stream_asks(written: Writer, tmp_path: Path) -> None:
    table = table_of(written)
    for global_index in (True, False):
        layout = make_layout(tmp_path / str(global_index), table, global_index=global_index)
        load(table, layout)
        for i, label in enumerate(LABELS):
            store, _ = open_at(layout, label, starting_pointer(layout, 1, label))
            with store:
                keys = [key[1:] for key, _ in store.items()]
            assert keys
            assert {zlib.crc32(key) % len(LABELS) for key in keys} == {i}


def test_bad_arguments_are_refused(written: Writer, tmp_path: Path) -> None:
    table = table_of(written)
    layout = make_layout(tmp_path, table)
    with pytest.raises(ConfigError, match="is not a regular expression"):
        load(table, layout, partition_regex="(")
    with pytest.raises(ValueError, match="index load 0"):
        load(table, layout, 0)
    with pytest.raises(ValueError, match="not stored as"):
        load(table, replace(layout, ordering="bytes"))


def test_a_damaged_start_stops_the_run_that_goes_on(written: Writer, tmp_path: Path) -> None:
    table = table_of(written)
    layout = make_layout(tmp_path, table)

    def kill(progress: BootstrapProgress) -> None:
        if progress.stage == "load" and progress.done == 1:
            raise KilledError

    with pytest.raises(KilledError):
        load(table, layout, progress=kill)
    damaged = Path(layout.durable.where(start_path(layout, 1, LABELS[0])))
    damaged.write_bytes(damaged.read_bytes()[:-3])
    with pytest.raises(StateError, match=damaged.name):
        load(table, layout)


def test_a_table_without_ordering_field_of_a_stream_that_its_source_orders(tmp_path: Path) -> None:
    """By positions of a log, which no row has: the index knows the places, and of no row an ordering value."""
    writer = Writer.create(tmp_path, COPY_ON_WRITE, groups=2)
    writer.write([row(i, f"p{i % 2}", 1) for i in range(20)])
    table = writer.table.reload()
    table = replace(table, config=replace(table.config, ordering_fields=()))
    layout = replace(make_layout(tmp_path, table), ordering="int64")
    assert load(table, layout).live == 20
    assert live(layout) == rows_of(writer)
    assert {entry.ordering for entry in content(layout).values()} == {None}
    with pytest.raises(ValueError, match="'bytes'"):
        load(table, replace(layout, ordering="bytes"), 2)
