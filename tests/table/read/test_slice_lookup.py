"""Keys are found in the slices of tables that real Hudi wrote exactly where their live rows are."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.read.snapshot import key_reader, lookup_slice, snapshot_schema
from tests.table.reference import unpack

NAMES = ["cow_v6_global_bloom_moves", "mor_v6_avro_log_deletes", "mor_v6_compaction_pending", "mor_v6_parquet_log",
         "mor_v6_bucket", "flink_mor_moves", "mor_v9_defaults"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_live_key_and_its_ordering_value(tmp_path: Path, name: str) -> None:
    table = HoodieTable.open(str(unpack(name, tmp_path)))
    timeline = table.timeline()
    view = table.view(timeline)
    assert view.as_of is not None
    full = snapshot_schema(table, timeline, view)
    field = next(iter(table.config.ordering_fields), None)
    kind = full.field(field).type if field is not None else None
    reader = key_reader(table, timeline, view.as_of, kind)
    columns = ("_hoodie_record_key", field) if field is not None else ("_hoodie_record_key",)
    plain = SliceReader(table, timeline, view.as_of, full, columns)
    slices = [s for p in view.partitions() for s in view.latest_merged_slices(p)]
    everything = sorted({k for s in slices for rows in plain.read(s) for k in rows.column(0).to_pylist()})
    asked = pa.array([*everything, "no such key"], pa.string())
    count = 0
    for one in slices:
        expected: dict[str, object] = {}
        for rows in plain.read(one):
            values = rows.column(1).to_pylist() if field is not None else [None] * rows.num_rows
            expected.update(zip(rows.column(0).to_pylist(), values, strict=True))
        keys, ordering = lookup_slice(reader, one, asked, asked)
        found = dict(
            zip(keys.to_pylist(), ordering.to_pylist() if ordering is not None else [None] * len(keys), strict=True)
        )
        assert found == expected, one.file_id
        count += len(found)
        some = asked.slice(0, 3)
        assert set(lookup_slice(reader, one, some, some)[0].to_pylist()) == set(expected) & set(some.to_pylist())
    assert count > 30
