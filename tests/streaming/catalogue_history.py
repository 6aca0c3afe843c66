"""A stream whose table changes in every way that its catalogue entry has to follow, and what the entry then must be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tagstream.catalog.catalog import Catalog
from tagstream.catalog.entry import TableEntry
from tagstream.cli.main import main
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.hive_metastore import MetastoreServer
from tests.support.hudi_rs import read_table

HIVE = "hoodie.datasource.hive_sync."
DATABASE = "streams"


@dataclass
class History:
    """``live``: the partition of each living key. ``dropped``: partitions that a command deleted."""

    case: StreamCase
    live: dict[str, str] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)


def event(key: int, part: str, ts: int, **more: Any) -> dict[str, Any]:
    return {"id": f"k{key}", "part": part, "ts": ts, "name": f"n{ts}", "amount": 1.5, **more}


def put(case: StreamCase, number: int, *events: dict[str, Any]) -> None:
    case.source.mkdir(parents=True, exist_ok=True)
    (case.source / f"{number:03}.json").write_text("".join(json.dumps(each) + "\n" for each in events))


def partitions(catalog: Catalog, database: str) -> set[str]:
    entry = catalog.table(database, "events")
    return set() if entry is None else {"/".join(values) for values in catalog.partitions(entry)}


def cursor_of(entry: TableEntry) -> str:
    assert entry.cursor is not None
    return entry.cursor.time


def newest(case: StreamCase) -> str:
    return HoodieTable.open(str(case.table)).timeline().completed_writes[-1].time


def thirty_commits(folder: Path, spark: SparkSession, server: MetastoreServer, table_type: str) -> Iterator[History]:
    """The stream after every tenth commit.

    New, emptied and dropped partitions, an added and a widened column; the metastore is killed and started again, also
    between commits of one run.
    """
    conf = {
        f"{HIVE}database": DATABASE, f"{HIVE}metastore.uris": server.uri, f"{HIVE}recreate_table_on_error": "true",
        f"{HIVE}ignore_exceptions": "true",
    }  # fmt: skip
    schema: dict[str, Any] = json.loads(json.dumps(ev.AVRO_SCHEMA))
    schema["fields"].append({"name": "qty", "type": ["null", "int"], "default": None})
    case = StreamCase(folder, spark, table_type, conf, schema)
    history = History(case)
    live = history.live
    server.start()
    try:
        for number in range(30):
            emptied = number % 7 == 6 and f"k{number - 1}" in live
            more = []
            if emptied:
                more = [event(number - 1, live.pop(f"k{number - 1}"), 1000 + number, _hoodie_is_deleted=True)]
            live[f"k{number}"] = f"p{number // 2}"
            put(case, number, event(number, f"p{number // 2}", number, qty=number), *more)
            if number == 12:
                next(f for f in schema["fields"] if f["name"] == "qty")["type"] = ["null", "long"]
                schema["fields"].append({"name": "extra", "type": ["null", "string"], "default": None})
            if number % 10 == 4:
                server.kill()
            if number % 10 == 7:
                server.start()
            if number % 5 == 4 or number == 29:
                case.run("--enable-sync")
            if number == 14:
                drop(history, "p2")
            if number % 10 == 9:
                yield history
    finally:
        server.kill()


def drop(history: History, partition: str) -> None:
    """Delete a partition by the command, which knows of no catalogue."""
    table = str(history.case.table)
    assert main(["table", "delete-partition", "--target-base-path", table, "--partition", partition, "--yes"]) == 0
    history.dropped.add(partition)
    for key in [key for key, path in history.live.items() if path == partition]:
        del history.live[key]


def check(history: History, server: MetastoreServer) -> None:
    """The entry is that of the table's newest commit; hudi-rs reads the living rows."""
    case, live = history.case, history.live
    catalog = server.client()
    entry = catalog.table(DATABASE, "events")
    assert entry is not None
    assert cursor_of(entry) == newest(case)
    there = {path.name for path in case.table.iterdir() if path.is_dir() and path.name != ".hoodie"}
    assert partitions(catalog, DATABASE) == there - history.dropped
    schema = json.loads(HoodieTable.open(str(case.table)).schema_json() or "{}")
    names = [f["name"] for f in schema["fields"] if f["name"] != "part"]
    assert [c.name for c in entry.columns][5:] == names
    assert {row["id"]: row["part"] for row in read_table(case.table).to_pylist()} == live
    catalog.close()
