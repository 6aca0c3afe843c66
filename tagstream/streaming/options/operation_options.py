"""The options of the operations that append rows without a look-up: INSERT and BULK_INSERT.

Names and values are Hudi's (HoodieWriteConfig, DataSourceOptions, BulkInsertSortMode).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tagstream.index.registry import STATE
from tagstream.streaming.options.resolve import Problem, Resolved
from tagstream.table.config import Kind
from tagstream.table.errors import ConfigError
from tagstream.table.option_fields import names_of, option, read
from tagstream.table.timeline.operation import APPENDS, WriteOperationType

OPERATION = "hoodie.datasource.write.operation"
_SORT, _TASKS = "hoodie.bulkinsert.sort.mode", "hoodie.bulkinsert.shuffle.parallelism"
_SMALL_FILES = "hoodie.merge.allow.duplicate.on.inserts"
_COMBINE = "hoodie.combine.before.insert"
# Indexes whose places come from the key itself, or that are in another system.
_NOT_WITHOUT = {
    "BUCKET": "the bucket of a key decides its file group, so rows cannot be written to others",
    "HBASE": "HBase would lack the keys of the rows, and later records would write them a second time",
}


class BulkInsertSortMode(StrEnum):
    """How the rows of a bulk insert are distributed over tasks and sorted, in Hudi's words."""

    NONE = "NONE"
    GLOBAL_SORT = "GLOBAL_SORT"
    PARTITION_SORT = "PARTITION_SORT"
    PARTITION_PATH_REPARTITION = "PARTITION_PATH_REPARTITION"
    PARTITION_PATH_REPARTITION_AND_SORT = "PARTITION_PATH_REPARTITION_AND_SORT"


@dataclass(frozen=True)
class OperationOptions:
    """``bulk_tasks``: number of write tasks of a bulk insert that distributes its rows; 0: that of the shuffles."""

    combine: bool = option(
        _COMBINE,
        Kind.BOOL,
        "INSERT and BULK_INSERT: of the records of a batch with the same key only the newest is written. Other batches' "
        "rows are not compared.",
        default=False,
    )
    keeps_duplicates: bool = option(
        _SMALL_FILES,
        Kind.BOOL,
        "INSERT: a record whose key is already in the small file that it is added to becomes a second row. With false it "
        "replaces that row, as by Hudi; rows in other files are not compared.",
        default=True,
    )
    sort_mode: BulkInsertSortMode = option(
        _SORT,
        Kind.CHOICE,
        "BULK_INSERT: how rows are distributed and sorted. `NONE`: each task that reads records writes their files, "
        "without a shuffle. `PARTITION_SORT`: the same, and each task sorts its rows by partition and key. `GLOBAL_SORT`: "
        "all rows of a batch are in the order of partition and key, over all files. `PARTITION_PATH_REPARTITION` (also "
        "`..._AND_SORT`): one task writes all rows of a partition.",
        default="NONE",
        values={mode.value: mode.value for mode in BulkInsertSortMode},
        convert=BulkInsertSortMode,
    )
    bulk_tasks: int = option(
        _TASKS,
        Kind.INT,
        "BULK_INSERT: number of write tasks with the `PARTITION_PATH_` modes, and the most with `GLOBAL_SORT`. That mode "
        "uses fewer if files would be smaller than `hoodie.parquet.max.file.size` otherwise.",
        default=0,
        default_note="`spark.sql.shuffle.partitions`",
        minimum=0,
        maximum=100_000,
    )


def operation_options(r: Resolved, index_type: str) -> OperationOptions:
    """The options. Keys that the operation does not use are noted as warnings in ``r``."""
    operation = r.text(OPERATION)
    if operation not in APPENDS:
        for name in names_of(OperationOptions):
            if name in r.values and name != _COMBINE:
                r.warnings.append(f"{r.said(name)}: has no effect on {operation}")
        return read(OperationOptions, r)
    unused = [_SORT, _TASKS] if operation == WriteOperationType.INSERT else [_SMALL_FILES]
    r.warnings += [f"{r.said(name)}: has no effect on {operation}" for name in unused if name in r.values]
    if index_type not in ("", STATE):
        r.warnings.append(f"{r.said('hoodie.index.type')}: {operation} looks up no key")
    return read(OperationOptions, r)


def check_whole_table(r: Resolved, source: str) -> None:
    """Note why a run cannot replace the table: INSERT_OVERWRITE_TABLE needs a run of one batch. ``source``: its kind."""
    if r.text(OPERATION) != WriteOperationType.INSERT_OVERWRITE_TABLE:
        return
    why = None
    if r.flag("--continuous"):
        why = (
            "with --continuous each batch would replace the rows of the one before; remove the flag: a run then replaces "
            "the table once, by all records that the source has"
        )
    elif source == "frame":
        why = (
            "a DataFrame decides itself what a batch is, and each batch would replace the rows of the one before; write "
            "its rows to files, and use a job or `tagstream table insert-overwrite --all`"
        )
    elif r.flag("--bootstrap-only"):
        why = "--bootstrap-only writes no rows; remove one of the two"
    elif "--source-limit" in r.values:
        why = f"all records of a run are one batch, which {r.said('--source-limit')} would divide; remove the limit"
    if why is not None:
        r.problems.append(Problem(f"{r.said(OPERATION)}: {why}", r.entries.get(OPERATION)))


def check_appends(r: Resolved, index_type: str) -> bool:
    """Whether the operation appends rows. ConfigError for an index that cannot be left out."""
    operation = r.text(OPERATION)
    if operation not in APPENDS:
        return False
    if index_type in _NOT_WITHOUT:
        raise ConfigError(
            f"{r.said(OPERATION)} with hoodie.index.type={index_type}: {_NOT_WITHOUT[index_type]}; use UPSERT, or another "
            "index"
        )
    if r.flag("--bootstrap-only"):
        raise ConfigError(
            f"{r.said(OPERATION)}: it looks up no key, so --bootstrap-only has no index to load; remove the flag, or load "
            "the index with UPSERT"
        )
    return True
