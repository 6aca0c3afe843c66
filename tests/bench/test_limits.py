"""The limits: the rows they write are Hudi's, and a line carries what the report needs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench import limits
from tagstream.table.file_group.names import parse_base_file_name
from tagstream.table.schema.schema import META_COLUMNS


def test_parquet_is_written_as_base_files_with_the_meta_columns(tmp_path: Path) -> None:
    lines = limits.parquet_write(tmp_path / "out", records=500, partitions=3, runs=2)
    assert [(x["kind"], x["limit"], x["run"], x["unit"]) for x in lines] == [
        ("limit", "parquet write", run, "rows/s") for run in (1, 2)
    ]
    assert all(x["per_second"] > 0 for x in lines)
    files = sorted((tmp_path / "out").iterdir())
    assert len(files) == 3 * 3  # the run that is not counted writes too
    for path in files:
        rows = pq.read_table(path)
        assert rows.num_columns == 13
        assert rows.column_names[:5] == list(META_COLUMNS)
        assert rows["_hoodie_record_key"].combine_chunks() == rows["id"].combine_chunks()
        assert set(rows["_hoodie_file_name"].to_pylist()) == {path.name}
        assert len(set(rows["part"].to_pylist())) == 1
        assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"
        assert parse_base_file_name(path.name) is not None
    first = [pq.read_table(p)["id"] for p in files if "-1-0_" in p.name]
    assert len(set(pa.chunked_array([c for ids in first for c in ids.chunks]).to_pylist())) == 500


def test_look_ups_find_their_keys_in_both_orders(tmp_path: Path) -> None:
    lines = limits.multi_get(tmp_path, keys=2_000, records=400, groups=4, runs=1)
    assert [(x["limit"], x["keys"], x["unit"]) for x in lines] == [
        ("rocksdict multi-get", 2_000, "keys/s"),
        ("rocksdict multi-get, keys sorted", 2_000, "keys/s"),
    ]
    assert limits.as_table(lines).row_count == 2
