"""Partition paths of times: what Hudi's generator makes of the same values, and what is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.errors import ConfigError
from tagstream.table.keys.joda_pattern import parse_pattern, read_times
from tagstream.table.keys.time_partition import OLD_PREFIX, PREFIX, TimePartition

MOMENT = datetime(2026, 11, 23, 23, 5, 7, 89_000, UTC)
MS = int(MOMENT.timestamp() * 1000)
OUT = "output.dateformat"
IN = "input.dateformat"
TYPE = "timestamp.type"
UNIT = "timestamp.scalar.time.unit"


def rules(told: dict[str, str], prefix: str = PREFIX) -> TimePartition:
    return TimePartition.from_properties({prefix + name: value for name, value in told.items()})


def one(found: TimePartition, value: Any, kind: pa.DataType | None = None) -> str | None:
    values = pa.array([value, value], kind)
    found.check("ts", values.type)
    paths, reasons = found.paths(values)
    assert paths[0] == paths[1]
    assert paths[0].is_valid is not reasons[0].is_valid
    return paths[0].as_py()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("told", "value", "kind", "path"),
    [
        ({TYPE: "EPOCHMILLISECONDS"}, MS, pa.int64(), "2026/11/23"),
        ({TYPE: "UNIX_TIMESTAMP"}, MS // 1000, pa.int64(), "2026/11/23"),
        ({TYPE: "UNIX_TIMESTAMP"}, float(MS // 1000), pa.float64(), "2026/11/23"),
        ({TYPE: "UNIX_TIMESTAMP"}, Decimal(MS // 1000), pa.decimal128(20, 2), "2026/11/23"),
        ({TYPE: "EPOCHMICROSECONDS"}, MOMENT, pa.timestamp("us", "UTC"), "2026/11/23"),
        ({TYPE: "SCALAR", UNIT: "days"}, date(2026, 11, 23), pa.date32(), "2026/11/23"),
        ({TYPE: "SCALAR", UNIT: "HOURS"}, MS // 3_600_000, pa.int32(), "2026/11/23"),
        ({TYPE: "EPOCHMILLISECONDS", "output.timezone": "GMT+8:00"}, MS, pa.int64(), "2026/11/24"),
        ({TYPE: "EPOCHMILLISECONDS", "timezone": "Asia/Tokyo"}, MS, pa.int64(), "2026/11/24"),
        ({TYPE: "EPOCHMICROSECONDS"}, -1500, pa.int64(), "1969/12/31"),
        ({TYPE: "EPOCHMICROSECONDS"}, -500, pa.int64(), "1970/01/01"),  # Java cuts towards zero
        ({TYPE: "UNIX_TIMESTAMP"}, None, pa.int64(), "1970/01/01"),
    ],
)
def test_numbers(told: dict[str, str], value: Any, kind: pa.DataType, path: str) -> None:
    for prefix in (PREFIX, OLD_PREFIX):
        assert one(rules({OUT: "yyyy/MM/dd", **told}, prefix), value, kind) == path


@pytest.mark.parametrize(
    ("told", "text", "path"),
    [
        ({IN: "yyyy-MM-dd HH:mm:ss"}, "2026-11-23 23:05:07", "2026-11-23 23"),
        ({IN: "yyyy-MM-dd'T'HH:mm:ss.SSSZ"}, "2026-11-23T23:05:07.089+02:00", "2026-11-23 23"),
        (
            {IN: "yyyy-MM-dd'T'HH:mm:ss.SSSZ", "output.timezone": "UTC"},
            "2026-11-23T23:05:07.089+0200",
            "2026-11-23 21",
        ),
        ({IN: "yyyy-MM-dd'T'HH:mm:ssZ", "output.timezone": "GMT"}, "2026-11-23T23:05:07Z", "2026-11-23 23"),
        ({IN: "yyyy-MM-dd,yyyyMMdd"}, "20261123", "2026-11-23 00"),
        ({IN: "yyyy-MM-dd,yyyyMMdd"}, "2026-11-23", "2026-11-23 00"),
        ({IN: "yyyyMMddHHmmssSSS"}, "20261123230507089", "2026-11-23 23"),
        ({IN: "d.M.yyyy"}, "3.7.2026", "2026-07-03 00"),
        (
            {IN: "yyyy-MM-dd HH:mm:ss", "input.timezone": "Europe/Berlin", "output.timezone": "UTC"},
            "2026-11-23 00:05:07",
            "2026-11-22 23",
        ),
        ({IN: "yyyy-MM-dd HH:mm:ss", "input.timezone": "Europe/Berlin"}, "2026-11-23 00:05:07", "2026-11-23 00"),
        ({IN: "yyyy-MM-dd"}, None, "1970-01-01 00"),
        ({IN: "yyyy-MM-dd"}, "2024-02-29", "2024-02-29 00"),
    ],
)
def test_texts(told: dict[str, str], text: str | None, path: str) -> None:
    assert one(rules({TYPE: "DATE_STRING", OUT: "yyyy-MM-dd HH", **told}), text, pa.string()) == path


@pytest.mark.parametrize(
    "text", ["2026-02-29", "2026-13-01", "2026-00-01", "2026-01-32", "26-1", "x", "", "2026-01-01x"]
)
def test_a_text_that_is_no_time_has_a_reason(text: str) -> None:
    paths, reasons = rules({TYPE: "DATE_STRING", OUT: "yyyy", IN: "yyyy-MM-dd"}).paths(
        pa.array([text, "2026-01-01", text])
    )
    assert paths.to_pylist() == [None, "2026", None]
    assert "yyyy-MM-dd" in reasons[0].as_py()
    assert reasons[1].as_py() is None


@pytest.mark.parametrize(
    ("unit", "kind", "value"),
    [
        ("UNIX_TIMESTAMP", pa.int64(), 9_223_372_036_854_776),
        ("UNIX_TIMESTAMP", pa.int64(), 10**17),
        ("UNIX_TIMESTAMP", pa.int64(), 2**63 - 1),
        ("UNIX_TIMESTAMP", pa.int64(), -(2**63)),
        ("EPOCHMILLISECONDS", pa.uint64(), 2**63),
        ("EPOCHMILLISECONDS", pa.float64(), float("nan")),
        ("EPOCHMILLISECONDS", pa.float32(), float("inf")),
        ("EPOCHMICROSECONDS", pa.float64(), -1e30),
        ("EPOCHMICROSECONDS", pa.float64(), 2.0**63),
        ("EPOCHMICROSECONDS", pa.decimal128(38, 0), Decimal(2**63)),
        ("EPOCHMICROSECONDS", pa.decimal128(38, 8), Decimal(-(10**29))),
    ],
)
def test_a_number_that_is_no_time_has_a_reason(unit: str, kind: pa.DataType, value: Any) -> None:
    good: Any = Decimal(1) if pa.types.is_decimal(kind) else 1
    paths, reasons = rules({TYPE: unit, OUT: "yyyy"}).paths(pa.array([value, good, None], kind))
    assert paths.to_pylist() == [None, "1970", "1970"]
    assert "since 1970 that fits into milliseconds" in reasons[0].as_py()
    assert reasons.to_pylist()[1:] == [None, None]


FIRST_MS, LAST_MS = 1 - 2**63, 2**63 - 1


@pytest.mark.parametrize(
    ("ms", "pattern", "zone", "path"),
    [
        (LAST_MS, "yyyy-MM-dd", "UTC", "292278994-08-17"),
        (FIRST_MS, "yyyy-MM-dd", "UTC", "-292275055-05-16"),
        (FIRST_MS, "YYYY-MM-dd", "UTC", "292275056-05-16"),
        (1_704_067_200_000_000, "yyyy-MM-dd", "UTC", "55969-09-28"),  # seconds that were milliseconds
        (1_719_792_000_000_000, "yyyy-MM-dd HH", "America/New_York", "56468-01-14 19"),
        (-62_167_219_200_001, "yyyy-MM-dd", "UTC", "-0001-12-31"),
        (-62_167_219_200_000, "yyyy-MM-dd yy", "UTC", "0000-01-01 00"),
        (-62_135_596_800_001, "YYYY", "UTC", "0001"),
    ],
)
def test_years_that_arrow_does_not_have(ms: int, pattern: str, zone: str, path: str) -> None:
    assert one(rules({TYPE: "EPOCHMILLISECONDS", OUT: pattern, "output.timezone": zone}), ms, pa.int64()) == path


def test_a_text_of_a_far_year() -> None:
    told = {TYPE: "DATE_STRING", IN: "y-MM-dd HH", OUT: "yyyy-MM-dd HH"}
    assert one(rules(told), "123456-02-29 05", pa.string()) == "123456-02-29 05"
    zones = {"input.timezone": "Asia/Tokyo", "output.timezone": "UTC"}
    assert one(rules({**told, **zones}), "123456-03-01 05", pa.string()) == "123456-02-29 20"


@given(st.integers(-(2**62), 2**62))  # NumPy's own calendar fails at the very ends
def test_times_are_written_as_numpy_has_them(ms: int) -> None:
    written = parse_pattern("y M d H m s S").write(pa.array([ms], pa.timestamp("ms", "UTC")))
    at = np.int64(ms).astype("datetime64[ms]")
    day = at.astype("datetime64[D]")
    rest = int((at - day.astype("datetime64[ms]")).astype(np.int64))
    fields = (
        int(at.astype("datetime64[Y]").astype(np.int64)) + 1970,
        int(at.astype("datetime64[M]").astype(np.int64)) % 12 + 1,
        int((day - at.astype("datetime64[M]").astype("datetime64[D]")).astype(np.int64)) + 1,
        *(rest // 3_600_000, rest // 60_000 % 60, rest // 1000 % 60, f"{rest % 1000:03}"[0]),
    )
    assert written[0].as_py() == " ".join(map(str, fields))


def test_mixed_takes_texts_alone() -> None:
    found = rules({TYPE: "MIXED", OUT: "yyyy", IN: "yyyy-MM-dd"})
    found.check("ts", pa.string())
    with pytest.raises(ConfigError, match="MIXED does not take"):
        found.check("ts", pa.int64())


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({}, "timestamp.type"),
        ({TYPE: "EPOCHMILLISECONDS"}, "output.dateformat is missing"),
        ({TYPE: "SCALAR", UNIT: "weeks", OUT: "yyyy"}, "WEEKS is not one of"),
        ({TYPE: "DATE_STRING", OUT: "yyyy"}, "input.dateformat is missing"),
        ({TYPE: "EPOCHMILLISECONDS", OUT: "EEE"}, "'EEE', which is not supported"),
        ({TYPE: "EPOCHMILLISECONDS", OUT: "MMM"}, "'MMM', which is not supported"),
        ({TYPE: "EPOCHMILLISECONDS", OUT: "yyyy'x"}, "not closed"),
        ({TYPE: "EPOCHMILLISECONDS", OUT: "yyyy", "timezone": "Mars/X"}, "not a time zone"),
        ({TYPE: "DATE_STRING", OUT: "yyyy", IN: "yy-MM"}, "two digits"),
        ({TYPE: "DATE_STRING", OUT: "yyyy", IN: "yyyy yyyy"}, "twice"),
    ],
)
def test_what_cannot_be_used_is_named(told: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        rules(told)


def test_types_that_do_not_fit() -> None:
    found = rules({TYPE: "UNIX_TIMESTAMP", OUT: "yyyy"})
    with pytest.raises(ConfigError, match="is text"):
        found.check("ts", pa.string())
    with pytest.raises(ConfigError, match="does not take"):
        found.check("ts", pa.bool_())


def test_every_letter_is_written() -> None:
    times = pa.array([MOMENT], pa.timestamp("ms", "Asia/Kolkata"))
    written = parse_pattern("yyyy yy M MM d dd H HH mm ss SSS S SSSSS Z ZZ 'at' '' -").write(times)
    assert written.to_pylist() == ["2026 26 11 11 24 24 4 04 35 07 089 0 08900 +0530 +05:30 at ' -"]


@given(
    st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]),
)
def test_what_is_written_is_read_again(moment: datetime, zone: str) -> None:
    pattern = parse_pattern("yyyy-MM-dd'T'HH:mm:ss.SSSZ")
    at = moment.replace(microsecond=moment.microsecond // 1000 * 1000, tzinfo=UTC)
    offset = at.astimezone(ZoneInfo(zone)).utcoffset()
    if offset is None or offset.total_seconds() % 60:
        return  # local time from before there were zones: a pattern has no seconds of an offset
    found = read_times(pattern, pattern.write(pa.array([at], pa.timestamp("ms", zone))))
    assert found.good.all()
    assert int(found.wall_ms[0] - found.offset_ms[0]) == round(at.timestamp() * 1000)
