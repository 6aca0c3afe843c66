"""`tagstream table insert-overwrite`: files of JSON lines and Parquet in place of partitions, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tagstream.table.meta_client.table_config import COPY_ON_WRITE
from tagstream.table.services.insert_overwrite import insert_overwrite
from tests.cli.running import run, state_of
from tests.cli.test_services_commands import both
from tests.support.hudi_rs import read_table
from tests.table.services.tables import rounds, rows
from tests.table.writer import SCHEMA, Row, Writer, row

pytestmark = pytest.mark.table_versions(6, 9)


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    found = Writer.create(tmp_path, COPY_ON_WRITE)
    rounds(found, 2, keys=6)
    return found


def lines(path: Path, found: Sequence[Row | dict[str, Any]]) -> Path:
    path.write_text("\n".join(json.dumps(each) for each in found) + "\n")
    return path


def refused(writer: Writer, capsys: pytest.CaptureFixture[str], *more: object, code: int = 1) -> str:
    before = state_of(Path(writer.table.base_path), leave_out=(".hoodie",))
    timeline = writer.table.timeline().instants
    run("table", "insert-overwrite", "--target-base-path", writer.table.base_path, *more, "--yes", code=code)
    assert state_of(Path(writer.table.base_path), leave_out=(".hoodie",)) == before
    assert writer.table.timeline().instants == timeline
    return capsys.readouterr().err


def test_rows_of_several_files(writer: Writer, tmp_path: Path) -> None:
    source = tmp_path / "rows"
    source.mkdir()
    late, newest = row(1, "p1", 20, "late"), row(1, "p1", 21, "newest")
    lines(source / "a.json", [newest, row(7, "p1", 20), {**row(9, "p1", 20), "_hoodie_is_deleted": True}])
    # Columns in another order, a wider file than is needed, and Hudi's own columns of the table that they come from.
    typed = pa.Table.from_pylist([dict(late), dict(row(8, "p9", 20))], SCHEMA).select(SCHEMA.names[::-1])
    typed = typed.append_column("_hoodie_commit_time", pa.array(["1", "2"]))
    pq.write_table(typed, source / "b.parquet")
    planned, done = both(writer, "insert-overwrite", "--from", source)
    for found in (planned, done):
        assert (found["records"], found["rows"], found["deletes"]) == (5, 3, 1)
        assert found["partitions"] == [
            {"partition_path": "p1", "file_groups": 1, "rows": 2},
            {"partition_path": "p9", "file_groups": 0, "rows": 1},
        ]
    assert (done["replaced"], done["files"]) == (1, 2)
    wanted = [r for r in writer.live.values() if r["part"] != "p1"] + [newest, row(7, "p1", 20), row(8, "p9", 20)]
    assert rows(writer.table) == sorted(wanted, key=lambda r: r["id"])
    own = read_table(writer.table.base_path, meta_columns=False).select(SCHEMA.names).to_pylist()
    assert sorted(own, key=lambda r: r["id"]) == rows(writer.table)


def test_partitions_by_name_and_all(writer: Writer, tmp_path: Path) -> None:
    source = lines(tmp_path / "rows.json", [row(0, "p0", 30)])
    both(writer, "insert-overwrite", "--from", source, "--partition", "p0", "--partition", "p1")
    assert rows(writer.table) == [row(0, "p0", 30)]
    writer.where, writer.era = {}, 1
    rounds(writer, 1, keys=6)
    both(writer, "insert-overwrite", "--from", lines(tmp_path / "more.json", [row(3, "p3", 31)]), "--all")
    assert rows(writer.table) == [row(3, "p3", 31)]


def test_a_key_that_another_partition_has(writer: Writer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = lines(tmp_path / "rows.json", [row(0, "p1", 30), row(1, "p1", 30)])
    assert "1 keys of the rows are also in partitions that are not replaced (k0 in 'p0')" in refused(
        writer, capsys, "--from", source
    )
    both(writer, "insert-overwrite", "--from", source, "--hoodie-conf", "index.global.enabled=false")
    wanted = [*(r for r in writer.live.values() if r["part"] == "p0"), row(0, "p1", 30), row(1, "p1", 30)]
    assert rows(writer.table) == sorted(wanted, key=lambda r: (r["id"], r["part"]))


def test_what_cannot_be_written(writer: Writer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = row(1, "p1", 30)
    bad = lines(tmp_path / "bad.json", [good, {**good, "ver": "soon"}])
    assert f"line 2 of {bad} cannot be written" in refused(writer, capsys, "--from", bad)
    assert "no such file" in refused(writer, capsys, "--from", tmp_path / "none", code=2)
    gone = lines(tmp_path / "gone.json", [{**good, "_hoodie_is_deleted": True}])
    assert "have no row to write (1 records)" in refused(writer, capsys, "--from", gone)
    source = lines(tmp_path / "rows.json", [good])
    assert "rows of partition 'p1', which no --partition names" in refused(
        writer, capsys, "--from", source, "--partition", "p0"
    )
    for name, column, text in (
        ("ver", pa.array(["5"]), "column 'ver' of"),
        ("more", pa.array([5]), "has the column 'more', which the table does not have"),
    ):
        table = pa.Table.from_pylist([dict(good)], SCHEMA)
        table = table.set_column(2, name, column) if name in table.column_names else table.append_column(name, column)
        pq.write_table(table, tmp_path / f"{name}.parquet")
        assert text in refused(writer, capsys, "--from", tmp_path / f"{name}.parquet")
    table = pa.Table.from_pylist([{**good, "part": None}], SCHEMA).drop_columns(["ver"])
    pq.write_table(table, tmp_path / "lacks.parquet")
    assert "row 1 of" in refused(writer, capsys, "--from", tmp_path / "lacks.parquet")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1")
    assert "cannot be read" in refused(writer, capsys, "--from", tmp_path / "torn.parquet")


def test_what_a_killed_command_left_is_taken_back(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, at = lines(tmp_path / "rows.json", [row(1, "p1", 30)]), ("--target-base-path", writer.table.base_path)

    def killed(step: str) -> None:
        if step == "replace_published":
            raise KeyboardInterrupt

    monkeypatch.setattr(
        "tagstream.cli.insert_overwrite.insert_overwrite",
        lambda *given, **named: insert_overwrite(*given, killed, **named),
    )
    with pytest.raises(KeyboardInterrupt):
        run("table", "insert-overwrite", *at, "--from", source, "--yes")
    assert len(writer.table.timeline().pending_writes) == 1
    monkeypatch.undo()
    both(writer, "insert-overwrite", "--from", source)
    assert not writer.table.timeline().pending_writes
    assert [r["id"] for r in rows(writer.table)] == ["k0", "k1", "k2", "k4"]


def test_a_schema_file_that_is_ahead_of_the_table(
    writer: Writer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table would not take the values of its new column."""
    given = json.loads(writer.table.schema_json() or "")
    given["fields"].append({"name": "extra", "type": ["null", "string"], "default": None})
    (tmp_path / "ahead.avsc").write_text(json.dumps(given))
    source = lines(tmp_path / "rows.json", [{**row(0, "p0", 30), "extra": "x"}])
    key = "hoodie.streamer.schemaprovider.source.schema.file"
    said = refused(writer, capsys, "--from", source, "--hoodie-conf", f"{key}={tmp_path / 'ahead.avsc'}")
    assert "the schema file has extra, which table" in said
