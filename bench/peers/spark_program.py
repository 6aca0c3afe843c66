"""Real Hudi on Spark as a program of the peers' Python. Its only argument is an order, a JSON file.

It uses only the standard library and pyspark, because the peers' environment does not have this project. Events are appended
to the order's ``events`` file, one JSON object per line. If the table or the checkpoint is on a store, the order's ``jars``
are the ones that Hadoop needs for it, and its ``hadoop`` are the settings. Orders (``do``):

- ``load``: write the rows of a Parquet file to a new table, by one bulk_insert
- ``stream``: write every file of a folder to the table, as a batch of Structured Streaming
- ``compact``: execute the pending compaction of some tables, which are copies of each other; the first ones warm up the JVM
- ``count``: rows, distinct keys and the sum of the ordering column of the table's snapshot
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

PARALLELISM = 4


def session(order: dict[str, Any]) -> Any:
    """Spark on two cores with Hudi; times in UTC."""
    from pyspark.sql import SparkSession

    scratch = order["work"]
    jars = [*order.get("jars", []), order["bundle"]]
    conf = {
        "spark.master": "local[2]",
        "spark.driver.memory": "4g",
        "spark.jars": order["bundle"],
        "spark.driver.extraClassPath": ":".join(jars),
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(PARALLELISM),
        "spark.default.parallelism": str(PARALLELISM),
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.local.dir": f"{scratch}/local",
        # Hudi's spillable map asks JOL for the sizes of objects, which tries for seconds to attach to its own process.
        "spark.driver.extraJavaOptions": (
            "-Duser.timezone=UTC -Djdk.attach.allowAttachSelf=true -Djol.skipHotspotSAAttach=true"
        ),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    conf |= {f"spark.hadoop.{name}": value for name, value in order.get("hadoop", {}).items()}
    builder = SparkSession.builder.appName("hudi-peer")
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def options(order: dict[str, Any]) -> dict[str, str]:
    """Hudi's options: the table's, equal parallelism everywhere, no table services, and those of the order."""
    parallelism = str(order.get("parallelism", PARALLELISM))
    found = {
        "hoodie.table.name": order["name"],
        "hoodie.datasource.write.table.type": order["table_type"],
        "hoodie.write.table.version": str(order["table_version"]),
        "hoodie.write.auto.upgrade": "false",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.hive_style_partitioning": "false",
        "hoodie.bulkinsert.sort.mode": "GLOBAL_SORT",
        "hoodie.metadata.enable": "false",
        "hoodie.clean.automatic": "true",
        "hoodie.clean.commits.retained": "1000",
        "hoodie.keep.min.commits": "1010",
        "hoodie.keep.max.commits": "1020",
        "hoodie.compact.inline": "false",
        "hoodie.datasource.compaction.async.enable": "false",
        "hoodie.bloom.index.update.partition.path": "true",
        "hoodie.simple.index.update.partition.path": "true",
        "hoodie.record.index.update.partition.path": "true",
    }
    for what in ("upsert.shuffle", "insert.shuffle", "bulkinsert.shuffle", "delete.shuffle", "finalize.write",
                 "markers.delete", "bloom.index", "simple.index", "global.simple.index"):  # fmt: skip
        found[f"hoodie.{what}.parallelism"] = parallelism
    options: dict[str, str] = order["options"]
    return found | options


def load(spark: Any, order: dict[str, Any]) -> None:
    """A table of the rows of a Parquet file."""
    started = time.monotonic()
    writer = spark.read.parquet(order["rows"]).write.format("hudi").options(**options(order))
    writer.option("hoodie.datasource.write.operation", "bulk_insert").mode("overwrite").save(order["table"])
    tell(order, event="loaded", seconds=time.monotonic() - started)


def stream(spark: Any, order: dict[str, Any]) -> None:
    """Stream the folder's files in the order of their times, one batch per file."""
    source = spark.readStream.schema(order["schema"]).option("maxFilesPerTrigger", 1).json(order["batches"])
    writer = source.writeStream.format("hudi").options(**options(order)).outputMode("append")
    writer = writer.option("hoodie.datasource.write.operation", order["operation"]).option("path", order["table"])
    # A batch that fails is retried and then ends the query: by default it would be skipped silently.
    writer = writer.option("hoodie.datasource.write.streaming.ignore.failed.batch", "false")
    writer = writer.option("checkpointLocation", order.get("checkpoint", f"{order['work']}/checkpoint")).trigger(
        availableNow=True
    )
    query = writer.start()
    tell(order, event="ready", bootstrap_seconds=None)
    told = 0
    while True:
        ended = query.awaitTermination(1)
        done = [p for p in query.recentProgress if p["numInputRows"]]
        for progress in done[told:]:
            parts = {name: ms / 1000 for name, ms in progress["durationMs"].items()}
            whole = parts.pop("triggerExecution")
            tell(order, event="batch", batch=progress["batchId"], seconds=whole, phases=parts,
                 records=progress["numInputRows"], load1=os.getloadavg()[0])  # fmt: skip
        told = len(done)
        if ended:
            return


def cpu_seconds(pid: int) -> float:
    """Processor seconds that a process has used in all its threads (`utime` and `stime` of proc(5))."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        utime, stime = file.read().rpartition(")")[2].split()[11:13]
    return (int(utime) + int(stime)) / os.sysconf("SC_CLK_TCK")


def compact(spark: Any, order: dict[str, Any]) -> None:
    """Execute the pending compactions, table by table. Elapsed and processor seconds of each."""
    told = ",".join(f"{key}={value}" for key, value in order["options"].items())
    jvm = spark.sparkContext._gateway.proc.pid  # noqa: SLF001
    for table in order["tables"]:
        cpu, started = cpu_seconds(jvm), time.monotonic()
        spark.sql(f"call run_compaction(op => 'run', path => '{table}', options => '{told}')").collect()
        seconds = time.monotonic() - started
        tell(order, event="compacted", table=table, seconds=seconds, cpu_seconds=cpu_seconds(jvm) - cpu)


def count(spark: Any, order: dict[str, Any]) -> None:
    """Count the snapshot's rows with Hudi's own reader."""
    from pyspark.sql import functions as f

    rows = spark.read.format("hudi").option("hoodie.metadata.enable", "false").load(order["table"])
    found = rows.agg(f.count("*"), f.countDistinct("id"), f.sum("ts")).collect()[0]
    tell(order, event="counted", rows=found[0], keys=found[1], ts=found[2])


def tell(order: dict[str, Any], **what: Any) -> None:
    """Append a line to the events file."""
    with open(order["events"], "a", encoding="utf-8") as f:
        f.write(json.dumps(what | {"at": time.time()}) + "\n")


def main() -> None:
    order = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    spark = session(order)
    {"load": load, "stream": stream, "compact": compact, "count": count}[order["do"]](spark, order)
    tell(order, event="end")
    spark.stop()


if __name__ == "__main__":
    main()
