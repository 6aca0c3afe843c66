"""A copy-on-write table of one commit by this project's own writer, from which an index is loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from bench.inputs.one_commit import NewFile, one_commit_table
from tagstream.table.file_group.bloom import SIMPLE, BloomParams
from tagstream.table.file_group.names import new_file_id
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.schema.schema import arrow_to_avro
from tagstream.table.write.write_context import WriterOptions

_START_MS = 1_767_225_600_000
_SCHEMA = pa.schema([
    ("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("name", pa.string()), ("amount", pa.float64()),
])  # fmt: skip
_SMALL_BLOOM = BloomParams(SIMPLE, 1_000, 0.1)  # the filters are not read here, and full ones take most of the time


def make_table(folder: str, keys: int, partitions: int, per_file: int) -> HoodieTable:
    """The table in a folder: `keys` rows in files of `per_file`, spread over the partitions."""
    return one_commit_table(
        folder,
        "bench",
        json.dumps(arrow_to_avro(_SCHEMA, "bench")),
        "city",
        _files(keys, partitions, per_file),
        WriterOptions(bloom=_SMALL_BLOOM),
        created_ms=_START_MS,
        committed_ms=_START_MS + 1000,
    )


def _files(keys: int, partitions: int, per_file: int) -> Iterator[NewFile]:
    for n, start in enumerate(range(0, keys, per_file)):
        numbers = pa.array(range(start, min(start + per_file, keys)), pa.int64())
        text = pc.cast(numbers, pa.string())
        city = f"city={n % partitions:03d}"
        rows = pa.table({
            "id": pc.binary_join_element_wise("k", pc.utf8_lpad(text, 7, "0"), ""),
            "city": pa.repeat(city, len(numbers)),
            "ts": pc.add(numbers, _START_MS * 1000),
            "name": pc.binary_join_element_wise("name of ", text, ""),
            "amount": pc.divide(pc.cast(numbers, pa.float64()), 7.0),
        })  # fmt: skip
        yield city, new_file_id("bench", n), rows
