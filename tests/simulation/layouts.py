"""Where rows lie: partition fields, their values and paths, and the key generators that make the second of the first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

PARTITION_COLUMNS = ("part", "zone", "day")
_TEXT = ["null", "string"]
_LONG = ["null", "long"]
_DAY_MS = 86_400_000


@dataclass(frozen=True)
class Layout:
    """``types``: Avro types of the partition fields; ``fields``: their values for the number of a partition, as JSON has
    them; ``path``: its partition path. ``properties``: of the job."""

    types: dict[str, Any]
    fields: Callable[[int], dict[str, Any]]
    path: Callable[[int], str]
    properties: dict[str, str]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the fields."""
        return tuple(self.types)


_ODD = ("a/b", "x=y", "100%", "p q", "é:ü")
_ODD_PATHS = ("a%2Fb", "x%3Dy", "100%25", "p q", "é%3Aü")


def _day(n: int) -> str:
    return (datetime(2024, 2, 27, tzinfo=UTC) + timedelta(days=n)).strftime("%Y-%m-%d")


_FIRST_DAY_MS = int(datetime(2024, 2, 27, tzinfo=UTC).timestamp() * 1000)
_PART = "hoodie.datasource.write.partitionpath.field"
_TIMES = {
    "hoodie.datasource.write.keygenerator.type": "TIMESTAMP",
    "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
    "hoodie.keygen.timebased.output.dateformat": "yyyy-MM-dd",
}
LAYOUTS = {
    "text": Layout({"part": _TEXT}, lambda n: {"part": f"p{n}"}, lambda n: f"p{n}", {_PART: "part"}),
    "hive": Layout(
        {"part": _TEXT}, lambda n: {"part": f"p{n}"}, lambda n: f"part=p{n}",
        {_PART: "part", "hoodie.datasource.write.hive_style_partitioning": "true"},
    ),
    "encoded": Layout(
        {"part": _TEXT}, lambda n: {"part": _ODD[n]}, lambda n: _ODD_PATHS[n],
        {_PART: "part", "hoodie.datasource.write.partitionpath.urlencode": "true"},
    ),
    "levels": Layout({"part": _TEXT}, lambda n: {"part": f"y{n % 2}/m{n}"}, lambda n: f"y{n % 2}/m{n}", {_PART: "part"}),
    "number": Layout({"part": _LONG}, lambda n: {"part": n * 7 - 7}, lambda n: str(n * 7 - 7), {_PART: "part"}),
    "days": Layout({"part": _LONG}, lambda n: {"part": _FIRST_DAY_MS + n * _DAY_MS + 1}, _day, {_PART: "part", **_TIMES}),
    "two": Layout(
        {"part": _TEXT, "zone": _LONG}, lambda n: {"part": f"p{n // 2}", "zone": n % 2},
        lambda n: f"part=p{n // 2}/zone={n % 2}",
        {_PART: "part,zone", "hoodie.datasource.write.hive_style_partitioning": "true"},
    ),
    "custom": Layout(
        {"part": _TEXT, "day": _LONG}, lambda n: {"part": f"p{n % 2}", "day": _FIRST_DAY_MS + n * _DAY_MS},
        lambda n: f"p{n % 2}/{_day(n)}",
        {_PART: "part:SIMPLE,day:TIMESTAMP", **_TIMES, "hoodie.datasource.write.keygenerator.type": "CUSTOM"},
    ),
    "none": Layout({"part": _TEXT}, lambda n: {"part": f"p{n}"}, lambda _: "", {_PART: ""}),
}  # fmt: skip
