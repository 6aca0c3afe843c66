"""Tagging with every index: `python -m bench.index_family --keys 1000000 5000000`.

The existing keys are in a copy-on-write table of ten partitions (`k0000001`... in order, spread at random over the files, or
by bucket). A batch of `--records` records has 60 % updates, 20 % moves and 20 % new keys, drawn from all keys ("random") or
from the newest fifth ("recent"). Only the tag step is timed: from decoded records, which Spark has in memory, to located
rows, which are discarded. The state index is loaded from the same table, and its key groups are looked up as in a stream.
Prints the median of `--runs` after a warm-up run, and what BLOOM excluded.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from bench.inputs.one_commit import NewFile, one_commit_table
from tagstream.bootstrap.run import bootstrap_index
from tagstream.index.base import HoodieIndex
from tagstream.index.bloom import BloomIndex, GlobalBloomIndex
from tagstream.index.bucket import BucketIndex, new_bucket_file_id
from tagstream.index.simple import GlobalSimpleIndex, InMemoryIndex, SimpleIndex
from tagstream.state.layout import StateLayout, balanced_labels
from tagstream.state.tag_batch import GLOBAL_KEY, PARTITIONED_KEY
from tagstream.state.tag_group import tag_key_group
from tagstream.streaming.batch.located import LOCATED_SQL, WriteTasks
from tagstream.streaming.batch.tag import located, packed_result, sorted_out, tag_batch
from tagstream.streaming.job.pull_index import located_rows, table_as_of
from tagstream.streaming.job.session import start_session
from tagstream.streaming.source.packed import unpack
from tagstream.streaming.source.source import pack_by_group
from tagstream.table.buckets.partition_rules import BucketRules
from tagstream.table.file_group.bloom import DYNAMIC_V0, BloomParams
from tagstream.table.file_group.names import instant_from_ms, new_file_id
from tagstream.table.keys.bucket_hash import BucketHash
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.schema.schema import arrow_to_avro
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.write.write_context import WriteProfile, WriterOptions

_START_MS = 1_767_225_600_000
_PARTITIONS, _GROUPS, _WRITE_TASKS = 10, 8, 2
_BLOCK = 1 << 14
_SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("name", pa.string())])
_VALUE = b"x" * 190  # bytes of a record's other columns


@dataclass(frozen=True)
class Figure:
    """One index with one table and batch. ``seconds``: of each counted run. ``found``: number of keys with a location."""

    index: str
    keys: int
    layout: str
    batch: str
    records: int
    seconds: list[float]
    remark: str = ""

    @property
    def rate(self) -> float:
        """Records per second of the median run."""
        return self.records / statistics.median(self.seconds)


def key_names(numbers: np.ndarray) -> pa.Array:
    """`k0000001`..."""
    return pc.binary_join_element_wise("k", pc.utf8_lpad(pc.cast(pa.array(numbers), pa.string()), 8, "0"), "")


def city(number: int) -> str:
    """Partition path."""
    return f"city={number:03d}"


def make_table(folder: Path, keys: int, layout: str, hashing: BucketHash, per_file: int) -> HoodieTable:
    """A table of one commit. `layout`: ``ordered`` (files follow the keys), ``random`` or ``bucket``."""
    return one_commit_table(
        folder / "table",
        "bench",
        json.dumps(arrow_to_avro(_SCHEMA, "bench")),
        "city",
        _files(keys, layout, hashing, per_file),
        WriterOptions(codec="zstd", bloom=BloomParams(DYNAMIC_V0, 100_000, 1e-9, 200_000)),
        created_ms=_START_MS,
        committed_ms=_START_MS + 1000,
    )


def partition_of(numbers: np.ndarray) -> np.ndarray:
    """The partition of each key, by a hash of its number, so that every partition has keys of every age."""
    return (numbers * 2_654_435_761 % 2**32 >> 8) % _PARTITIONS


def _files(keys: int, layout: str, hashing: BucketHash, per_file: int) -> Iterator[NewFile]:
    for partition, file_id, numbers in _keys_of_files(keys, layout, hashing, per_file):
        ids = key_names(numbers)
        rows = {
            "id": ids,
            "city": pa.repeat(city(partition), len(numbers)),
            "ts": pa.array(numbers, pa.int64()),
            "name": pc.binary_join_element_wise("name of ", ids, ""),
        }
        yield city(partition), file_id, pa.table(rows)


def _keys_of_files(keys: int, layout: str, hashing: BucketHash, per_file: int) -> Iterator[tuple[int, str, np.ndarray]]:
    numbers = np.arange(keys)
    where = partition_of(numbers)
    shuffled = np.random.default_rng(5).permutation(keys) if layout == "random" else numbers
    for partition in range(_PARTITIONS):
        mine = shuffled[where[shuffled] == partition]
        if layout == "bucket":
            buckets = hashing.buckets(key_names(mine))
            for bucket in range(hashing.num_buckets):
                yield partition, new_bucket_file_id(bucket, "bench", str(partition)), mine[buckets == bucket]
            continue
        for start in range(0, len(mine), per_file):
            chosen = mine[start : start + per_file]
            yield partition, new_file_id("bench", partition, start), np.sort(chosen)


def make_batch(keys: int, records: int, kind: str, *, is_global: bool, seed: int) -> pa.Table:
    """Decoded records in the form of ``streaming.source.source.keyed_records``, without their key group."""
    rng = np.random.default_rng(seed)
    first = 0 if kind == "random" else keys - keys // 5
    known = rng.choice(keys - first, int(records * 0.8), replace=False) + first
    new = np.arange(keys, keys + records - len(known))
    numbers = rng.permutation(np.concatenate([known, new]))
    partition = partition_of(numbers)
    moved = np.isin(numbers, known[: int(records * 0.2)])
    partition[moved] = (partition[moved] + 1) % _PARTITIONS
    parts = pa.array([city(n) for n in range(_PARTITIONS)]).take(pa.array(partition))
    ids = key_names(numbers).cast(pa.binary())
    if is_global:
        skey = pc.binary_join_element_wise(GLOBAL_KEY, ids, b"")
    else:
        prefix = pc.binary_join_element_wise(PARTITIONED_KEY, parts.cast(pa.binary()), b"")
        skey = pc.binary_join_element_wise(prefix, ids, b"\x00")
    n = len(numbers)
    return pa.table(
        {
            "skey": skey,
            "part": parts,
            "ord": pa.array(np.full(n, keys * 10), pa.int64()),
            "flags": pa.array(np.zeros(n, np.int8)),
            "src": pa.nulls(n, pa.string()),
            "pos_hi": pa.array(np.zeros(n, np.int64)),
            "pos_lo": pa.array(np.arange(n)),
            "row": pa.StructArray.from_arrays([pa.repeat(pa.scalar(_VALUE), n)], names=["line"]),
            "value": pa.nulls(n, pa.binary()),
            "reason": pa.nulls(n, pa.string()),
        }
    )


def keyed_frame(spark: SparkSession, rows: pa.Table, labels: tuple[int, ...]) -> DataFrame:
    """The batch as in Spark after decoding: packed by key group, in memory, spread over the cores."""
    cores = spark.sparkContext.defaultParallelism
    packed = [pack_by_group(rows.slice(start, _BLOCK), labels) for start in range(0, rows.num_rows, _BLOCK)]
    frame = spark.createDataFrame(pa.Table.from_batches(packed)).repartition(cores).persist()
    frame.count()
    return frame


def profile(labels: tuple[int, ...]) -> WriteProfile:
    """A batch without small files: every new key goes to a new file group."""
    return WriteProfile("bench", "q", 7, 1, instant_from_ms(_START_MS + 9000, True), _START_MS, labels)


def tag_by_table(index: HoodieIndex, table: HoodieTable, labels: tuple[int, ...], spark: SparkSession) -> Any:
    """The lookup of one batch in a pull-type index, as a function of the decoded records."""
    decode = SimpleNamespace(ordering_kind="int64", ordering_fields=("ts",), ordering_type=pa.int64())
    job = SimpleNamespace(
        index=index, table=table, timeline=table.timeline(), decode=decode, overwrites=False,
        meta=SimpleNamespace(labels=labels, shuffle_partitions=_WRITE_TASKS), read_profile=lambda: profile(labels),
    )  # fmt: skip
    index.start(table_as_of(job, spark))  # type: ignore[arg-type]

    def tag(rows: DataFrame) -> DataFrame:
        return located_rows(job, rows, profile(labels).instant)  # type: ignore[arg-type]

    return tag


def tag_by_state(folder: Path, table: HoodieTable, labels: tuple[int, ...], spark: SparkSession) -> Any:
    """The stateful step's function over key groups that are loaded from the table."""
    layout = StateLayout(PosixStorage(str(folder / "index")), str(folder / "local"))
    bootstrap_index(
        table, layout, labels, 1, clock_ms=lambda: time.time_ns() // 1_000_000, ordering_type=pa.int64(), spark=spark
    )
    at = replace(profile(labels), index_load=1)

    def group(key: tuple[Any, ...], frame: pd.DataFrame) -> pd.DataFrame:
        label = int(key[0])
        good, _, _ = sorted_out(unpack(frame["rows"]))
        result = tag_key_group(label, None, tag_batch(good, layout.ordering), at, layout)
        return pd.concat(packed_result(label, located(result, good, layout.ordering), result, WriteTasks(_WRITE_TASKS)))

    def tag(rows: DataFrame) -> DataFrame:
        return rows.groupBy("kg").applyInPandas(group, LOCATED_SQL)

    return tag


def measure(
    tag: Callable[[DataFrame], DataFrame], rows: DataFrame, index: HoodieIndex | None, runs: int
) -> list[float]:
    """Seconds of each counted run. The located rows are discarded."""
    seconds = []
    for run in range(runs + 1):
        began = time.monotonic()
        tag(rows).write.format("noop").mode("overwrite").save()
        if run:
            seconds.append(time.monotonic() - began)
        if index is not None and run < runs:
            index.end_batch()
    return seconds


def remark(index: HoodieIndex | None) -> str:
    """What a bloom index excluded, and what its filters did."""
    if not isinstance(index, BloomIndex) or index.plan is None:
        return ""
    plan, counts = index.plan, index.counts
    text = f"{plan.files - plan.pruned} of {plan.files} files"
    text += f", {plan.comparisons:,} of {plan.unpruned_comparisons:,} comparisons"
    if counts is not None:
        text += f"; {counts.candidates.value:,} candidates, {counts.found.value:,} found"
    return text


def run(args: argparse.Namespace, folder: Path, console: Console) -> list[Figure]:
    """All indexes on all tables and batches."""
    conf = {"spark.master": args.master, "spark.local.dir": str(folder / "spark"), "spark.driver.memory": "6g"}
    spark = start_session("index family", jars=[], conf={**conf, "spark.sql.shuffle.partitions": "2"}, env=os.environ)
    labels = balanced_labels(_GROUPS, 2)
    hashing = BucketHash(args.buckets, ("id",), ("id",))
    made: dict[str, Callable[[], HoodieIndex | None]] = {
        "STATE": lambda: None,
        "GLOBAL_BLOOM": GlobalBloomIndex,
        "GLOBAL_SIMPLE": GlobalSimpleIndex,
        "INMEMORY": InMemoryIndex,
        "BLOOM": BloomIndex,
        "SIMPLE": SimpleIndex,
        "BUCKET": lambda: BucketIndex(hashing, BucketRules((), hashing.num_buckets)),
    }
    figures = []
    for keys in args.keys:
        for layout in ("ordered", "random", "bucket"):
            place = folder / f"{keys}-{layout}"
            table = make_table(place, keys, layout, hashing, args.rows_per_file)
            for kind in ("random", "recent") if layout == "ordered" else ("random",):
                for name in args.indexes or made:
                    index = made[name]()
                    only_bloom = layout == "random" and "BLOOM" not in name
                    if only_bloom or (layout == "bucket") != (name == "BUCKET"):
                        continue
                    is_global = index is None or index.is_global
                    rows = keyed_frame(spark, make_batch(keys, args.records, kind, is_global=is_global, seed=3), labels)
                    tag = (
                        tag_by_state(place / kind, table, labels, spark)
                        if index is None
                        else tag_by_table(index, table, labels, spark)
                    )
                    seconds = measure(tag, rows, index, args.runs)
                    figures.append(Figure(name, keys, layout, kind, args.records, seconds, remark(index)))
                    if index is not None:
                        index.end_batch()
                    rows.unpersist()
                    console.print(
                        f"{name} {keys:,} {layout}/{kind}: {figures[-1].rate:,.0f} records/s {figures[-1].remark}"
                    )
            shutil.rmtree(place, ignore_errors=True)
    spark.stop()
    return figures


def as_table(figures: list[Figure]) -> Table:
    """A row a figure."""
    table = Table("index", "keys", "files", "batch", "records/s", "s (median, min-max)", "checked")
    for f in figures:
        spread = f"{statistics.median(f.seconds):.2f} ({min(f.seconds):.2f}-{max(f.seconds):.2f})"
        table.add_row(f.index, f"{f.keys:,}", f.layout, f.batch, f"{f.rate:,.0f}", spread, f.remark)
    return table


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, nargs="+", default=[1_000_000, 5_000_000])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--buckets", type=int, default=4)
    parser.add_argument("--rows-per-file", type=int, default=100_000)
    parser.add_argument("--indexes", nargs="*", help="some of them only")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--out", type=Path, default=Path("out/index_family.json"))
    args = parser.parse_args()
    console = Console(width=200)
    folder = Path(tempfile.mkdtemp(prefix="tagstream-indexes-"))
    try:
        figures = run(args, folder, console)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    console.print(as_table(figures))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps([{**asdict(f), "rate": f.rate} for f in figures], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
