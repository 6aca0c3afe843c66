"""A copy-on-write table of one commit by this project's own writer: what the loading of an index reads."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.file_group.bloom import SIMPLE, BloomParams
from tagstream.table.file_group.names import instant_from_ms, new_file_id
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, TableConfig
from tagstream.table.schema.schema import arrow_to_avro
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.write import commit
from tagstream.table.write.file_writer import write_file_group
from tagstream.table.write.write_context import WriteContext, WriterOptions

_START_MS = 1_767_225_600_000
_SCHEMA = pa.schema([
    ("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("name", pa.string()), ("amount", pa.float64()),
])  # fmt: skip
_SMALL_BLOOM = BloomParams(SIMPLE, 1_000, 0.1)  # nothing reads the filters here, and full ones take most of the time


def make_table(folder: str, keys: int, partitions: int, per_file: int) -> HoodieTable:
    """The table in a folder: `keys` rows in files of `per_file`, spread over the partitions."""
    avro = json.dumps(arrow_to_avro(_SCHEMA, "bench"))
    config = TableConfig(
        name="bench",
        table_type=COPY_ON_WRITE,
        record_key_fields=("id",),
        partition_fields=("city",),
        ordering_fields=("ts",),
        create_schema=avro,
    )
    table = HoodieTable.create(folder, config, _START_MS)
    timeline, instant = table.timeline(), instant_from_ms(_START_MS + 1000, True)
    commit.request(table, instant, "commit")
    commit.inflight(table, instant, "commit")
    statuses = []
    none = pa.table({"_hoodie_record_key": pa.array([], pa.string()), "_ordering": pa.array([], pa.int64())})
    options = WriterOptions(bloom=_SMALL_BLOOM)
    for n, start in enumerate(range(0, keys, per_file)):
        numbers = pa.array(range(start, min(start + per_file, keys)), pa.int64())
        text = pc.cast(numbers, pa.string())
        city = f"city={n % partitions:03d}"
        ids = pc.binary_join_element_wise("k", pc.utf8_lpad(text, 7, "0"), "")
        rows = pa.table({
            "id": ids,
            "city": pa.repeat(city, len(numbers)),
            "ts": pc.add(numbers, _START_MS * 1000),
            "name": pc.binary_join_element_wise("name of ", text, ""),
            "amount": pc.divide(pc.cast(numbers, pa.float64()), 7.0),
            "_is_insert": pa.repeat(True, len(numbers)),
            "_hoodie_record_key": ids,
        })  # fmt: skip
        ctx = WriteContext(instant, "commit", n, f"{n}-1-1", _SCHEMA, avro, None, timeline, options)
        statuses += write_file_group(table, ctx, city, new_file_id("bench", n), None, rows, none)
    commit.publish_files(table, instant, statuses)
    commit.complete(table, instant, "commit", CommitMetadata.build(statuses, {}, avro))
    return table
