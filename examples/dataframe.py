"""A stream from your own code into a Hudi table: readings of devices, joined with the rooms of the devices."""

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import tagstream

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
spark = SparkSession.builder.master("local[2,4]").getOrCreate()
rooms = spark.createDataFrame([(n, f"room {n % 3}") for n in range(10)], "device long, room string")
readings = (
    spark.readStream.format("rate")
    .option("rowsPerSecond", 50)
    .load()
    .withColumn("device", F.col("value") % 10)
    .join(rooms, "device")
    .select("device", "room", F.col("value").alias("number"), F.col("timestamp").alias("seen"))
    .withColumn("_hoodie_is_deleted", F.col("number") % 7 == 0)
)

query = tagstream.upsert(
    readings,
    path=folder / "readings",
    checkpoint=folder / "readings-checkpoint",
    key="device",
    partition_by="room",
    order_by="number",
)
query.awaitTermination(20)
query.stop()
spark.stop()
