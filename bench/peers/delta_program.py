"""delta-rs as a program. Its only argument is an order, a JSON file. It runs in a Python with deltalake and pyarrow only.

``load`` writes the existing rows of a Parquet file, or of a folder of such files, batch by batch. ``stream`` merges file
after file. ``rows`` reads key, partition and time of all rows. A batch's time is that of reading the file, opening the table
and merging. Only the newest event of a key is merged.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.json as pj
import pyarrow.parquet as pq
from deltalake import DeltaTable, WriterProperties, write_deltalake

_LEVEL = 1  # of zstd: its default, also used by the other writers here


def properties(order: dict[str, Any]) -> WriterProperties:
    codec = order["options"]["compression"].upper()
    return WriterProperties(compression=codec, compression_level=_LEVEL if codec == "ZSTD" else None)


def newest(rows: pa.Table) -> pa.Table:
    """One row per key, the one with the greatest time: a merge refuses duplicate keys."""
    if pc.count_distinct(rows["id"]).as_py() == rows.num_rows:
        return rows
    rows = rows.append_column("_row", pa.array(range(rows.num_rows), pa.int64())).sort_by([("ts", "ascending")])
    last = rows.group_by("id", use_threads=False).aggregate([("_row", "last")])["_row_last"]
    return rows.filter(pc.is_in(rows["_row"], value_set=last.combine_chunks())).drop_columns(["_row"])


def tell(order: dict[str, Any], **what: Any) -> None:
    with Path(order["events"]).open("a", encoding="utf-8") as f:
        f.write(json.dumps(what | {"at": time.time()}) + "\n")


def stream(order: dict[str, Any]) -> None:
    schema, props = pq.read_schema(order["rows"]), properties(order)
    tell(order, event="ready", bootstrap_seconds=0.0)
    for number, file in enumerate(sorted(Path(order["batches"]).glob("*.json"))):
        began = time.monotonic()
        rows = newest(pj.read_json(file, parse_options=pj.ParseOptions(explicit_schema=schema)).select(schema.names))
        read = time.monotonic()
        merge = DeltaTable(order["table"]).merge(
            rows, "t.id = s.id", source_alias="s", target_alias="t", writer_properties=props
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        done = time.monotonic()
        tell(order, event="batch", batch=number, seconds=done - began, records=rows.num_rows, load1=os.getloadavg()[0],
             phases={"read": read - began, "merge": done - read})  # fmt: skip
    tell(order, event="end")


def main() -> None:
    order = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    if order["do"] == "load":
        began = time.monotonic()
        rows = ds.dataset(order["rows"]).scanner().to_reader()
        write_deltalake(order["table"], rows, partition_by=["part"], writer_properties=properties(order))
        tell(order, event="loaded", seconds=time.monotonic() - began)
    elif order["do"] == "rows":
        pq.write_table(DeltaTable(order["table"]).to_pyarrow_table(columns=["id", "part", "ts"]), order["out"])
    else:
        stream(order)


if __name__ == "__main__":
    main()
