"""The schema that a stream would write, after a column was dropped and given again: looked for in all commits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tagstream.streaming.job.schema_match import stream_schema
from tagstream.streaming.options.cli import load_options
from tagstream.streaming.source.decode.record_format import Noticed
from tagstream.table.errors import SchemaRefusedError
from tagstream.table.schema.schema import arrow_to_avro
from tagstream.table.services.archiving import archive_table
from tagstream.table.services.options import ArchiveOptions, CleanOptions
from tests.table.services.tables import clock
from tests.table.writer import SCHEMA, Writer, row


def options(folder: Path, schema: pa.Schema) -> Any:
    (folder / "in").mkdir(exist_ok=True)
    (folder / "s.avsc").write_text(json.dumps(arrow_to_avro(schema, "t")))
    pairs = {
        "hoodie.streamer.source.dfs.root": str(folder / "in"),
        "hoodie.streamer.schemaprovider.source.schema.file": str(folder / "s.avsc"),
        "hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true",
    }
    words = [
        "--source-class",
        "JsonDFSSource",
        "--target-base-path",
        str(folder / "t"),
        "--checkpoint-dir",
        str(folder / "c"),
    ]
    return load_options([*words, *(w for k, v in pairs.items() for w in ("--hoodie-conf", f"{k}={v}"))])


@pytest.mark.parametrize("archived", [False, True])
def test_a_column_that_was_dropped_comes_again(tmp_path: Path, archived: bool) -> None:
    before = SCHEMA.append(pa.field("x", pa.string()))
    writer = Writer.without_metadata(tmp_path, "COPY_ON_WRITE", schema=before)
    writer.write([{**row(1, "p0", 1), "x": "text"}])
    writer.schema = SCHEMA
    for n in range(2, 8):
        writer.write([row(n, "p1", 1)])
    if archived:
        archive_table(writer.table, ArchiveOptions(2, 3), CleanOptions(commits=1), clock())
        assert len(writer.table.timeline().completed_writes) == 2
    as_int, as_text = (SCHEMA.append(pa.field("x", kind)) for kind in (pa.int32(), pa.string()))
    with pytest.raises(
        SchemaRefusedError, match=r"s\.avsc: the new column 'x' is int, .* with type string until it was drop"
    ):
        stream_schema(options(tmp_path, as_int), writer.table)
    assert '"x"' in stream_schema(options(tmp_path, as_text), writer.table)[0]
    told = Noticed(1, "schema 7 of the registry", json.dumps(arrow_to_avro(as_int, "t")))
    with pytest.raises(SchemaRefusedError, match="schema 7 of the registry: the new column 'x' is int"):
        stream_schema(options(tmp_path, SCHEMA), writer.table, [told])
    renamed = SCHEMA.append(pa.field("x2", pa.int32()))
    assert '"x2"' in stream_schema(options(tmp_path, renamed), writer.table)[0]
