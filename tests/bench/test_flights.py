"""The flights demo's events and oracle, each against known figures and against the other."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import fastavro
import pandas as pd
import pyarrow as pa
import pytest

from bench.flights.data import KEY_FIELDS, read_flights
from bench.flights.events import COLUMNS, change_stream, write_events
from bench.flights.job import PROJECT
from bench.flights.oracle import answer, moves, partitions
from bench.flights.run import parse, report
from tests.support.compare import compare


@pytest.fixture(scope="module")
def january() -> pd.DataFrame:
    return change_stream(read_flights(1))


@pytest.mark.parametrize(
    ("months", "scheduled", "deletes", "live", "moved"),
    [(1, 27_004, 521, 26_483, 52), (12, 336_776, 8_255, 328_521, 1_236)],
)
def test_the_oracle_has_the_known_figures(months: int, scheduled: int, deletes: int, live: int, moved: int) -> None:
    known = answer(months)
    assert (known.scheduled, known.deletes, known.rows.num_rows, known.moves) == (scheduled, deletes, live, moved)
    assert moves(known.rows) == moved
    assert sum(partitions(known.rows).values()) == live


def test_eight_flights_of_january_left_in_february() -> None:
    january = answer(1)
    assert january.moves_out == 8
    assert partitions(january.rows)["2013-02-01"] == 8


def test_events_replayed_by_hand_give_the_oracle(january: pd.DataFrame) -> None:
    last = january.groupby(list(KEY_FIELDS), sort=False).tail(1)
    live = last[~last._hoodie_is_deleted]
    expected = answer(1).rows
    assert not compare(expected, pa.Table.from_pandas(live, preserve_index=False), KEY_FIELDS)


def test_ordering_rises_strictly_per_key(january: pd.DataFrame) -> None:
    assert january.event_ts.is_monotonic_increasing
    steps = january.groupby(list(KEY_FIELDS), sort=False).event_ts.diff().dropna()
    assert (steps > 0).all()
    kinds = january.groupby(list(KEY_FIELDS), sort=False).status.agg(tuple).value_counts().to_dict()
    assert set(kinds) == {
        ("scheduled", "departed", "arrived"),
        ("scheduled", "departed"),
        ("scheduled", "cancelled"),
    }
    assert kinds["scheduled", "cancelled"] == 521


def test_every_event_fits_the_schema(tmp_path: Path) -> None:
    schema = fastavro.schema.load_schema(PROJECT / "conf" / "flights.avsc")
    assert tuple(field["name"] for field in schema["fields"]) == COLUMNS
    plain = json.loads((PROJECT / "conf" / "flights.avsc").read_text())
    for field in plain["fields"]:  # logical types as the numbers they are in JSON
        field["type"] = json.loads(json.dumps(field["type"]).replace("logicalType", "was"))
    parsed = fastavro.parse_schema(plain)
    written = write_events(tmp_path / "events", 1)
    assert len(written.files) == 5
    times = [path.stat().st_mtime_ns for path in written.files]
    assert all(a < b for a, b in pairwise(times))
    assert list(written.files) == sorted(written.files)
    lines = [line for path in written.files for line in path.read_text().splitlines()]
    assert len(lines) == written.events == 80_476
    assert all(fastavro.validate(json.loads(line), parsed, raise_errors=False) for line in lines[::50])


def test_the_report_tells_a_right_table_from_a_wrong_one() -> None:
    expected = answer(1)
    assert report(expected, expected.rows, compare(expected.rows, expected.rows, KEY_FIELDS))[1]
    short = expected.rows.slice(1)
    table, good = report(expected, short, compare(expected.rows, short, KEY_FIELDS))
    assert not good
    assert "differs" in str(list(table.columns[3].cells))
    late = expected.rows.set_column(7, "flight_date", expected.rows["sched_date"])
    assert not report(expected, late, compare(expected.rows, late, KEY_FIELDS))[1]


def test_what_follows_two_dashes_is_the_jobs() -> None:
    options, more = parse(["--months", "2", "--", "--source-limit", "5"])
    assert (options.months, options.kafka, more) == (2, False, ["--source-limit", "5"])
    assert parse(["--kafka"])[1] == []
