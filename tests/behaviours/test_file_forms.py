"""What every form of source files does alike: each record planned once and whole, and each damage named."""

from __future__ import annotations

import io
import json
import os
import random
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tagstream.streaming.errors import SourceError
from tagstream.streaming.source.file_lister import FileLister, ListerOptions
from tagstream.streaming.source.file_plans import PlanLog, read_plan, to_text
from tagstream.streaming.source.file_reader import FilesSpec, planned_lines, split_lines
from tagstream.table.file_group.log_format import zigzag
from tagstream.table.storage.posix import PosixStorage
from tests.behaviours.file_cases import COLUMNS, FORMS, FormCase, some_rows, write_bytes

every_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
NOW = 10**15


class Folder:
    """A source folder, its plans, and a lister that is started again whenever a test wants."""

    def __init__(self, folder: Path, form: FormCase, limit: int = 1 << 30) -> None:
        self.form = form
        self.folder = folder / "in"
        self.folder.mkdir(exist_ok=True)
        self.root = PosixStorage(str(folder / "checkpoint"), sync=False)
        self.limit = limit
        self.tick = 1_000
        self.now = NOW
        self.lister = self.restart()

    def restart(self, changed: str = "fail") -> FileLister:
        options = ListerOptions(self.limit, 2, changed, self.form.form)  # type: ignore[arg-type]
        source = PosixStorage(str(self.folder))
        self.lister = FileLister(source, PlanLog(self.root), options, lambda: self.now)
        return self.lister

    def put(self, name: str, data: bytes, mode: str = "wb") -> Path:
        path = self.folder / name
        write_bytes(path, data, mode=mode)
        self.tick += 1
        os.utime(path, (self.tick, self.tick))
        return path

    def spec(self, changed: str = "fail") -> FilesSpec:
        return FilesSpec(PosixStorage(str(self.folder)), changed, form=self.form.form)  # type: ignore[arg-type]

    def planned(self, changed: str = "fail") -> list[list[dict[str, Any]]]:
        """The rows of every plan, by file and place. Places rise within a file."""
        out = []
        for number in PlanLog(self.root).numbers:
            batches = [b for s in read_plan(self.root, number).splits for b in self.read(s, changed)]
            out.append([row for batch in batches for row in self.form.rows_of(batch)])
            places: dict[str, int] = {}
            for batch in batches:
                for src, at in zip(batch["src"].to_pylist(), batch["pos_lo"].to_pylist(), strict=True):
                    assert at > places.get(src, -1)
                    places[src] = at
        return out

    def read(self, split: Any, changed: str = "fail") -> list[pa.RecordBatch]:
        return list(split_lines(self.spec(changed), split, COLUMNS))


@every_form
def test_new_and_grown_files_are_planned_once(tmp_path: Path, form: FormCase) -> None:
    case = Folder(tmp_path, form)
    rows = some_rows(90, seed=1)
    first = form.write(rows[:50])
    case.put("a", first)
    case.put("day=1/b", form.write(rows[50:60]))
    case.put("_SUCCESS", b"")
    assert case.restart().look() == 1
    assert case.restart().look() == 0
    if form.more is not None:
        case.put("a", form.more(first, rows[60:]), "ab")
    else:
        case.put("c", form.write(rows[60:]))
    assert case.restart().look() == 1
    assert case.restart().look() == 0
    assert case.planned() == [rows[:60], rows[60:]]


@every_form
def test_a_large_file_is_cut_between_records(tmp_path: Path, form: FormCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tagstream.streaming.source.file_plans._LEAST_SPLIT", 700)
    case = Folder(tmp_path, form)
    rows = some_rows(400, seed=2)
    case.put("a", form.write(rows))
    case.lister.look()
    plan = read_plan(case.root, 1)
    assert len(list(plan.splits)) > 2
    assert len(plan.tasks) == 2
    assert case.planned() == [rows]
    tasks = to_text(plan).splitlines()[1:]
    found = [row for batch in planned_lines(case.spec(), tasks, COLUMNS) for row in form.rows_of(batch)]
    assert sorted(found, key=lambda row: row["id"]) == rows


@every_form
def test_a_batch_ends_at_a_file_in_the_order_of_their_times(tmp_path: Path, form: FormCase) -> None:
    rows = some_rows(4, seed=3)
    case = Folder(tmp_path, form, limit=1)
    for name, row in zip("cabd", rows, strict=True):
        case.put(name, form.write([row]))
    assert case.lister.look() == 4
    assert case.planned() == [[row] for row in rows]


@every_form
def test_bytes_arrive_in_any_pieces_and_runs_end_anywhere(tmp_path: Path, form: FormCase) -> None:
    rng = random.Random(5)
    case = Folder(tmp_path, form, limit=300)
    case.now = case.tick * 1000  # every file is young: its last record may not be whole
    rows = {f"f{n}": some_rows(60, seed=n, first=100 * n) for n in range(3)}
    whole = {name: form.write(mine) for name, mine in rows.items()}
    at = dict.fromkeys(whole, 0)
    while unfinished := [name for name in whole if at[name] < len(whole[name])]:
        name = rng.choice(unfinished)
        size = rng.randrange(1, 200)
        case.put(name, whole[name][at[name] : at[name] + size], "ab")
        case.now = case.tick * 1000
        at[name] += size
        if rng.random() < 0.6:
            case.lister.look()
        if rng.random() < 0.2:
            case.restart()
    case.restart().look()
    assert case.lister.waiting == {}
    found = [row for plan in case.planned() for row in plan]
    for n, mine in enumerate(rows.values()):
        assert [row for row in found if row["id"] // 100 == n] == mine


@every_form
def test_a_file_that_was_overwritten(tmp_path: Path, form: FormCase) -> None:
    case = Folder(tmp_path, form)
    case.put("a", form.write(some_rows(30, seed=6)))
    case.lister.look()
    other = some_rows(5, seed=7)
    case.put("a", form.write(other))
    with pytest.raises(SourceError, match=r"in/a was overwritten: .*changed\.files=again"):
        case.restart().look()
    assert case.restart("again").look() == 1
    assert case.planned("again")[1] == other


@every_form
def test_a_file_that_changes_between_its_listing_and_its_batch(
    tmp_path: Path, form: FormCase, capfd: pytest.CaptureFixture[str]
) -> None:
    case = Folder(tmp_path, form)
    data = form.write(some_rows(30, seed=8))
    path = case.put("a", data)
    case.lister.look()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(SourceError, match=r"in/a has .* bytes now, but had"):
        case.planned()
    assert case.planned("ignore") == [[]]
    assert "in/a has" in capfd.readouterr().err
    path.unlink()
    with pytest.raises(SourceError, match="in/a is gone"):
        case.planned()


@every_form
@pytest.mark.parametrize("other", FORMS, ids=lambda form: form.name)
def test_a_file_of_another_form_is_refused_by_name(tmp_path: Path, form: FormCase, other: FormCase) -> None:
    if form is other or {form.name, other.name} == {"json", "csv"}:  # both are text: their records are bad
        return
    case = Folder(tmp_path, form)
    case.put("a", other.write(some_rows(3, seed=9)))
    with pytest.raises(SourceError, match="in/a is .* by its first bytes"):
        case.lister.look()


@pytest.mark.parametrize("form", [f for f in FORMS if f.name in ("avro", "parquet")], ids=lambda form: form.name)
def test_damaged_bytes_are_named_with_their_place(
    tmp_path: Path, form: FormCase, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = some_rows(200, seed=10)
    data = bytearray(form.write(rows))
    at = len(data) // 2
    data[at : at + 40] = bytes(range(40))
    case = Folder(tmp_path, form)
    case.put("a", bytes(data))
    case.lister.look()
    with pytest.raises(SourceError, match=r"in/a is damaged: .*(block at byte|row group) [0-9,]+"):
        case.planned()
    (found,) = case.planned("ignore")
    assert "in/a is damaged" in capfd.readouterr().err
    assert 0 < len(found) < len(rows)
    assert all(row in rows for row in found)


@every_form
def test_a_file_that_is_never_finished(tmp_path: Path, form: FormCase) -> None:
    """A young file waits for its end. An old one has what is whole in it, or is damaged."""
    case = Folder(tmp_path, form)
    rows = some_rows(50, seed=11)
    data = form.write(rows)
    case.put("a", data[: len(data) - 3])
    case.now = case.tick * 1000
    look = case.lister.look()
    assert case.lister.waiting
    if form.name == "parquet":
        assert look == 0
        case.now = NOW
        case.restart().look()
        with pytest.raises(SourceError, match=r"in/a is damaged: it has no readable footer"):
            case.planned()
        return
    (found,) = case.planned()
    assert found == rows[: len(found)]
    assert len(found) < len(rows)


def test_a_quote_that_is_never_closed_ends_the_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tagstream.streaming.source.file_csv._LONGEST", 100)
    case = Folder(tmp_path, next(form for form in FORMS if form.name == "csv"))
    case.put("a", b'id,text\n1,a\n2,"b\n' + b"3,c\n" * 50)
    with pytest.raises(
        SourceError, match=r"in/a: the record at byte 12 does not end within 100 bytes; probably a quote"
    ):
        case.lister.look()


def test_a_union_of_several_types_is_refused_by_name(tmp_path: Path) -> None:
    case = Folder(tmp_path, next(form for form in FORMS if form.name == "avro"))
    schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": ["null", "long", "string"]}]}
    with (case.folder / "a").open("wb") as f:
        fastavro.writer(f, schema, [{"id": 1}, {"id": "x"}])
    case.lister.look()
    with pytest.raises(SourceError, match=r"in/a: field r\.id is a union of several types"):
        case.planned()


def test_bytes_behind_the_last_record_of_an_avro_block_are_ignored(tmp_path: Path) -> None:
    """Some writers leave such bytes, and Java's reader counts records. A reader to the end of the block would not return."""
    case = Folder(tmp_path, next(form for form in FORMS if form.name == "avro"))
    rows, sync = some_rows(30, seed=13), b"0123456789abcdef"
    whole = fastavro.reader(io.BytesIO(case.form.write(rows)))
    out, records = io.BytesIO(), io.BytesIO()
    fastavro.writer(out, whole.writer_schema, [], sync_marker=sync)
    for record in whole:
        fastavro.schemaless_writer(records, whole.writer_schema, record)
    block = records.getvalue() + b"\0" * 7
    case.put("a", out.getvalue() + b"".join([zigzag(len(rows)), zigzag(len(block)), block, sync]) * 2)
    case.lister.look()
    assert case.planned() == [rows * 2]


def test_the_plan_of_json_lines_has_not_changed(tmp_path: Path) -> None:
    """A checkpoint of an earlier version continues: its plans have the same fields."""
    case = Folder(tmp_path, FORMS[0])
    case.put("a", FORMS[0].write(some_rows(2, seed=12)))
    case.lister.look()
    head, line = (json.loads(text) for text in to_text(read_plan(case.root, 1)).splitlines())
    assert head["version"] == 1
    assert set(line["splits"][0]) == {"path", "start", "end", "mtime_ms", "codec", "position", "check"}
