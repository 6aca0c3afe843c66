"""The change stream of random histories with table services among the writes: what was written, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tagstream.errors import CleanedPastError, MissingChangesError
from tagstream.reading import open_table
from tagstream.table.file_group.change_file import LoggingMode
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.read.change_stream import changes_between
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.archiving import archive_table
from tagstream.table.services.cleaning import clean
from tagstream.table.services.compaction import compact
from tagstream.table.services.compaction_plan import schedule_compaction
from tagstream.table.services.options import ArchiveOptions, CleanOptions
from tagstream.table.services.replaced_partitions import delete_partitions
from tagstream.table.services.restore import restore
from tagstream.table.services.savepoint import create_savepoint
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tests.support.changes import Change, Recorder, applied, of_ours
from tests.support.table_version import table_version
from tests.table.metadata.case import Case
from tests.table.services.clusters import learn, plan_and_cluster
from tests.table.services.compaction_compacting import ALL, clock
from tests.table.writer import SCHEMA, Writer, row

pytestmark = pytest.mark.table_versions(6, 8, 9)
ARCHIVED = ArchiveOptions(min_commits=2, max_commits=3)
LOGGED: tuple[LoggingMode | None, ...] = (*LoggingMode, None)


def recorder(
    folder: Path, table_type: str, mode: LoggingMode | None = LoggingMode.DATA_BEFORE_AFTER, metadata: bool = False
) -> Recorder:
    """A table with a metadata table of its version, or without one."""
    settings = {"change_logging": mode}
    if metadata:
        return Recorder(Case.create(folder, table_type, table_version(), settings=settings).writer)
    return Recorder(Writer.without_metadata(folder, table_type, settings=settings))


def changes(writer: Writer, **times: Any) -> list[Change]:
    return of_ours(open_table(writer.table.base_path).changes(**times).read_all())


def done(writer: Writer, instant: str) -> str:
    """The time by which an instant counts in a query."""
    return writer.table.timeline().completion_time(instant)


def whole(writer: Writer) -> None:
    table = writer.table.reload()
    assert validate(table) == []
    assert validate_metadata(table) == []


def compacted(writer: Writer, then: Any = lambda: None) -> None:
    """Plan a compaction and execute it; ``then`` happens in between."""
    tick = clock(writer)
    instant = schedule_compaction(writer.table, ALL, tick, force=True)
    then()
    if instant is not None:
        compact(writer.table.reload(), instant, tick)


def clustered(writer: Writer) -> None:
    plan_and_cluster(writer)
    learn(writer)


@pytest.mark.extended("more kinds of tables", first=("v9-MERGE_ON_READ-DATA_BEFORE_AFTER", "v6-COPY_ON_WRITE-None"))
@pytest.mark.parametrize("mode", LOGGED)
@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
def test_a_history_with_services(table_type: str, mode: LoggingMode | None, tmp_path: Path) -> None:
    found = recorder(tmp_path, table_type, mode)
    writer = found.writer
    states: list[dict[str, Any]] = []

    def between(number: int) -> None:
        states.append(dict(writer.live))
        if table_type == MERGE_ON_READ and number in (1, 4):
            compacted(writer)
        if number == 3:
            clustered(writer)

    seed = LOGGED.index(mode) + 10 * table_version()
    found.random_commits(6, seed, between)
    whole(writer)
    assert changes(writer) == sorted(found.expected)
    # What happened after a commit turns its state into the newest one.
    wanted = {key: {k: v for k, v in row.items() if v is not None} for key, row in writer.live.items()}
    for number in (0, 2, 4):
        since = done(writer, found.instants[number])
        later = changes(writer, since=since)
        assert later == sorted(c for c in found.expected if c[1] > found.instants[number])
        state = {k: {n: v for n, v in row.items() if v is not None} for k, row in states[number].items()}
        assert applied(state, later) == wanted
        until = done(writer, found.instants[number + 1])
        assert changes(writer, since=since, until=until) == sorted(
            c for c in found.expected if c[1] == found.instants[number + 1]
        )


@pytest.mark.extended("a plan that is older than writes")
def test_writes_between_plan_and_execution_of_a_compaction(tmp_path: Path) -> None:
    found = recorder(tmp_path, MERGE_ON_READ)
    found.random_commits(3, 5)
    compacted(found.writer, lambda: found.random_commits(2, 6))
    found.random_commits(2, 7)
    whole(found.writer)
    assert changes(found.writer) == sorted(found.expected)


@pytest.mark.extended("more kinds of tables", first=("v9-COPY_ON_WRITE",))
@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
def test_a_clean_takes_change_files_with_their_slices(table_type: str, tmp_path: Path) -> None:
    found = recorder(tmp_path, table_type, metadata=True)
    writer = found.writer
    found.random_commits(5, 3, lambda n: compacted(writer) if table_type == MERGE_ON_READ and n in (1, 2) else None)
    before = set((tmp_path / "t").rglob("*.cdc"))
    assert clean(writer.table.reload(), CleanOptions(commits=2), clock(writer)) is not None
    whole(writer)
    there = set((tmp_path / "t").rglob("*.cdc"))
    assert there < before
    for path in there:  # a change file stays exactly as long as its base file
        file_id, begins = path.name[1:].split("_")[:2]
        assert list(path.parent.glob(f"{file_id}_*_{begins.split('.')[0]}.parquet"))
    kept = done(writer, found.instants[-3])
    assert changes(writer, since=kept) == sorted(c for c in found.expected if c[1] > found.instants[-3])
    with pytest.raises(MissingChangesError, match="a clean has deleted it"):
        changes(writer)


@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
def test_a_clean_of_replaced_file_groups_takes_their_deletes(table_type: str, tmp_path: Path) -> None:
    """The deletes are inferred from the replaced rows. Once these are gone, the stream says so."""
    found = recorder(tmp_path, table_type)
    writer = found.writer
    found.random_commits(2, 5)
    times = [done(writer, instant) for instant in found.instants]
    path = min(place for place, _ in writer.where.values())
    assert delete_partitions(writer.table.reload(), [path], clock(writer)) is not None
    deletes = {json.loads(change[2])["id"] for change in changes(writer, since=times[-1]) if change[0] == "d"}
    assert deletes == {key for key, place in writer.where.items() if place[0] == path}
    learn(writer)
    writer.live = {key: held for key, held in writer.live.items() if key not in deletes}
    found.random_commits(3, 6)
    assert clean(writer.table.reload(), CleanOptions(commits=1), clock(writer)) is not None
    with pytest.raises(CleanedPastError, match="a clean has deleted files of that time"):
        changes(writer, since=times[-1])
    with pytest.raises(MissingChangesError, match="file group .* a clean has deleted it"):
        list(changes_between(writer.table.reload(), times[-1])[1])


@pytest.mark.extended("more kinds of tables", first=("v6",))
def test_changes_of_archived_writes_are_refused_by_name(tmp_path: Path) -> None:
    found = recorder(tmp_path, COPY_ON_WRITE)
    writer = found.writer
    found.random_commits(5, 4)
    times = [done(writer, instant) for instant in found.instants]
    clean(writer.table.reload(), CleanOptions(commits=1), clock(writer))
    assert archive_table(writer.table.reload(), ARCHIVED, CleanOptions(commits=1), clock(writer))
    first = writer.table.timeline().completed_writes[0].time
    at = times[found.instants.index(first) - 1]
    with pytest.raises(MissingChangesError, match=f"archived.*read the changes since {at}"):
        changes(writer)
    with pytest.raises(MissingChangesError, match="archived"):
        changes(writer, since=times[0])
    assert changes(writer, since=times[-2]) == sorted(c for c in found.expected if c[1] == found.instants[-1])


@pytest.mark.extended("more kinds of tables", first=("v6-COPY_ON_WRITE",))
@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
def test_a_restore_takes_change_files_back(table_type: str, tmp_path: Path) -> None:
    found = recorder(tmp_path, table_type)
    writer = found.writer
    found.random_commits(3, 8, lambda n: compacted(writer) if table_type == MERGE_ON_READ and n == 1 else None)
    kept, there = sorted(found.expected), set((tmp_path / "t").rglob("*.cdc"))
    saved = writer.table.timeline().completed_writes[-1].time
    create_savepoint(writer.table.reload(), saved, "a test", "", clock(writer))
    state = dict(writer.live), dict(writer.where)
    found.random_commits(2, 9)
    assert set((tmp_path / "t").rglob("*.cdc")) >= there
    restore(writer.table.reload(), saved, clock(writer))
    assert set((tmp_path / "t").rglob("*.cdc")) == there
    writer.live, writer.where = state
    writer.table = writer.table.reload()
    assert changes(writer) == kept
    writer.before_complete = None
    found.expected = list(kept)
    found.random_commits(1, 10)
    assert changes(writer) == sorted(found.expected)


@pytest.mark.extended("more kinds of tables", first=("v9",))
def test_the_stream_begins_where_it_was_turned_on(tmp_path: Path) -> None:
    found = recorder(tmp_path, COPY_ON_WRITE, None)
    writer = found.writer
    found.random_commits(3, 11)
    assert changes(writer) == sorted(found.expected)  # inferred
    writer.table = replace(
        writer.table, config=replace(writer.table.config, change_logging=LoggingMode.DATA_BEFORE_AFTER)
    )
    properties = tmp_path / "t" / ".hoodie" / "hoodie.properties"
    properties.write_text(properties.read_text().replace("cdc.enabled=false", "cdc.enabled=true"))
    begun = done(writer, found.instants[-1])
    found.random_commits(2, 12)
    assert changes(writer, since=begun) == sorted(c for c in found.expected if c[1] > found.instants[2])
    with pytest.raises(MissingChangesError, match="no change file of it"):
        changes(writer)


@pytest.mark.extended("more kinds of tables", first=("v9",))
def test_a_missing_change_file_is_named(tmp_path: Path) -> None:
    found = recorder(tmp_path, COPY_ON_WRITE)
    found.random_commits(3, 13)
    victim = sorted((tmp_path / "t").rglob("*.cdc"))[0]
    data = victim.read_bytes()
    victim.unlink()
    with pytest.raises(MissingChangesError, match=victim.name.replace(".", r"\.")):
        changes(found.writer)
    (problem,) = validate(found.writer.table)
    assert victim.name in problem and "is missing, the change file of" in problem
    victim.write_bytes(data)
    (victim.parent / victim.name.replace(victim.name.rpartition("_")[2], "9-9-9.cdc")).write_bytes(data)
    assert [p for p in validate(found.writer.table) if "is named by no commit" in p]


@pytest.mark.extended("more kinds of tables", first=("v9",))
def test_the_images_are_the_rows(tmp_path: Path) -> None:
    """Their types are those of the table, and applied to the state before they give the snapshot, value by value."""
    found = recorder(tmp_path, COPY_ON_WRITE)
    found.random_commits(3, 14)
    rows = open_table(found.writer.table.base_path).changes().read_all()
    schema = open_table(found.writer.table.base_path).schema
    assert [rows.schema.field(name).type.fields for name in ("before", "after")] == [list(schema)] * 2
    live = {r["id"]: r for r in read_snapshot(found.writer.table).select(schema.names).to_pylist()}
    assert {k: json.dumps(v) for k, v in applied({}, of_ours(rows)).items()}.keys() == live.keys()


@pytest.mark.extended("more kinds of tables", first=("v9-MERGE_ON_READ",))
@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
def test_required_and_nested_columns(table_type: str, tmp_path: Path) -> None:
    required = [field.with_nullable(field.name == "name") for field in SCHEMA]
    schema = pa.schema([*required, pa.field("n", pa.struct([pa.field("a", pa.int32(), nullable=False)])),
                        pa.field("l", pa.list_(pa.string()), nullable=False)])  # fmt: skip
    settings = {"change_logging": LoggingMode.DATA_BEFORE_AFTER}
    writer = Writer.without_metadata(tmp_path, table_type, schema=schema, groups=1, settings=settings)
    found = Recorder(writer)
    rows = [{**row(n, "p0", 1), "n": None if n % 2 else {"a": n}, "l": ["x"] * n} for n in range(4)]
    found.write(rows)
    found.write([{**rows[1], "ver": 2, "l": []}, {**row(9, "p0", 2), "n": {"a": 9}, "l": ["y"]}], ["k2"])
    if table_type == MERGE_ON_READ:
        compacted(writer)
    found.write([{**rows[0], "ver": 3, "name": None}])
    assert changes(writer) == sorted(found.expected)
