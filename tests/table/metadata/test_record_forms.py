"""A metadata table is written on in the form of records that it has: hudi-rs reads none that has two."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.compaction import compact
from tagstream.table.metadata.metadata_table import MetadataTable
from tagstream.table.metadata.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.metadata.record_encoding import FORM_BEFORE_1_1, FORM_OF_1_0, commit_avro_json, form_of
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.validate_metadata import validate_metadata
from tests.cli.running import run_json
from tests.support.hudi_rs import read_table
from tests.support.public_tables import unpack

BY_HUDI_1_0 = ("hudi_hudi-v8-table", "hudi_hudi-v8-table-cow", "hudi_non_extractable_partition_path")


def _forms(table: HoodieTable) -> set[str]:
    """The schemas of all blocks and base files, without their spacing and order of attributes."""
    metadata = MetadataTable.open(table, table.timeline())
    assert metadata is not None
    return {
        entries.avro_json
        for name in metadata.partitions
        for found in metadata.slices(name)
        for entries in metadata.entries(found)
        if len(entries.values) and entries.avro_json
    }


@pytest.mark.interop
@pytest.mark.parametrize("name", BY_HUDI_1_0)
def test_hudi_rs_reads_a_table_of_hudi_1_0_after_our_commit_and_our_compaction(name: str, tmp_path: Path) -> None:
    place = unpack(name, tmp_path)
    before = read_table(place)
    at = ("--target-base-path", place)
    assert run_json("table", "cluster", *at, "--yes")["changed"]
    table = HoodieTable.open(str(place))
    rows = read_snapshot(table)
    assert rows.num_rows == before.num_rows
    for _ in range(2):
        assert read_table(place).num_rows == before.num_rows
        assert validate_metadata(table) == []
        lengths = {"valueType" in text for text in _forms(table)}
        assert lengths == {False}
        writer = MetadataWriter.open(table)
        assert writer is not None and writer.forms.records == FORM_OF_1_0
        compact(writer, fresh_times(table, writer, lambda: 1_900_000_000_000), 1)
    assert run_json("table", "upgrade", *at, "--to", "9", "--yes")["after"] == 9
    assert read_table(place).num_rows == before.num_rows


@pytest.mark.parametrize("form", [6, 8, FORM_OF_1_0, FORM_BEFORE_1_1])
def test_a_form_is_known_by_its_schema(form: int) -> None:
    assert form_of(commit_avro_json(form), 8) == form


def test_another_schema_is_taken_for_the_version_s() -> None:
    assert form_of('{"type": "record", "name": "r", "fields": []}', 8) == 8
