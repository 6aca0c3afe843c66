"""Runs a case, from a copy of its base table to its lines: the writer's process, its order, the check of the rows."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from bench.peers import home
from bench.writers.case import (
    BUCKETS,
    DELTA_RS,
    HUDI_FLINK,
    HUDI_SPARK,
    PAIMON,
    TAGSTREAM,
    BenchError,
    Case,
    Writer,
    batch_lines,
    read_events,
    speed,
)
from bench.writers.command import FLINK_PEERS, command, environment
from bench.writers.process import Peak, run_process
from bench.writers.verdict import judge

TABLE_NAME = "bench"
HUDI = "1.2.0"
# Hudi's names, which this project also uses. Four file groups of the record index, as in the cases of that index.
METADATA_OPTIONS = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "4",
    "hoodie.metadata.record.index.max.filegroup.count": "4",
}
COMPACT_EVERY = 5  # delta commits
# By engine: options with services on, with Hudi's own defaults, and off. A case has too few batches for archiving.
_SERVICES = {
    TAGSTREAM: {"hoodie.compact.inline.max.delta.commits": str(COMPACT_EVERY)},
    HUDI_SPARK: {
        "hoodie.compact.inline": "true",
        "hoodie.compact.inline.max.delta.commits": str(COMPACT_EVERY),
        "hoodie.clean.commits.retained": "10",
    },
    HUDI_FLINK: {
        "compaction.schedule.enabled": "true",
        "compaction.async.enabled": "true",
        "compaction.delta_commits": str(COMPACT_EVERY),
        "compaction.tasks": "2",
        "clean.retain_commits": "10",
    },
}
_NO_SERVICES = {
    TAGSTREAM: {
        "hoodie.datasource.write.streaming.disable.compaction": "true",
        "hoodie.clean.automatic": "false",
        "hoodie.archive.automatic": "false",
    },
}
# Options for the most records per second, by Paimon's documentation: compaction by another job, or after the writes.
_PAIMON_OPTIONS = {
    "WRITE_ONLY": {"write-only": "true"},
    "COMPACTING": {"num-sorted-run.stop-trigger": "2147483647", "sort-spill-threshold": "10"},
}


def run_case(case: Case, timeout_s: float) -> list[dict[str, Any]]:
    """Lines of the case's batches and of the case itself. BenchError when it could not be measured."""
    prepare(case)
    started = time.time()
    peak = run_writer(case, order_of(case), timeout_s)
    events = read_events(case.events)
    batches = batch_lines(case, events)
    ready = next((e for e in events if e["event"] == "ready"), None)
    if ready is None:
        raise BenchError(f"{case.writer} did not say when it was ready; see {case.place / 'writer.log'}")
    verdict = judge(case, timeout_s)
    summary = {
        "kind": "case",
        **case.identity,
        **speed(case, batches),
        "start_seconds": ready["at"] - started,
        "bootstrap_seconds": ready["bootstrap_seconds"],
        "rows": verdict.rows,
        "right": verdict.right,
        "checked_by": verdict.by,
        "wrong": verdict.why,
        "peak_mib": {"jvm": round(peak.jvm), "python": round(peak.python)},
        "bytes": size_of(case.table),
    }
    return [*batches, summary]


def run_writer(case: Case, order: dict[str, Any], timeout_s: float) -> Peak:
    """Run the case's writer on an order, in the case's folder. BenchError when it fails."""
    path = case.place / "order.json"
    path.write_text(json.dumps(order, indent=1), "utf-8")
    return run_process(command(case.writer, path), environment(case.writer), case.place / "writer.log", timeout_s)


def prepare(case: Case) -> None:
    """Make the case's folder, empty except for a copy of the base table."""
    shutil.rmtree(case.place, ignore_errors=True)
    case.place.mkdir(parents=True)
    shutil.copytree(case.base, case.table)
    os.sync()  # so that the copy is not written out while the writer is measured


def order_of(case: Case) -> dict[str, Any]:
    """The order for the writer's program."""
    kinds = columns_of(case.folder)
    order: dict[str, Any] = {
        "table": str(case.table),
        "events": str(case.events),
        "work": str(case.place / "work"),
        "name": TABLE_NAME,
        "table_type": case.table_type,
        "options": {**codec_option(case.writer, case.codec), **writer_options(case), **case.conf},
        "batches": str(case.folder / "batches"),
    }
    if case.writer.name == DELTA_RS:
        return order | {"do": "stream", "rows": str(case.folder / "load.parquet")}
    if case.writer.name in FLINK_PEERS:
        files = sorted(map(str, (case.folder / "batches").glob("*.json")))
        return order | {"columns": list(kinds), "types": list(kinds.values()), "files": files, "create": False,
                        "format": case.workload.format}  # fmt: skip
    if case.writer.name == HUDI_SPARK:
        sql = {"long": "BIGINT"}
        schema = ", ".join(f"{name} {sql.get(kind, kind.upper())}" for name, kind in kinds.items())
        operation = "bulk_insert" if case.writer.index == "bulk_insert" else "upsert"
        more = {"do": "stream", "table_version": case.table_version, "schema": schema, "operation": operation}
        return order | more | {"bundle": str(home.bundle(HUDI))}
    return order | {"avro": str(case.folder / "event.avsc")}


def columns_of(folder: Path) -> dict[str, str]:
    """Avro type by column of a workload's events."""
    fields = json.loads((folder / "event.avsc").read_text("utf-8"))["fields"]
    return {f["name"]: f["type"] if isinstance(f["type"], str) else f["type"][1] for f in fields}


def writer_options(case: Case) -> dict[str, str]:
    """The index's options, and options that make the writer fast."""
    if case.writer.name == PAIMON:
        return _PAIMON_OPTIONS[case.writer.index]
    found = index_options(case.writer) | (_SERVICES if case.writer.services else _NO_SERVICES).get(case.writer.name, {})
    if case.writer.name == TAGSTREAM and case.workload.format != "json":
        found["tagstream.source.format"] = case.workload.format
    if case.writer.name == HUDI_SPARK and case.table_type == "MERGE_ON_READ" and not case.writer.bucketed:
        # By default Hudi writes new keys to small base files, and so rewrites nearly the whole table in every batch. With
        # this option new keys get new files, and only updates go to logs.
        found["hoodie.parquet.small.file.limit"] = "0"
    return found


def codec_option(writer: Writer, codec: str) -> dict[str, str]:
    """The writer's option for the codec of Parquet pages."""
    return {{"paimon": "file.compression", "delta": "compression"}.get(
        writer.table_format, "hoodie.parquet.compression.codec"): codec}  # fmt: skip


def index_options(writer: Writer) -> dict[str, str]:
    """The options that make the writer use its index."""
    if writer.name in (HUDI_FLINK, DELTA_RS):
        return {}
    if writer.index == "bulk_insert":
        return {"hoodie.bulkinsert.sort.mode": "NONE"}  # the fastest, and Hudi's default
    found = {"hoodie.index.type": writer.index}
    if writer.bucketed:
        found |= {"hoodie.bucket.index.num.buckets": str(BUCKETS), "hoodie.bucket.index.hash.field": "id"}
        found["hoodie.index.bucket.engine"] = "SIMPLE"
    if writer.index == "RECORD_INDEX":
        prefix = "hoodie.metadata.record.index."
        found |= {"hoodie.metadata.enable": "true", prefix + "enable": "true"}
        found |= {prefix + "min.filegroup.count": "4", prefix + "max.filegroup.count": "4"}
    return found | (METADATA_OPTIONS if writer.metadata else {})


def size_of(folder: Path) -> int:
    """Bytes of all files under a folder, except Hadoop's checksums."""
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file() and f.suffix != ".crc")
