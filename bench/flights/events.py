"""Flights as a change stream: scheduled, departed, arrived or cancelled, in the order in which it happened.

A scheduled flight is in the partition of its scheduled date. When it departs, it is in that of the actual date, so a flight
that is delayed past midnight moves. A cancelled flight is a delete.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from bench.flights.data import KEY_FIELDS, read_flights

EVENTS_PER_FILE = 20_000
MINUTE_MS = 60_000
# A flight is announced a month ahead, so that its later events are in other batches and change a row that is in the table.
# (The earliest departure was 43 minutes before its scheduled time.)
KNOWN_BEFORE_MS = 30 * 24 * 60 * MINUTE_MS
COLUMNS = (
    *KEY_FIELDS,
    "dest",
    "tailnum",
    "distance",
    "flight_date",
    "status",
    "sched_dep",
    "dep",
    "dep_delay",
    "arr_delay",
    "air_time",
    "event_ts",
    "_hoodie_is_deleted",
)


@dataclass(frozen=True)
class Written:
    """Event files of a stream."""

    events: int
    files: tuple[Path, ...]
    bytes: int


def change_stream(flights: pa.Table) -> pd.DataFrame:
    """All events by event_ts (epoch ms): per flight scheduled < departed < arrived, or scheduled < cancelled.

    Columns as in conf/flights.avsc; timestamps in microseconds, as in the schema.
    """
    csv = flights.to_pandas()
    day = pd.to_datetime(csv[["year", "month", "day"]])
    # A cancelled flight has no delay. Nulls are filled first: with a NaN among minutes pandas rounds uninitialised memory,
    # which sometimes overflows.
    minute = csv.hour * 60 + csv.minute + csv.dep_delay.fillna(0)
    departure = day + pd.to_timedelta(minute.astype("int64"), unit="min")
    hour = pd.to_datetime(csv.time_hour, utc=True).dt.tz_localize(None)
    sched_ms = hour.astype("datetime64[ms]").astype("int64") + csv.minute * MINUTE_MS
    flew = csv.dep_time.notna()
    dep_ms = (sched_ms + csv.dep_delay.fillna(0).astype("int64") * MINUTE_MS).where(flew).astype("Int64")
    # Arrival times are local to the destination. To order events the time in the air, or an estimate of it, is sufficient.
    minutes = csv.air_time.fillna(30 + csv.distance / 7.5).astype("int64")
    base = pd.DataFrame(
        {
            "carrier": csv.carrier,
            "flight": csv.flight,
            "sched_date": day.dt.strftime("%Y-%m-%d"),
            "origin": csv.origin,
            "dest": csv.dest,
            "tailnum": csv.tailnum,
            "distance": csv.distance,
            "flight_date": day.dt.strftime("%Y-%m-%d"),
            "status": "scheduled",
            "sched_dep": sched_ms * 1000,
            "dep": pd.array([pd.NA] * len(csv), "Int64"),
            "dep_delay": pd.array([pd.NA] * len(csv), "Int64"),
            "arr_delay": pd.array([pd.NA] * len(csv), "Int64"),
            "air_time": pd.array([pd.NA] * len(csv), "Int64"),
            "event_ts": sched_ms - KNOWN_BEFORE_MS,
            "_hoodie_is_deleted": False,
        }
    )
    departed = base.assign(
        flight_date=departure.dt.strftime("%Y-%m-%d"),
        status="departed",
        dep=dep_ms * 1000,
        dep_delay=csv.dep_delay.astype("Int64"),
        event_ts=dep_ms,
    )[flew]
    landed = csv.arr_time.notna()
    arrived = departed.assign(
        status="arrived",
        arr_delay=csv.arr_delay.astype("Int64"),
        air_time=csv.air_time.astype("Int64"),
        event_ts=dep_ms + minutes * MINUTE_MS,
    )[landed[flew]]
    cancelled = base.assign(status="cancelled", event_ts=sched_ms, _hoodie_is_deleted=True)[~flew]
    stream = pd.concat([base, departed, arrived, cancelled], ignore_index=True)
    stream = stream.astype({"event_ts": "int64"}).sort_values("event_ts", kind="stable", ignore_index=True)
    chosen: pd.DataFrame = stream.loc[:, list(COLUMNS)]
    return chosen


def write_events(folder: Path, months: int, per_file: int = EVENTS_PER_FILE) -> Written:
    """The first `months` months as JSON files; a file's modification time is the time of its last event."""
    stream = change_stream(read_flights(months))
    folder.mkdir(parents=True)
    files = tuple(_files(stream, folder, per_file))
    return Written(len(stream), files, sum(file.stat().st_size for file in files))


def _files(stream: pd.DataFrame, folder: Path, per_file: int) -> Iterator[Path]:
    for number, start in enumerate(range(0, len(stream), per_file)):
        part = stream.iloc[start : start + per_file]
        path = folder / f"flights-{number:04d}.json"
        part.to_json(path, orient="records", lines=True)
        # The time of the events, plus the number of the file, so that no two files have the same time.
        modified = int(np.int64(part.event_ts.iloc[-1])) * 1_000_000 + number
        os.utime(path, ns=(modified, modified))
        yield path
