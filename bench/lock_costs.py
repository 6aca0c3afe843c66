"""What a lock costs in a batch: `python -m bench.lock_costs`.

For each provider a stream on one local Spark takes batches of one row, then of 100,000 rows, into a table of its own. Prints
the median seconds of a batch. The first batches of each kind are not counted. The storage lock needs an object store, so it
has its own line without a lock. The servers (ZooKeeper, moto for DynamoDB and S3) run on this machine: a real one adds the
time of its network.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import boto3
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from bench.inputs.lines import append_lines
from tests.streaming.stream_case import StreamCase
from tests.support.aws import aws_server, environment
from tests.support.zookeeper import ZookeeperServer

LOCK = "hoodie.write.lock."
OCC = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
WARM = 3


class OnStore(StreamCase):
    """A stream whose table may be on a store."""

    place_of_table = ""

    def arguments(self, *more: str) -> list[str]:
        """The command line, with the table's URL."""
        words = super().arguments(*more)
        if self.place_of_table:
            words[words.index("--target-base-path") + 1] = self.place_of_table
        return words


@contextmanager
def locks(folder: Path) -> Iterator[dict[str, tuple[str, Mapping[str, str]]]]:
    """By name: the table's URL ("" for a local folder) and the options."""
    with ExitStack() as open_ones:
        zookeeper = open_ones.enter_context(ZookeeperServer(folder / "zookeeper"))
        aws = open_ones.enter_context(aws_server())
        open_ones.enter_context(environment(aws))
        endpoint = aws["AWS_ENDPOINT_URL"]
        boto3.client("s3").create_bucket(Bucket="locks")
        dynamo = {f"{LOCK}dynamodb.table": "locks", f"{LOCK}dynamodb.endpoint_url": endpoint}
        keeper = {f"{LOCK}zookeeper.url": zookeeper.hosts, f"{LOCK}zookeeper.base_path": "/locks"}
        yield {
            "single writer": ("", {}),
            "InProcess": ("", {**OCC, f"{LOCK}provider": "InProcessLockProvider"}),
            "FileSystemBased": ("", {**OCC, f"{LOCK}provider": "FileSystemBasedLockProvider"}),
            "ZookeeperBased": ("", {**OCC, f"{LOCK}provider": "ZookeeperBasedLockProvider", **keeper}),
            "DynamoDBBased": ("", {**OCC, f"{LOCK}provider": "DynamoDBBasedLockProvider", **dynamo}),
            "single writer, S3": ("s3://locks/alone", {}),
            "StorageBased, S3": ("s3://locks/locked", {**OCC, f"{LOCK}provider": "StorageBasedLockProvider"}),
        }


def write(folder: Path, number: int, rows: int) -> None:
    """A file of new versions of the same keys."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number:05d}.json"
    with path.open("w", encoding="utf-8") as out:
        for key in range(rows):
            row: dict[str, Any] = {"id": f"k{key:07d}", "part": f"p{key % 4}", "ts": number, "name": "n", "amount": 1.0}
            out.write(json.dumps({**row, "_hoodie_is_deleted": False}) + "\n")
    stamp = 1_700_000_000 + number
    os.utime(path, (stamp, stamp))


def measure(case: StreamCase, small: int, large: int) -> dict[str, float]:
    """Median seconds of a batch of one row, and of 100,000 rows."""
    for number in range(small):
        write(case.source, number, 1)
    one = [report.seconds for report in case.run()][WARM:]
    for number in range(large):
        write(case.source, small + number, 100_000)
    many = [report.seconds for report in case.run()][1:]
    return {"one row": statistics.median(one), "100,000 rows": statistics.median(many)}


def main() -> None:
    """Measure each lock and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", type=int, default=25, help="batches of one row")
    parser.add_argument("--large", type=int, default=5, help="batches of 100,000 rows")
    parser.add_argument("--json", type=Path, help="add the figures to this file of JSON lines")
    args = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    table = Table("lock", "one row, s", "100,000 rows, s")
    with tempfile.TemporaryDirectory(prefix="lock-costs-") as name:
        folder = Path(name)
        with locks(folder) as found:  # before Spark: its workers inherit the environment
            spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
            warm = OnStore(folder / "warm", spark, "MERGE_ON_READ", {})
            measure(warm, args.small, 2)  # the first stream of a JVM is slower
            for number, (lock, (url, conf)) in enumerate(found.items()):
                case = OnStore(folder / str(number), spark, "MERGE_ON_READ", conf)
                case.place_of_table = url
                began = time.monotonic()
                figures = measure(case, args.small, args.large)
                line = {"kind": "lock", "lock": lock, **figures, "seconds": time.monotonic() - began}
                append_lines(args.json, [line])
                table.add_row(lock, *(f"{figures[what]:.3f}" for what in ("one row", "100,000 rows")))
            spark.stop()
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
