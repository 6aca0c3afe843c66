"""A table of any shape, written on by the stream: update, move, insert and delete; and the rows it must have then."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tests.interop.shape_steps import Row, Shape, row
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev

KEY, PATH = "_hoodie_record_key", "_hoodie_partition_path"
_OWN = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name", "_hoodie_operation")


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, dict):
        return {name: plain(member) for name, member in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, Decimal):
        return str(value)
    return value.isoformat() if isinstance(value, date | datetime) else value


def by_key(found: pa.Table) -> dict[tuple[str, str], Row]:
    """Rows by partition path and record key, without what depends on who wrote a file; each place has one row."""
    kept = [name for name in found.column_names if name not in _OWN]
    rows = found.select(kept).to_pylist(maps_as_pydicts="strict")
    made = {(each[PATH], each[KEY]): each for each in rows}
    assert len(made) == len(rows), "a key twice in a partition"
    return made


def differences(wanted: dict[tuple[str, str], Row], found: pa.Table) -> dict[Any, Any]:
    """By key and column what was expected and what is there; empty where all is right."""
    rows = by_key(found)
    wrong: dict[Any, Any] = {}
    for place in rows.keys() | wanted.keys():
        one, other = wanted.get(place), rows.get(place)
        if one is None or other is None:
            wrong[place] = "is not expected" if one is None else "is missing"
        elif columns := {n: (one[n], other.get(n, "no such column")) for n in one if one[n] != other.get(n)}:
            wrong[place] = columns
    return wrong


@dataclass(frozen=True)
class Streamed:
    """The table's folder, the rows it must hold, and what the job reported: updates, moves, inserts, deletes, late."""

    table: Path
    wanted: dict[tuple[str, str], Row]
    report: tuple[int, int, int, int, int]


def stream_into(shape: Shape, table: Path, before: pa.Table, folder: Path, spark: SparkSession) -> Streamed:
    """One batch of the job on a new checkpoint; ``before``: what Hudi's snapshot query gave."""
    case = StreamCase(folder, spark, conf=dict(shape.stream), existing=table)
    rows = by_key(before)
    names = [name for name in before.column_names if not name.startswith("_hoodie_")]
    ids = sorted((each["id"], place) for place, each in rows.items())
    updated, moved, gone = (rows[ids[at][1]] for at in (0, -1, 2))
    changed = [updated | {"ts": 100, "name": "streamed", "raw": b"x"}]
    config = HoodieTable.open(str(table)).config
    fields = [name for name in config.partition_fields if name in names]
    nested = {name.split(".")[0] for name in (*config.partition_fields, *config.record_key_fields) if "." in name}
    elsewhere = [each for each in rows.values() if each[PATH] != moved[PATH]] if shape.moves and fields else []
    if elsewhere:
        changed.append(moved | {name: elsewhere[0][name] for name in (*fields, PATH)} | {"ts": 101, "raw": b"y"})
    new = {**row(99, 102, "new"), "raw": b"z", "tags": {"t": {"d": Decimal("1.25"), "on": None}, "u": None}}
    own = {name: new.get(name) for name in names if name not in {*fields, *nested}}
    changed.append(updated | own | {KEY: updated[KEY].replace(updated["id"], "k099")})
    events = [{name: plain(each[name]) for name in names} for each in changed]
    events.append(
        {name: plain(gone[name]) for name in names if name != "raw"}
        | {"ts": 103, "raw": "", "_hoodie_is_deleted": True}
    )
    case.source.mkdir(parents=True, exist_ok=True)
    ev.write_event_file(case.source, 0, "".join(json.dumps(each) + "\n" for each in events), modified=1_700_000_000)
    (report,) = case.run()
    del rows[gone[PATH], gone[KEY]]
    if elsewhere:
        del rows[moved[PATH], moved[KEY]]
    rows |= {(each[PATH], each[KEY]): each for each in changed}
    told = (report.updates, report.moves, report.inserts, report.deletes, report.late)
    return Streamed(table, rows, told)
