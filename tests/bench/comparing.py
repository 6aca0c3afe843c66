"""What the tests of the comparison share: a case, lines like a run's, a base table without any peer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.inputs.workload import Workload, make_workload
from bench.writers.case import Case, Writer
from tagstream.table.file_group.names import instant_from_ms, new_file_id
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import TableConfig
from tagstream.table.schema.schema import arrow_to_avro
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.write import commit
from tagstream.table.write.file_writer import write_file_group
from tagstream.table.write.write_context import WriteContext, WriterOptions

START_MS = 1_767_225_600_000


def case_of(folder: Path, workload: Workload, writer: str, table_type: str = "MERGE_ON_READ") -> Case:
    """A case with its workload made and a base table of the existing rows."""
    made = make_workload(workload, folder / "workloads")
    base = base_of(folder / "base", made / "load.parquet", table_type)
    return Case(1, workload, made, table_type, Writer.parse(writer), base, folder / "case")


def base_of(path: Path, load: Path, table_type: str) -> Path:
    """A table of one commit that holds the rows of a Parquet file, a file a partition."""
    rows = pq.read_table(load)
    avro = json.dumps(arrow_to_avro(rows.schema, "bench"))
    config = TableConfig(
        name="bench",
        table_type=table_type,
        record_key_fields=("id",),
        partition_fields=("part",),
        ordering_fields=("ts",),
    )
    table = HoodieTable.create(str(path), config, START_MS)
    instant = instant_from_ms(START_MS + 1000, True)
    action = "deltacommit" if config.is_merge_on_read else "commit"
    commit.request(table, instant, action)
    commit.inflight(table, instant, action)
    options = WriterOptions(inserts_to_base_files=True)
    none = pa.table({"_hoodie_record_key": pa.array([], pa.string()), "_ordering": pa.array([], pa.int64())})
    statuses = []
    for number, part in enumerate(sorted(rows["part"].unique().to_pylist())):
        ctx = WriteContext(instant, action, number, f"{number}-1-1", rows.schema, avro, None, table.timeline(), options)
        some = rows.filter(pc.equal(rows["part"], part))
        some = some.append_column("_is_insert", pa.repeat(True, some.num_rows))
        some = some.append_column("_hoodie_record_key", some["id"])
        statuses += write_file_group(table, ctx, part, new_file_id("bench", number), some, none)
    commit.publish_files(table, instant, statuses)
    commit.complete(table, instant, action, CommitMetadata.build(statuses, {}, avro))
    return path


def case_line(writer: str, run: int, rate: float, **other: Any) -> dict[str, Any]:
    """A case's line with the figures that a standing is made of."""
    name, _, index = writer.partition(":")
    return {
        "kind": "case", "run": run, "workload": "mixed", "table_type": "MERGE_ON_READ", "keys": 100, "records": 10,
        "writer": name, "index": index, "median_seconds": 10 / rate, "best_seconds": 5 / rate,
        "records_per_second": rate, "right": True, "peak_mib": {"jvm": 100, "python": 50 + run},
    } | other  # fmt: skip
