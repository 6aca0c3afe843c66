"""The expected content of the flights table, computed from the CSV alone and not from the events."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from bench.flights.data import KEY_FIELDS, read_flights

DAY_MINUTES = 24 * 60


@dataclass(frozen=True)
class Answer:
    """The expected table, and the number of moves and other operations."""

    scheduled: int
    deletes: int
    moves: int
    moves_out: int  # the moves into the month after the last one
    rows: pa.Table  # one per live flight, with the columns to compare


def answer(months: int) -> Answer:
    """Live flights of the first `months` months: those with a departure time, in the partition of their departure."""
    csv = read_flights(months)
    cancelled = pc.is_null(csv["dep_time"])
    flown = csv.filter(pc.invert(cancelled))
    scheduled = _date(flown)
    clock = flown["sched_dep_time"]  # 1345 is 13:45
    sched_minutes = pc.subtract(clock, pc.multiply(pc.divide(clock, 100), 40))
    days_later = pc.floor(pc.divide(pc.add(sched_minutes, flown["dep_delay"]).cast(pa.float64()), float(DAY_MINUTES)))
    actual = pc.add(scheduled.cast(pa.int32()), days_later.cast(pa.int32())).cast(pa.date32())
    moved = pc.not_equal(actual, scheduled)
    rows = pa.table(
        {
            "carrier": flown["carrier"],
            "flight": flown["flight"].cast(pa.int32()),
            "sched_date": scheduled.cast(pa.string()),
            "origin": flown["origin"],
            "dest": flown["dest"],
            "tailnum": flown["tailnum"],
            "distance": flown["distance"].cast(pa.int32()),
            "flight_date": actual.cast(pa.string()),
            "status": pc.if_else(pc.is_valid(flown["arr_time"]), "arrived", "departed"),
            "dep_delay": flown["dep_delay"].cast(pa.int32()),
            "arr_delay": _if_arrived(flown, "arr_delay"),
            "air_time": _if_arrived(flown, "air_time"),
        }
    )
    keys = rows.group_by(list(KEY_FIELDS)).aggregate([])
    if keys.num_rows != rows.num_rows:
        raise ValueError(f"the CSV has {rows.num_rows - keys.num_rows} flights whose record key is not unique")
    return Answer(
        scheduled=csv.num_rows,
        deletes=pc.sum(cancelled).as_py(),
        moves=pc.sum(moved).as_py() or 0,
        moves_out=pc.sum(pc.and_(moved, pc.not_equal(pc.month(actual), pc.month(scheduled)))).as_py() or 0,
        rows=rows,
    )


def partitions(rows: pa.Table) -> dict[str, int]:
    """Rows per flight_date."""
    counts = rows.group_by("flight_date").aggregate([([], "count_all")]).sort_by("flight_date")
    return dict(zip(counts["flight_date"].to_pylist(), counts["count_all"].to_pylist(), strict=True))


def moves(rows: pa.Table) -> int:
    """Number of rows that are not in the partition of their scheduled date."""
    return pc.sum(pc.not_equal(rows["flight_date"], rows["sched_date"])).as_py() or 0


def _date(flights: pa.Table) -> pa.ChunkedArray:
    """Scheduled date from year, month and day."""
    month, day = (pc.utf8_lpad(flights[name].cast(pa.string()), 2, "0") for name in ("month", "day"))
    text = pc.binary_join_element_wise(flights["year"].cast(pa.string()), month, day, "-")
    return pc.strptime(text, "%Y-%m-%d", "s").cast(pa.date32())


def _if_arrived(flights: pa.Table, column: str) -> pa.ChunkedArray:
    return pc.if_else(pc.is_valid(flights["arr_time"]), flights[column].cast(pa.int32()), pa.scalar(None, pa.int32()))
