"""What of a metadata table goes before a stream writes: it could not be kept in step, and readers would believe it."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from tagstream.streaming.batch.metadata_prepare import drop_unkept, make_if_wanted
from tagstream.streaming.options.cli import load_options
from tagstream.table.metadata.index_definitions import INDEX_DEFINITIONS, write_definitions
from tagstream.table.metadata.metadata_table import RECORD_INDEX_PARTITION
from tagstream.table.services.validate_metadata import validate_metadata
from tests.simulation.session import Session
from tests.support.table_version import using
from tests.table.metadata.case import Case
from tests.table.writer import SCHEMA, Writer, row

REQUIRED = (
    *("--source-class", "JsonDFSSource", "--target-base-path", "/t", "--target-table", "t", "--checkpoint-dir", "/c"),
    *("--hoodie-conf", "hoodie.streamer.source.dfs.root=/in"),
    *("--hoodie-conf", "hoodie.streamer.schemaprovider.source.schema.file=/s.avsc"),
    *("--hoodie-conf", "hoodie.datasource.write.recordkey.field=id"),
    *("--hoodie-conf", "hoodie.datasource.write.partitionpath.field=part"),
    *("--hoodie-conf", "hoodie.table.ordering.fields=ver"),
)


@pytest.mark.parametrize(
    ("conf", "global_stays", "by_partition_stays"),
    [
        ({}, True, True),
        ({"index.global.enabled": "false"}, False, True),
        ({"hoodie.index.type": "GLOBAL_SIMPLE"}, True, True),
        ({"hoodie.index.type": "SIMPLE"}, False, True),
        ({"hoodie.index.type": "BLOOM"}, False, True),
        ({"hoodie.index.type": "BUCKET"}, False, False),
        ({"hoodie.index.type": "RECORD_INDEX"}, True, False),
        ({"hoodie.index.type": "RECORD_LEVEL_INDEX"}, False, True),
        ({"hoodie.index.type": "GLOBAL_SIMPLE", "hoodie.datasource.write.operation": "INSERT_OVERWRITE"}, False, False),
    ],
)
def test_a_record_index_that_the_stream_cannot_keep(
    tmp_path: Path, conf: dict[str, str], global_stays: bool, by_partition_stays: bool, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = [word for key, value in conf.items() for word in ("--hoodie-conf", f"{key}={value}")]
    options = load_options([*REQUIRED, *pairs])
    for by_partition, stays in ((False, global_stays), (True, by_partition_stays)):
        caplog.clear()
        groups = {"files": 1, "record_index": 1}
        case = Case.create(tmp_path / str(by_partition), "COPY_ON_WRITE", 9, groups, by_partition=by_partition)
        case.writer.write([row(1, "p0", 1)])
        table = drop_unkept(case.writer.table, options.metadata, case.writer.now_ms)
        assert table.config.metadata_partitions == (("files", RECORD_INDEX_PARTITION) if stays else ("files",))
        assert ("dropped the partition record_index" in caplog.text) is not stays


def test_a_wide_decimal_where_definitions_of_an_earlier_version_stayed(tmp_path: Path) -> None:
    """Their statistics have a form that holds 30 digits: a column of 38 has none, and does not end the start."""
    schema = pa.schema([*SCHEMA, pa.field("wide", pa.decimal128(38, 9))])
    with using(9):
        writer = Writer.without_metadata(tmp_path, "COPY_ON_WRITE", schema=schema)
    writer.write([row(1, "p0", 1) | {"wide": Decimal("9" * 29)}])
    content = write_definitions(None, {"column_stats"}, ["id", "ver"], 8, "index.json")
    writer.table.storage.replace(INDEX_DEFINITIONS, content)
    options = load_options([*REQUIRED, "--hoodie-conf", "hoodie.metadata.enable=true"])
    session = Session(str(tmp_path))
    table = make_if_wanted(writer.table, schema, options.metadata, session, lambda: writer.now_ms)  # type: ignore[arg-type]
    assert "column_stats" in table.config.metadata_partitions
    assert [problem for problem in validate_metadata(table) if "wide" in problem] == []


@pytest.mark.parametrize(("lost", "left"), [("files", ()), ("column_stats", ("files",))])
def test_partitions_whose_files_are_gone(tmp_path: Path, lost: str, left: tuple[str, ...]) -> None:
    """As a driver deletes them that stood still while its successor made them."""
    case = Case.create(tmp_path, "COPY_ON_WRITE", 9, {"files": 1, "column_stats": 1})
    case.writer.write([row(1, "p0", 1)])
    case.writer.table.storage.delete_tree(f".hoodie/metadata/{lost}")
    options = load_options(REQUIRED)
    table = drop_unkept(case.writer.table, options.metadata, case.writer.now_ms)
    assert table.config.metadata_partitions == left
    assert not left or validate_metadata(table) == []
