"""Wall clocks of zones after 2037, against zoneinfo and in pieces of all lengths."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.keys.joda_pattern import to_utc
from tagstream.table.keys.time_partition import PREFIX, TimePartition

ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Africa/Casablanca", "Asia/Tokyo"]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def ms_of(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def paths(zone: str, ms: list[int]) -> list[str]:
    told = {"timestamp.type": "EPOCHMILLISECONDS", "output.dateformat": "yyyy-MM-dd HH:mm", "timezone": zone}
    rules = TimePartition.from_properties({PREFIX + name: value for name, value in told.items()})
    found, reasons = rules.paths(pa.array(ms, pa.int64()))
    assert reasons is None or reasons.null_count == len(ms)
    return found.to_pylist()


@pytest.mark.extended("more variants of one rule", first=("Berlin", "Lord_Howe"))
@pytest.mark.parametrize("zone", ZONES)
@given(st.lists(st.datetimes(datetime(1975, 1, 1), datetime(2399, 12, 31)), min_size=1, max_size=20))
def test_paths_are_those_of_zoneinfo(zone: str, moments: list[datetime]) -> None:
    told = [moment.replace(tzinfo=UTC, microsecond=0) for moment in moments]
    wanted = [f"{moment.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M}" for moment in told]
    assert paths(zone, [ms_of(moment) for moment in told]) == wanted


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("year", [2024, 2036, 2037, 2038, 2040, 2099, 2200])
def test_every_hour_of_a_year(zone: str, year: int) -> None:
    begin = datetime(year, 1, 1, tzinfo=UTC)
    told = [begin + timedelta(minutes=30 * n) for n in range(0, 48 * 365, 1 if year == 2040 else 7)]
    wanted = [f"{moment.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M}" for moment in told]
    assert paths(zone, [ms_of(moment) for moment in told]) == wanted


@pytest.mark.extended("more variants of one rule", first=("2040-Asia", "Berlin"))
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("year", [2030, 2040])
def test_walls_and_back(zone: str, year: int) -> None:
    """Before 2037 by Arrow, later by zoneinfo: the same rules for hours that are there twice, or not at all."""
    known = ZoneInfo(zone)
    walls = [datetime(year, 1, 1) + timedelta(minutes=15 * n) for n in range(96 * 365)]
    ms = np.array([ms_of(wall.replace(tzinfo=UTC)) for wall in walls], np.int64)
    found = [EPOCH + timedelta(milliseconds=one) for one in to_utc(ms, zone).tolist()]
    for wall, utc in zip(walls, found, strict=True):
        local = utc.astimezone(known)
        if local.replace(tzinfo=None) == wall:
            assert local.fold == 0
        else:  # left out: the clock is at the end of what it leaves out
            assert local.replace(tzinfo=None) > wall
            before = (utc - timedelta(seconds=1)).astimezone(known).replace(tzinfo=None)
            assert before < wall
