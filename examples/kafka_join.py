"""Orders from a Kafka topic, joined with customers from a file, into a Hudi table. Ends after the existing records.

Arguments: the broker, the topic, a folder, and the folder of the connector's jars (tagstream fetch-jars --kafka --out).
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import tagstream

broker, topic, folder, jars = sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])
spark = (
    SparkSession.builder.master("local[2,4]")
    .config("spark.jars", ",".join(str(jar) for jar in sorted(jars.glob("*.jar"))))
    .getOrCreate()
)

customers = folder / "customers.json"
if not customers.exists():
    folder.mkdir(parents=True, exist_ok=True)
    customers.write_text(
        "".join(json.dumps({"customer": n, "country": "NL DE FR".split()[n % 3]}) + "\n" for n in range(9))
    )

# {"id": "o-1", "customer": 4, "amount": 9.5, "changed": 1767225600123, "cancelled": false}
orders = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", broker)
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .load()
    .select(
        F.from_json(
            F.col("value").cast("string"), "id string, customer long, amount double, changed long, cancelled boolean"
        ).alias("order")
    )
    .select("order.*")
    .join(spark.read.json(str(customers)), "customer", "left")
    .fillna("unknown", ["country"])
    .withColumnRenamed("cancelled", "_hoodie_is_deleted")  # an order with true here is deleted from the table
)

query = tagstream.upsert(
    orders,
    path=folder / "orders",
    checkpoint=folder / "orders-checkpoint",
    key="id",
    partition_by="country",
    order_by="changed",
    trigger="availableNow",  # "10 seconds": a batch every ten seconds, until the query is stopped
)
query.awaitTermination()

table = tagstream.open_table(folder / "orders")
print(table.scan(["id", "country", "amount"]).to_pandas().sort_values("id").to_string(index=False))
spark.stop()
