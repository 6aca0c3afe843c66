"""Change streams of tables that real Hudi wrote, compared with the answers of Hudi's own CDC query."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest

from tagstream.errors import MissingChangesError
from tagstream.reading import open_table
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tests.support.changes import Recorder, of_hudi, of_ours
from tests.support.paths import FIXTURES
from tests.table.writer import Row, Writer

ANSWERS = json.loads((FIXTURES / "change_files" / "answers.json").read_text())
SCHEMA = pa.schema([("id", pa.string()), ("ver", pa.int32()), ("name", pa.string()), ("part", pa.string())])


@pytest.fixture(params=sorted(ANSWERS))
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A table of Hudi's with change data capture."""
    with tarfile.open(FIXTURES / "change_files" / "tables.tar.xz") as archive:
        members = [member for member in archive.getmembers() if member.name.split("/")[0] == request.param]
        archive.extractall(tmp_path, members, filter="data")
    return tmp_path / str(request.param)


def test_the_answer_is_that_of_hudi(table: Path) -> None:
    wanted = of_hudi(pa.Table.from_pylist(ANSWERS[table.name]))
    assert of_ours(open_table(table).changes().read_all()) == wanted
    times = {i.time: i.completion_time or i.time for i in open_table(table).timeline() if i.is_completed}
    for instant in sorted({found[1] for found in wanted}):
        later = of_ours(open_table(table).changes(since=times[instant]).read_all())
        assert later == [found for found in wanted if found[1] > instant]
        until = of_ours(open_table(table).changes(until=times[instant]).read_all())
        assert until == [found for found in wanted if found[1] <= instant]


def test_a_table_of_hudi_is_continued(table: Path) -> None:
    """Updates, deletes, a move and an insert into the file groups that Hudi has made."""
    before = of_ours(open_table(table).changes().read_all())
    rows = open_table(table).scan(["_hoodie_partition_path", "_hoodie_file_name", *SCHEMA.names]).to_arrow().to_pylist()
    writer = Writer(HoodieTable.open(str(table)), schema=SCHEMA, now_ms=1_800_000_000_000)
    for found in rows:
        place = found["_hoodie_partition_path"], found["_hoodie_file_name"].split("_")[0]
        writer.where[found["id"]], writer.live[found["id"]] = place, {name: found[name] for name in SCHEMA.names}
    recorder = Recorder(writer)
    known: list[Row] = [writer.live[key] for key in sorted(writer.live)]
    moved = {**known[1], "part": "p1" if known[1]["part"] == "p0" else "p0", "ver": 9}
    recorder.write(
        [{**known[0], "ver": 9, "name": None}, moved, {"id": "new", "ver": 9, "name": "x", "part": "p0"}], ["k5"]
    )
    recorder.write([{**known[0], "ver": 10, "name": "again"}])
    after = of_ours(open_table(table).changes().read_all())
    assert after == sorted([*before, *recorder.expected])
    assert validate(HoodieTable.open(str(table))) == []


def test_an_update_without_a_change_file_is_named(table: Path) -> None:
    for path in table.rglob("*.cdc"):
        path.unlink()
    with pytest.raises(MissingChangesError, match=r"\.cdc"):
        open_table(table).changes().read_all()
