"""Functions of a user's, as ``tagstream.transformer`` names them."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def doubled(rows: DataFrame) -> DataFrame:
    """Every amount twice what it was."""
    return rows.withColumn("amount", F.col("amount") * 2)


def counted(rows: DataFrame) -> DataFrame:
    """Puts records together."""
    return rows.groupBy("id", "part", "_hoodie_is_deleted").agg(F.max("ts").alias("ts"))


def nothing(_rows: DataFrame) -> Any:
    """No DataFrame."""
    return 7
