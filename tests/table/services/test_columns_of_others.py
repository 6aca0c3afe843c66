"""What other writers chose for a table, and only its files tell: columns with statistics, vectors in footers."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tagstream.table.file_group.names import join
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_writer import MetadataWriter
from tagstream.table.schema.schema import vector_columns
from tagstream.table.services.metadata_changes import range_columns
from tagstream.table.services.validate_metadata import validate_metadata
from tests.cli.running import run_json
from tests.support.public_tables import unpack
from tests.table import reference


def test_version_6_has_statistics_of_the_columns_that_its_files_have_them_of(tmp_path: Path) -> None:
    """New files had them of other columns, too, and validate then missed those in the older files."""
    place = unpack("hudi_v6_composite_key", tmp_path)
    writer = MetadataWriter.open(HoodieTable.open(str(place)))
    assert writer is not None
    columns = range_columns(writer)
    assert "id2" not in columns and {"id", "name", "price"} <= {*columns}
    before = {*validate_metadata(HoodieTable.open(str(place)))}
    run_json("table", "compact", "--target-base-path", place, "--yes")
    run_json("table", "cluster", "--target-base-path", place, "--yes")
    assert {*validate_metadata(HoodieTable.open(str(place)))} <= before
    again = MetadataWriter.open(HoodieTable.open(str(place)))
    assert again is not None and range_columns(again) == columns


@pytest.mark.parametrize("name", ["cow_v6_complexkey_replace", "mor_v6_services_015"])
def test_all_columns_stay_where_files_have_them_all(name: str, tmp_path: Path) -> None:
    writer = MetadataWriter.open(HoodieTable.open(str(reference.unpack(name, tmp_path))))
    if writer is not None and "column_stats" in writer.partitions:
        assert len(range_columns(writer)) > 5


def test_rewritten_files_name_their_vectors(tmp_path: Path) -> None:
    place = unpack("hudi_vector_cow", tmp_path)
    key = b"hoodie.vector.columns"
    wanted = b"embedding1:VECTOR(128),embedding2:VECTOR(128, DOUBLE),embedding3:VECTOR(128, INT8)"
    assert run_json("table", "cluster", "--target-base-path", place, "--yes")["changed"]
    table = HoodieTable.open(str(place))
    view = table.view()
    footers = [
        (pq.read_metadata(place / join(partition, base.name)).metadata or {}).get(key)
        for partition in view.partitions()
        for base in view.latest_base_files(partition)
    ]
    assert footers and {*footers} == {wanted}


def test_a_schema_without_vectors_names_none() -> None:
    record = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "string", "doc": 'a "vector"'}]}
    assert vector_columns(json.dumps(record)) == ""
