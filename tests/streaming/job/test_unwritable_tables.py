"""Tables of other writers that a stream would harm are named at its start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tagstream.index.registry import IndexOptions
from tagstream.streaming.job.preflight import check_stream, stream_problem
from tagstream.table.buckets.hashing_metadata import CONSISTENT_HASHING, HASHING_FOLDER
from tagstream.table.errors import UnsupportedTableError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.properties import PROPERTIES_FILE
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tests.table.writer import Writer, row


@pytest.fixture
def table(tmp_path: Path) -> HoodieTable:
    writer = Writer.create(tmp_path, MERGE_ON_READ)
    writer.write([row(1, "p0", 1)])
    assert stream_problem(writer.table, IndexOptions()) is None
    return writer.table


def test_a_table_without_a_record_key(table: HoodieTable) -> None:
    raw = {key: value for key, value in table.config.raw.items() if key != "hoodie.table.recordkey.fields"}
    table.storage.replace(PROPERTIES_FILE, "".join(f"{key}={value}\n" for key, value in raw.items()).encode())
    with pytest.raises(UnsupportedTableError, match=r"no record key \(hoodie\.table\.recordkey\.fields\)"):
        check_stream(table.reload(), IndexOptions())


def test_a_table_with_a_renamed_column(table: HoodieTable) -> None:
    folder = Path(table.base_path) / ".hoodie/.schema"
    folder.mkdir()
    schemas = [{"fields": [{"id": 1, "name": name, "type": "long"}]} for name in ("new", "old")]
    (folder / "20260101000000000.schemacommit").write_text(json.dumps({"schemas": schemas}))
    with pytest.raises(UnsupportedTableError, match=r"new \(also old\) was renamed"):
        check_stream(table, IndexOptions())


@pytest.mark.parametrize("index", ["STATE", "BUCKET"])
def test_buckets_of_consistent_hashing(index: str, table: HoodieTable) -> None:
    (Path(table.base_path) / HASHING_FOLDER).mkdir(parents=True)
    with pytest.raises(UnsupportedTableError, match="set hoodie.index.type=BUCKET, .*engine=CONSISTENT_HASHING"):
        check_stream(table, IndexOptions(index))
    check_stream(table, IndexOptions("BUCKET", bucket_engine=CONSISTENT_HASHING))


def test_consistent_hashing_is_for_merge_on_read(tmp_path: Path) -> None:
    table = Writer.create(tmp_path, COPY_ON_WRITE).table
    with pytest.raises(UnsupportedTableError, match="consistent hashing is for merge-on-read tables only"):
        check_stream(table, IndexOptions("BUCKET", bucket_engine=CONSISTENT_HASHING))
