"""A whole stream on a storage that fails once, at any call of a batch: table and checkpoint end as if nothing had been."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tagstream.table.storage.opening import OPENERS
from tagstream.table.storage.storage import Storage
from tests.cli.running import run_json
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.faulty_storage import CHANGES, Faults, FaultyStorage
from tests.support.hudi_rs import read_table

pytestmark = pytest.mark.spark

# Updates, moves and deletes, so that every part of a batch has something to do. Nothing comes late behind a delete: an
# index that is loaded from a copy-on-write table knows of no delete.
EVENTS = list(ev.generate(180, ev.Mix(keys=40, late=0.0, late_deletes=0.0, deletes=0.1), seed=71))
FIRST, SECOND = EVENTS[:120], EVENTS[120:]
STEP = 7
FIRST_WINS = ("write_new", "publish", "swap")
_numbers = count()
TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")


@dataclass(frozen=True)
class Begun:
    """A stream after its first batch with a second file in the source. ``kept``: a copy of table and checkpoint."""

    case: StreamCase
    kept: Path

    def again(self) -> StreamCase:
        """The stream as it was, in the same place: Spark's logs have full paths."""
        for name in ("table", "checkpoint", "local"):
            shutil.rmtree(self.case.folder / name, ignore_errors=True)
        shutil.copytree(self.kept, self.case.folder, dirs_exist_ok=True)
        return self.case


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> dict[str, Begun]:
    """One of each table type."""
    made = {}
    for table_type in TYPES:
        folder = tmp_path_factory.mktemp("begun")
        case = StreamCase(folder / "stream", spark, table_type)
        ev.write_files(FIRST, case.source, len(FIRST))
        case.run()
        for name in ("table", "checkpoint"):
            shutil.copytree(case.folder / name, folder / "kept" / name)
        ev.write_files(SECOND, case.source, len(SECOND), first=1)
        made[table_type] = Begun(case, folder / "kept")
    return made


@contextmanager
def going_wrong(case: StreamCase, faults: Faults) -> Iterator[None]:
    """Table and checkpoint of the case are opened with these faults."""
    plain = OPENERS["file"]

    def opened(url: str) -> Storage:
        storage = plain(url)
        ours = storage.root in (str(case.table), str(case.checkpoint))
        return FaultyStorage(storage, faults) if ours else storage

    OPENERS["file"] = opened
    try:
        yield
    finally:
        OPENERS["file"] = plain


def taken(begun: Begun, folder: Path, *, lost: bool = False, **faults: object) -> tuple[bool, int]:
    """Run the second batch with these faults, and once more on a sound storage; whether the first of the two failed, and
    its calls. ``lost``: the checkpoint is gone before, so the index is loaded from the table.
    """
    case = begun.again()
    if lost:
        shutil.rmtree(case.checkpoint)
    wrong = replace(Faults(str(folder / str(next(_numbers)))), **faults)  # type: ignore[arg-type]
    failed = False
    with going_wrong(case, wrong):
        try:
            case.run()
        except Exception:
            failed = True
    case.run()
    expected = ev.rows(ev.oracle(EVENTS).values())
    assert not (bad := compare(expected, read_table(case.table, meta_columns=False), ["id"])), (faults, bad)
    assert validate(HoodieTable.open(str(case.table))) == [], faults
    at = ("--checkpoint-dir", case.checkpoint, "--target-base-path", case.table)
    assert run_json("index", "verify", *at)["equal"], faults
    return failed, len(wrong.calls())


def go_wrong(begun: Begun, folder: Path, kind: str, points: range, **more: object) -> None:
    """Faults of a kind at each of these calls, as far as there are so many; most of them must be noticed."""
    noticed = 0
    for done, n in enumerate(points):
        failed, calls = taken(begun, folder, **{kind: n}, **more)
        noticed += failed
        if calls < n:
            assert done > 1, "there are not as many calls as the test believes"
            break
    assert noticed, "no run was disturbed: the faults do not reach the job"


@pytest.mark.extended("each call of a storage fails once; the simulation does so in the first tier")
@pytest.mark.parametrize("table_type", TYPES)
def test_a_call_that_fails(begun: dict[str, Begun], tmp_path: Path, table_type: str) -> None:
    """The types take turns: every seventh call is one that fails."""
    first = 1 + STEP * TYPES.index(table_type)
    go_wrong(begun[table_type], tmp_path, "fail", range(first, 1000, 2 * STEP))


@pytest.mark.drill
@pytest.mark.parametrize("table_type", TYPES)
def test_a_change_whose_answer_is_lost(begun: dict[str, Begun], tmp_path: Path, table_type: str) -> None:
    first = 1 + STEP * TYPES.index(table_type)
    go_wrong(begun[table_type], tmp_path, "lose", range(first, 1000, 2 * STEP), only=CHANGES)


@pytest.mark.drill
def test_a_change_that_is_sent_twice(begun: dict[str, Begun], tmp_path: Path) -> None:
    go_wrong(begun["MERGE_ON_READ"], tmp_path, "repeat", range(1, 1000, 3), only=FIRST_WINS)


@pytest.mark.drill
@pytest.mark.matrix
@pytest.mark.parametrize("copies", [False, True], ids=["links", "copies"])
@pytest.mark.parametrize("lost", [False, True], ids=["goes on", "lost checkpoint"])
@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("kind", ["fail", "lose", "repeat"])
def test_each_call(
    begun: dict[str, Begun], tmp_path: Path, table_type: str, kind: str, lost: bool, copies: bool
) -> None:
    """Every call fails once on both types; what only differs in how it goes wrong is tried at every eleventh call."""
    only = {"fail": (), "lose": CHANGES, "repeat": FIRST_WINS}[kind]
    plain = kind == "fail" and not lost and not copies
    go_wrong(begun[table_type], tmp_path, kind, range(1, 1000, 1 if plain else 11), only=only, lost=lost, copies=copies)
