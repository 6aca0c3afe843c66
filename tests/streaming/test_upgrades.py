"""Streams that an earlier version began go on: their tables, checkpoints, local stores and command lines are fixtures.

tests/fixtures/upgrade/README.md says how they were made. Each was made elsewhere and comes here with all it had, as
docs/operations/operations.md (Backup and restore) has it; its source folder has another path, so it is given its first
one's name.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tagstream
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tests.cli.running import run_json
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table
from tests.support.paths import FIXTURES

IDENTIFIER = "hoodie.datasource.write.streaming.checkpoint.identifier"
WITH_STATE = ("cow_v6", "mor_v6", "cow_v9", "mor_v9")
KILLED = {"cow_v9_killed": 3, "mor_v6_killed": 3, "mor_v9_compaction_killed": 1}  # the batch that is done again
EACH_KIND = "each kind of an older version's stream"
PULLED = ("cow_v6_bloom", "mor_v6_global_bloom")


@dataclass
class OldCase(StreamCase):
    """A stream of the fixtures in a new place; its table, index and paths are its own, whatever a run asks for."""

    was: str = ""

    @classmethod
    def unpacked(cls, name: str, folder: Path, spark: SparkSession) -> OldCase:
        with tarfile.open(FIXTURES / "upgrade" / f"{name}.tar.xz") as archive:
            archive.extractall(folder, filter="data")
        case = cls(folder / name, spark)
        case.was = str(json.loads((case.folder / "arguments.json").read_text())["folder"])
        case._move_local_stores()
        return case

    def arguments(self, *more: str) -> list[str]:
        """The old command line with the old properties file, at their new paths."""
        props = self.folder / "job.properties"
        props.write_text(props.read_text().replace(self.was, str(self.folder)))
        words = json.loads((self.folder / "arguments.json").read_text())["arguments"]
        moved = [str(word).replace(self.was, str(self.folder)) for word in words]
        return [*moved, "--hoodie-conf", f"{IDENTIFIER}={self.was}/in", *more]

    def events(self) -> list[ev.Event]:
        """All of the source's, in order."""
        files = sorted(self.source.glob("*.json"))
        return [ev.Event.of_message("", line) for file in files for line in file.read_text().splitlines()]

    def more_files(self) -> None:
        """What the old version did not see appears."""
        for path in sorted((self.folder / "next").iterdir()):
            path.rename(self.source / path.name)

    def _move_local_stores(self) -> None:
        """They lie by hashes of the paths of table and checkpoint; in place of an upgrade these stay as they are."""
        local = self.folder / "local"
        if local.is_dir():
            for kind, at in (("checkpoint", next(local.iterdir())), ("table", local)):
                names = [_hash(f"{place}/{kind}") for place in (self.was, self.folder)]
                (at / names[0]).rename(at / names[1])


def _hash(path: str) -> str:
    return hashlib.sha256(path.encode()).hexdigest()[:16]


def same_index(case: OldCase) -> tuple[str, list[str], list[str]]:
    """What a load would change: Spark's query, the index's generations; and the local stores, if they came along.

    Generation 0 began empty with the stream.
    """
    index = case.root / "tagstream" / "index"
    stores = sorted(path.read_text() for path in (case.folder / "local").rglob("IDENTITY"))
    return (case.root / "metadata").read_text(), sorted(path.name for path in index.glob("gen-[1-9]*")), stores


def is_sound(case: OldCase, *, state: bool, global_index: bool) -> None:
    """Rows as the oracle has them, a table and a metadata table in order, and an index that agrees with the table."""
    expected = ev.rows(ev.oracle(case.events(), global_index=global_index).values())
    keys = ["id"] if global_index else ["part", "id"]
    assert not (wrong := compare(expected, read_table(case.table, meta_columns=False), keys)), wrong
    table = HoodieTable.open(str(case.table))
    assert validate(table) == []
    assert validate_metadata(table) == []
    if state:
        at = ("--checkpoint-dir", case.checkpoint, "--target-base-path", case.table)
        assert run_json("index", "verify", *at)["equal"]


def goes_on(case: OldCase, batches: list[int], *, state: bool, brings_stores: bool) -> None:
    """Batches, none of which loads the index, and a table that is right; ``brings_stores``: local stores came along."""
    before = same_index(case)
    assert bool(before[2]) == brings_stores
    case.more_files()
    reports = case.run()
    assert [report.batch_id for report in reports] == batches
    after = same_index(case)
    assert after[:2] == before[:2]
    assert not brings_stores or after[2] == before[2]
    is_sound(
        case, state=state, global_index="hoodie.index.type=BLOOM" not in (case.folder / "job.properties").read_text()
    )


@pytest.mark.spark
@pytest.mark.extended(EACH_KIND)
@pytest.mark.parametrize("name", WITH_STATE)
def test_a_stream_that_ended_goes_on(name: str, tmp_path: Path, spark: SparkSession) -> None:
    case = OldCase.unpacked(name, tmp_path, spark)
    goes_on(case, [4, 5], state=True, brings_stores=True)


@pytest.mark.spark
@pytest.mark.extended(EACH_KIND)
@pytest.mark.parametrize("name", KILLED)
def test_a_batch_that_was_killed_is_done_again(name: str, tmp_path: Path, spark: SparkSession) -> None:
    case = OldCase.unpacked(name, tmp_path, spark)
    goes_on(case, list(range(KILLED[name], 6)), state=True, brings_stores=False)


@pytest.mark.spark
@pytest.mark.extended(EACH_KIND)
@pytest.mark.parametrize("name", PULLED)
def test_a_pull_type_index_goes_on(name: str, tmp_path: Path, spark: SparkSession) -> None:
    case = OldCase.unpacked(name, tmp_path, spark)
    goes_on(case, [4, 5], state=False, brings_stores=False)


@pytest.mark.spark
@pytest.mark.extended(EACH_KIND)
def test_a_frame_goes_on(tmp_path: Path, spark: SparkSession) -> None:
    case = OldCase.unpacked("frame_mor_v6", tmp_path, spark)
    # The files are the user's own source: Spark's log of them has full paths, which nothing of this project follows.
    for path in (case.checkpoint / "sources").rglob("*"):
        if path.is_file() and path.suffix != ".crc":
            path.write_text(path.read_text().replace(case.was, str(case.folder)))
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    before = same_index(case)
    case.more_files()
    columns, options = json.loads((case.folder / "frame.json").read_text())
    rows = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).json(str(case.source))
    options["index.local.dir"] = str(case.folder / "local")
    places = (str(case.table), str(case.checkpoint))
    tagstream.upsert(rows, *places, options=options, trigger="availableNow").awaitTermination()
    assert sorted(int(path.name) for path in (case.checkpoint / "commits").glob("[0-9]*")) == list(range(6))
    assert same_index(case) == before
    expected = ev.rows(ev.oracle(case.events()).values()).drop_columns(["_hoodie_is_deleted"])
    found = read_table(case.table, meta_columns=False).select(expected.column_names)
    assert not (wrong := compare(expected, found, ["id"])), wrong
    assert validate(HoodieTable.open(str(case.table))) == []
    assert run_json("index", "verify", "--checkpoint-dir", case.checkpoint, "--target-base-path", case.table)["equal"]


def test_the_fixtures_are_used() -> None:
    names = {path.name.partition(".")[0] for path in (FIXTURES / "upgrade").glob("*.tar.xz")}
    assert names == {*WITH_STATE, *KILLED, *PULLED, "frame_mor_v6"}
