"""Any history of commits, rollbacks and services: the metadata table says what is left of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagstream.table.file_group.names import next_instant
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import MERGE_ON_READ
from tagstream.table.metadata.changes import Changes, PartitionChange, WrittenFile
from tagstream.table.metadata.compaction import clean, compact
from tagstream.table.metadata.delta_commit import delta_commit
from tagstream.table.metadata.metadata_table import MetadataTable
from tagstream.table.metadata.metadata_writer import MetadataWriter
from tagstream.table.metadata.partitions import create_empty
from tagstream.table.metadata.record_encoding import PLACES
from tagstream.table.metadata.record_index import RecordIndex
from tagstream.table.metadata.rollback import ROLLBACK_SUFFIX, roll_back
from tests.support.table_version import using
from tests.table.metadata.case import gone_keys
from tests.table.writer import START_MS, Writer

FILE_IDS = ["0f7c4f0e-0000-0000-0000-000000000000-0", "0f7c4f0e-0000-0000-0000-000000000001", "plain"]
KEYS = st.sampled_from([f"k{n}" for n in range(12)] + ["", "é", "\U0001f600", "a\x00b"])
FILES = st.dictionaries(
    st.sampled_from(["p", "q/r", ""]), st.dictionaries(st.sampled_from("abcd"), st.integers(0, 9), max_size=3)
)
PUTS, GONE = st.dictionaries(KEYS, st.sampled_from(FILE_IDS), max_size=8), st.sets(KEYS, max_size=4)
STEPS = st.one_of(
    st.tuples(st.just("commit"), PUTS, GONE, FILES),
    st.tuples(st.just("failed"), PUTS, GONE, FILES),
    st.tuples(st.just("clean_files"), FILES),
    st.tuples(st.just("drop"), st.sampled_from(["p", "q/r", ""])),
    st.tuples(st.just("compact")),
    st.tuples(st.just("clean")),
)


@dataclass
class Model:
    """The table's metadata table, and what it should say: file ids by key, sizes by partition and file."""

    table: HoodieTable
    keys: dict[str, str] = field(default_factory=dict)
    files: dict[str, dict[str, int]] = field(default_factory=dict)
    given: list[str] = field(default_factory=lambda: ["20260101000000000"])

    def times(self) -> str:
        self.given.append(next_instant(0, self.given[-1], True))
        return self.given[-1]

    @property
    def writer(self) -> MetadataWriter:
        found = MetadataWriter.open(self.table)
        assert found is not None
        return found

    def tell(self, puts: dict[str, str], gone: set[str], files: dict[str, dict[str, int]], removed: Any = None) -> str:
        instant = self.times()
        written = {p: tuple(WrittenFile(name, size) for name, size in found.items()) for p, found in files.items()}
        deleted = {p: tuple(found) for p, found in (removed or {}).items()}
        rows = [(key, "p", file_id, 1) for key, file_id in puts.items()]
        places = pa.Table.from_pylist([dict(zip(PLACES.names, row, strict=True)) for row in rows], PLACES)
        changes = Changes(
            {p: PartitionChange(written.get(p, ()), deleted.get(p, ())) for p in {*written, *deleted}},
            places=[places], deleted_keys=[gone_keys(*((key, "p") for key in sorted(gone - puts.keys())))],
        )  # fmt: skip
        delta_commit(self.writer, instant, changes, self.times)
        return instant

    def done(self, instant: str) -> None:
        """The data's action is completed."""
        name = f"{instant}_{self.times()}" if self.writer.has_completion_times else instant
        self.table.storage.write_new(f"{self.table.config.timeline_folder}/{name}.deltacommit", b"")

    def step(self, kind: str, *rest: Any) -> None:
        if kind == "commit":
            puts, gone, files = rest
            self.done(self.tell(puts, gone, files))
            self.keys = {key: at for key, at in self.keys.items() if key not in gone} | puts
            for partition, found in files.items():
                if found:
                    known = self.files.setdefault(partition, {})
                    known |= {name: max(size, known.get(name, 0)) for name, size in found.items()}
        elif kind == "failed":
            failed, instant = self.tell(*rest), self.times()
            writer = self.writer
            roll_back(writer, failed, instant if writer.has_completion_times else instant + ROLLBACK_SUFFIX, self.times)
        elif kind == "clean_files":
            (files,) = rest
            self.done(self.tell({}, set(), {}, files))
            for partition, found in files.items():
                for name in found:
                    self.files.get(partition, {}).pop(name, None)
        elif kind == "drop":
            (partition,) = rest
            gone = PartitionChange(deleted=tuple(self.files.pop(partition, {})))
            instant = self.times()
            delta_commit(self.writer, instant, Changes({partition: gone}, deleted_partitions=(partition,)), self.times)
            self.done(instant)
        elif kind == "compact":
            compact(self.writer, self.times, 1)
        else:
            clean(self.writer, self.times)

    def check(self) -> None:
        metadata = MetadataTable.open(self.table, self.table.timeline())
        assert metadata is not None
        index = RecordIndex.open(metadata)
        assert index is not None
        assert {row["record_key"]: row["file_id"] for part in index.scan() for row in part.to_pylist()} == self.keys
        assert metadata.partition_paths() == sorted(self.files)
        assert {partition: metadata.files(partition) for partition in self.files} == self.files


@pytest.mark.extended("more kinds of tables", first=("6", "9"))
@pytest.mark.parametrize("version", [6, 8, 9])
@settings(max_examples=12, deadline=None)
@given(steps=st.lists(STEPS, max_size=10))
def test_any_history(version: int, steps: list[Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder: Path = tmp_path_factory.mktemp("history")
    with using(version):
        table = Writer.without_metadata(folder, MERGE_ON_READ).table
    model = Model(table)
    model.table = create_empty(table, {"files": 1, "record_index": 2}, [], model.times, START_MS)
    for step in steps:
        model.step(*step)
        model.check()
