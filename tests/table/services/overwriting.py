"""Insert overwrites of tests: rows given as dicts, and what the table's oracle is then."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.schema.schema import arrow_to_avro
from tagstream.table.services.insert_overwrite import NewRows, OverwriteResult, Records, RowsByKey, insert_overwrite
from tagstream.table.services.merged_rows import RowKeeper
from tagstream.table.services.replaced_partitions import groups_of_partitions
from tests.table.writer import SCHEMA, Row, Writer


def records(rows: Sequence[Row], deleted: Sequence[bool] | None = None, *, ordered: bool = True) -> Records:
    """Rows of the writer's schema; one without ``ver`` is a delete without an ordering value."""
    table = pa.Table.from_pylist([dict(r) for r in rows], SCHEMA)
    return Records(
        rows=table,
        keys=table.column("id").combine_chunks(),
        partitions=table.column("part").combine_chunks(),
        ordering=table.column("ver").combine_chunks().fill_null(0) if ordered else None,
        deleted=np.array(deleted if deleted is not None else [False] * len(rows), np.bool_),
        unordered=table.column("ver").is_null().to_numpy(),
    )


def chosen(rows: Sequence[Row], keeper: RowKeeper, *, global_keys: bool = True) -> NewRows:
    found = RowsByKey(SCHEMA, keeper, global_keys=global_keys)
    found.add(records(rows))
    return found.chosen()


def overwrite(
    table: HoodieTable,
    rows: Sequence[Row],
    clock_ms: Callable[[], int],
    partitions: Sequence[str] | None = None,
    *,
    whole_table: bool = False,
    max_file_bytes: int | None = None,
    memory: int = 1 << 20,
) -> OverwriteResult:
    """Replace the partitions of the rows, or those named, or all."""
    with RowKeeper(memory) as keeper:
        found = chosen(rows, keeper)
        wanted = {*(partitions or found.partitions)}
        if whole_table:
            wanted = {*table.view(table.timeline()).partitions(), *found.partitions}
        groups = groups_of_partitions(table, wanted, new_ones=True)
        sizes = {} if max_file_bytes is None else {"max_file_bytes": max_file_bytes}
        schema = json.dumps(arrow_to_avro(SCHEMA, table.config.name))
        return insert_overwrite(table, found, groups, schema, clock_ms, whole_table=whole_table, **sizes)


def follow(writer: Writer, rows: Sequence[Row], result: OverwriteResult, partitions: Sequence[str]) -> None:
    """The writer's oracle after an overwrite of these partitions by rows of different keys."""
    writer.live = {key: found for key, found in writer.live.items() if found["part"] not in partitions}
    writer.where = {key: place for key, place in writer.where.items() if place[0] not in partitions}
    (files,) = [{s.stat.partition_path: s.stat.file_id for s in result.statuses}]
    assert len(files) == len(result.statuses), "one file a partition"
    writer.live |= {r["id"]: r for r in rows}
    writer.where |= {r["id"]: (r["part"], files[r["part"]]) for r in rows}
    writer.era += 1
    writer.now_ms += 10_000
