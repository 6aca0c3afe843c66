"""A user's program, for drills: its own session, ticks joined with a static table, upserted until it is killed.

Arguments: folder, batches to commit before it ends.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import tagstream

ROWS, KEYS = 60, 20
BEGIN_MS = 1_767_225_600_000


def main(folder: Path, batches: int) -> None:
    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.memory", "1g").config("spark.local.dir", str(folder / "spark")).getOrCreate()
    parts = spark.createDataFrame([(n, f"p{n}") for n in range(4)], "n long, part string")
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 2)
    rows = (
        ticks.option("startTimestamp", BEGIN_MS)
        .load()
        .join(parts, F.col("value") * 7 % 4 == F.col("n"))
        .select(
            (F.col("value") * 13 % KEYS).alias("id"),
            "part",
            F.col("value").alias("ts"),
            (F.col("value") % 11 == 0).alias("gone"),
        )
    )
    options = {
        "hoodie.table.name": "drill",
        "--table-type": "MERGE_ON_READ",
        "tagstream.delete.field": "gone",
        "hoodie.archive.automatic": False,
        "index.local.dir": folder / "local",
        "spark.sql.shuffle.partitions": 2,
    }
    query = tagstream.upsert(
        rows,
        folder / "table",
        folder / "checkpoint",
        key="id",
        partition_by="part",
        order_by="ts",
        options=options,
    )
    while len(list((folder / "checkpoint" / "commits").glob("[0-9]*"))) < batches:
        query.awaitTermination(1)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
