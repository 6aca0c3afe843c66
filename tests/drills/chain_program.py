"""A user's program in a chain of tables: the changes of table A, summed per group, into table B.

Arguments: the folder of the chain. It reads what A has, and ends.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

import tagstream

# Each change takes the row before it from its group's total, and adds the row after it.
SIGNED = """inline(filter(array(
 if(after is null, null, struct(after.part as grp, cast(4 * ifnull(after.amount, 0) as long) as n, 1L as rows)),
 if(before is null, null, struct(before.part as grp, cast(-4 * ifnull(before.amount, 0) as long) as n, -1L as rows))
), change -> change is not null))"""
TOTALS = "grp string, total long, rows long, version long, _hoodie_is_deleted boolean"
STATE = "total long, rows long, version long"


def add(key: tuple[Any, ...], parts: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """The total of a group after the batch. A group without rows is deleted."""
    total, rows, version = state.get if state.exists else (0, 0, 0)
    for part in parts:
        total, rows = total + int(part["n"].sum()), rows + int(part["rows"].sum())
    state.update((total, rows, version + 1))
    yield pd.DataFrame(
        [[key[0], total, rows, version + 1, rows == 0]], columns=[c.split()[0] for c in TOTALS.split(", ")]
    )


def totals(changes: DataFrame) -> DataFrame:
    return (
        changes.selectExpr(SIGNED)
        .groupBy("grp")
        .applyInPandasWithState(add, TOTALS, STATE, "append", GroupStateTimeout.NoTimeout)
    )


def run(spark: SparkSession, source: Path, folder: Path, options: dict[str, Any]) -> None:
    """Bring table B in ``folder`` up to date with the table ``source``."""
    changes = tagstream.read_changes(spark, source, folder / "plans", max_commits=1)
    query = tagstream.upsert(
        totals(changes),
        folder / "table",
        folder / "checkpoint",
        key="grp",
        order_by="version",
        options={"hoodie.table.name": "totals", "hoodie.index.type": "GLOBAL_BLOOM", **options},
        trigger="availableNow",
    )
    query.awaitTermination()


def main(folder: Path, table_type: str, version: str) -> None:
    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "1g").config("spark.local.dir", str(folder / "spark"))
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    options = {"--table-type": table_type, "hoodie.write.table.version": version}
    run(spark, folder / "a" / "table", folder / "b", options)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
