"""Real Hudi on Spark, as a program of the peers' Python: takes orders as JSON lines, answers with JSON lines.

It stands alone (standard library and pyspark only), as the peers' environment has nothing of this project.
Arguments: the bundle's path, a scratch folder, and what goes before the bundle on the class path. An answer's line begins
with ANSWER; other lines are chatter.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import traceback
from typing import Any

ANSWER = "ANSWER "
SETTINGS = "HUDI_HADOOP_SETTINGS"  # of the environment: what Hadoop is to know of a store, as JSON
METASTORE = "hive.metastore.uris"  # among them: tables are found by their names in this metastore
# Text of a list of pairs of keys and their places, whose own text is not the same in every build of the bundle.
LOCATED = re.compile(r"\(([^,()]*),HoodieRecordGlobalLocation(.*?)\)(?=, \(|\]$)")
NAMED = re.compile(r"(partitionPath|fileId)=([^,(){}]*)")


def session(bundle: str, scratch: str, *class_path: str) -> Any:
    """A local Spark with Hudi; times in UTC."""
    from pyspark.sql import SparkSession

    conf = {
        "spark.master": "local[2]",
        "spark.driver.memory": "2g",
        "spark.jars": bundle,
        "spark.driver.extraClassPath": ":".join([*class_path, bundle]),
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.local.dir": f"{scratch}/local",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC -XX:TieredStopAtLevel=1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    settings = json.loads(os.environ.get(SETTINGS) or "{}")
    conf |= {f"spark.hadoop.{name}": value for name, value in settings.items()}
    if METASTORE in settings:
        conf["spark.sql.catalogImplementation"] = "hive"
    builder = SparkSession.builder.appName("hudi")
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def read(spark: Any, order: dict[str, Any]) -> None:
    """Rows of a table, with the meta columns, into Parquet files."""
    # Two readings of one path are one plan to Spark, and the table may have changed in between.
    spark.catalog.clearCache()
    frame = spark.read.format("hudi").options(**order["options"]).load(order["table"])
    frame.coalesce(1).write.parquet(order["rows"])


def write(spark: Any, order: dict[str, Any]) -> None:
    """Rows of Parquet files into a table. `hold`: once Hudi asks for the rows they come only when that file is there."""
    frame = spark.read.parquet(order["rows"])
    if order.get("hold"):
        path, schema = order["hold"], frame.schema

        def held(rows: Any) -> Any:
            while not os.path.exists(path):
                time.sleep(0.05)
            return rows

        frame = spark.createDataFrame(frame.rdd.mapPartitions(held), schema)
    frame.write.format("hudi").options(**order["options"]).mode("append").save(order["table"])


def change(spark: Any, order: dict[str, Any]) -> None:
    """One row as the table has it, with another value and a greater order, is upserted by the table's own settings."""
    from pyspark.sql import functions as f

    spark.catalog.clearCache()
    # With its data skipping Hudi finds no row of a composite record key, in tables of its own as well.
    rows = spark.read.format("hudi").option("hoodie.enable.data.skipping", "false").load(order["table"])
    rows = rows.where(
        (f.col("_hoodie_record_key") == order["key"]) & (f.col("_hoodie_partition_path") == order["path"])
    )
    rows = rows.drop(*order["drop"])
    for name in order["ordering"]:
        text = dict(rows.dtypes)[name] == "string"
        rows = rows.withColumn(name, f.concat(f.col(name), f.lit("1")) if text else f.col(name) + 1)
    rows = rows.withColumn(order["column"], f.lit(order["value"]).cast(dict(rows.dtypes)[order["column"]]))
    # Taken before the write begins: what Hudi does to the metadata table first must not change what is read.
    rows = spark.createDataFrame(rows.collect(), rows.schema)
    rows.write.format("hudi").options(**order["options"]).mode("append").save(order["table"])


def sql(spark: Any, order: dict[str, Any]) -> list[dict[str, Any]]:
    """Statements one after another; what the last one gives, as text by column name."""
    found = [spark.sql(statement) for statement in order["statements"]][-1]
    return [{name: str(value) for name, value in row.asDict().items()} for row in found.collect()]


def locate(spark: Any, order: dict[str, Any]) -> list[list[str]]:
    """Places of record keys by the table's record index, as Hudi's own classes look them up: (key, partition, file id).

    ``partition``: asked for in an index by partition, where Hudi takes all keys of one call for those of one shard.
    """
    jvm, table = spark._jvm, order["table"]
    java = spark.sparkContext._jsc
    context = jvm.org.apache.hudi.client.common.HoodieSparkEngineContext(java)
    config = jvm.org.apache.hudi.common.config.HoodieMetadataConfig.newBuilder().enable(True).build()
    conf = jvm.org.apache.hudi.hadoop.fs.HadoopFSUtils.getStorageConfWithCopy(java.hadoopConfiguration())
    storage = jvm.org.apache.hudi.storage.HoodieStorageUtils.getStorage(table, conf)
    metadata = jvm.org.apache.hudi.metadata.HoodieBackedTableMetadata(context, storage, config, table)
    partition = order.get("partition")
    path = jvm.org.apache.hudi.common.util.Option.ofNullable(partition)
    with open(order["keys"], encoding="utf-8") as f:
        keys = f.read().splitlines()
    found = []
    for asked in [[key] for key in keys] if partition is not None else [keys]:
        data = jvm.org.apache.hudi.common.data.HoodieListData.eager(jvm.java.util.ArrayList(asked))
        # The list's own text: a call for each part of each entry would take minutes.
        told = str(metadata.readRecordIndexLocationsWithKeys(data, path).collectAsList().toString())
        for key, place in LOCATED.findall(told):
            # In an index by partition it answers with keys that begin so; its own writers join the answer with those asked.
            if partition is None or key in asked:
                named = dict(NAMED.findall(place))
                found.append((key, named["partitionPath"], named["fileId"]))
    metadata.close()
    return [list(each) for each in found]


def hfile(spark: Any, order: dict[str, Any]) -> dict[str, Any]:
    """What Hudi's own reader of one HFile says: its least and greatest key, and of some keys those that its bloom filter
    lets pass and (1.x: asked through the filter) those that it finds."""
    jvm, java = spark._jvm, spark.sparkContext._jsc
    conf = jvm.org.apache.hudi.hadoop.fs.HadoopFSUtils.getStorageConfWithCopy(java.hadoopConfiguration())
    path = jvm.org.apache.hudi.storage.StoragePath(order["table"])
    empty = jvm.org.apache.hudi.common.util.Option.empty()
    if order["native"]:
        readers = jvm.org.apache.hudi.io.storage
        storage = jvm.org.apache.hudi.storage.HoodieStorageUtils.getStorage(order["table"], conf)
        none = jvm.org.apache.hudi.common.config.TypedProperties()
        files = readers.HFileReaderFactory.builder().withStorage(storage).withProps(none).withPath(path).build()
        builder = readers.HoodieNativeAvroHFileReader.builder().readerFactory(files).path(path).schema(empty)
        reader = builder.useBloomFilter(True).build()
    else:
        reader = jvm.org.apache.hudi.io.hadoop.HoodieHBaseAvroHFileReader(conf, path, empty)
    bloom = reader.readBloomFilter()
    found = []
    if order["native"]:
        asked = jvm.java.util.ArrayList(order["keys"])
        records = reader.getIndexedRecordsByKeysIterator(asked, reader.getSchema())
        while records.hasNext():
            found.append(str(records.next().get("key")))
    passed = [key for key in order["keys"] if bloom.mightContain(key)]
    ends = [str(each) for each in reader.readMinMaxRecordKeys()]
    reader.close()
    return {"ends": ends, "passed": passed, "found": found}


def sync(spark: Any, order: dict[str, Any]) -> None:
    """Hudi's HiveSyncTool on a table, with these properties."""
    jvm = spark._jvm
    properties = jvm.java.util.Properties()
    for key, value in order["options"].items():
        properties.setProperty(key, value)
    conf = jvm.org.apache.hadoop.conf.Configuration(spark.sparkContext._jsc.hadoopConfiguration())
    jvm.org.apache.hudi.hive.HiveSyncTool(properties, conf).syncHoodieTable()


def cause(error: BaseException) -> str:
    """The chain of Java's causes, which py4j hides, or Python's own trace."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    lines = []
    while java is not None:
        lines.append(str(java.toString()))
        java = java.getCause()
    return "\n".join(lines) or traceback.format_exc()


ORDERS = {"read": read, "write": write, "change": change, "sql": sql, "locate": locate, "hfile": hfile, "sync": sync}


def main() -> None:
    spark = session(*sys.argv[1:])
    print(ANSWER + json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            rows = ORDERS[order["do"]](spark, order)
            answer: dict[str, Any] = {"done": order["do"], "rows": rows}
        except Exception as error:
            answer = {"error": cause(error)}
        print(ANSWER + json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
