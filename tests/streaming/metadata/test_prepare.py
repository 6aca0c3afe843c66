"""What of a metadata table goes before a stream writes: it could not be kept in step, and readers would believe it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.streaming.metadata.prepare import drop_unkept
from tagstream.streaming.options.cli import load_options
from tagstream.table.metadata.metadata_table import RECORD_INDEX_PARTITION
from tests.table.metadata.write.case import Case
from tests.table.writer import row

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
