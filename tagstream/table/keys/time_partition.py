"""Partition paths made of the time in a field, as Hudi's TimestampBasedKeyGenerator makes them.

Source: TimestampBasedAvroKeyGenerator and HoodieDateTimeParser of Hudi 0.15 to 1.2. Without an output time zone Hudi
uses the zone of its process for numbers; this writer uses UTC. A number that is not a time (NaN, or one that does not
fit into milliseconds of 64 bits) has no path here; Hudi maps it to 1970 or to the year 292278994.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.chunks import flat
from tagstream.table.errors import ConfigError
from tagstream.table.keys.joda_pattern import Pattern, by_offset, parse_pattern, read_times, to_utc

PREFIX: Final = "hoodie.keygen.timebased."
OLD_PREFIX: Final = "hoodie.deltastreamer.keygen.timebased."
NAMES: Final = (
    "timestamp.type", "timestamp.scalar.time.unit", "input.dateformat", "input.dateformat.list.delimiter.regex",
    "input.timezone", "output.dateformat", "output.timezone", "timezone",
)  # fmt: skip
# Milliseconds of a unit, as a fraction. As in Java's TimeUnit, division rounds towards zero.
_UNITS: Final[Mapping[str, tuple[int, int]]] = {
    "NANOSECONDS": (1, 1_000_000), "MICROSECONDS": (1, 1000), "MILLISECONDS": (1, 1), "SECONDS": (1000, 1),
    "MINUTES": (60_000, 1), "HOURS": (3_600_000, 1), "DAYS": (86_400_000, 1),
}  # fmt: skip
_UNIT_OF_TYPE: Final = {
    "UNIX_TIMESTAMP": "SECONDS", "EPOCHMILLISECONDS": "MILLISECONDS", "EPOCHMICROSECONDS": "MICROSECONDS"
}  # fmt: skip
_TEXTS: Final = ("DATE_STRING", "MIXED")
_GMT: Final = re.compile(r"(?:GMT|UTC)?([+-])(\d{1,2})(?::?(\d{2}))?")
_GREATEST: Final = 2**63 - 1
_LONG_DIGITS: Final = 18  # any number of this many digits fits into a long
_DIGITS: Final = rf"^-?\d{{1,{_LONG_DIGITS}}}$"
_NULL_MS: Final = 1  # for a null Hudi uses 1 of the unit, or the text of 1 ms


@dataclass(frozen=True)
class TimePartition:
    """The rules of ``hoodie.keygen.timebased.*``; make one with :meth:`from_properties`.

    ``unit``: unit of numbers, None where the values are only texts. ``inputs``: patterns of texts; the first that
    matches applies. ``input_zone``, ``output_zone``: time zones of texts and of paths.
    """

    kind: str
    unit: str | None
    inputs: tuple[Pattern, ...]
    input_zone: str | None
    output: Pattern
    output_zone: str | None

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> TimePartition:
        """The rules from their keys, current or of the 0.x line. ConfigError names the key that is wrong or missing."""
        given = {name: properties.get(PREFIX + name, properties.get(OLD_PREFIX + name)) for name in NAMES}
        kind = (given["timestamp.type"] or "").strip().upper()
        if kind not in (*_UNIT_OF_TYPE, *_TEXTS, "SCALAR"):
            said = f"={kind} is not one of" if kind else " is missing; set it to one of"
            raise ConfigError(f"{PREFIX}timestamp.type{said} {', '.join((*_UNIT_OF_TYPE, 'SCALAR', *_TEXTS))}")
        if not given["output.dateformat"]:
            raise ConfigError(f"{PREFIX}output.dateformat is missing; set it to the pattern of partition paths")
        unit = _UNIT_OF_TYPE.get(kind)
        if kind == "SCALAR":
            unit = (given["timestamp.scalar.time.unit"] or "SECONDS").strip().upper()
            if unit not in _UNITS:
                raise ConfigError(f"{PREFIX}timestamp.scalar.time.unit={unit} is not one of {', '.join(_UNITS)}")
        inputs: tuple[Pattern, ...] = ()
        if kind in _TEXTS:
            if not given["input.dateformat"]:
                raise ConfigError(f"{PREFIX}input.dateformat is missing; set it to the pattern of the texts of {kind}")
            between = given["input.dateformat.list.delimiter.regex"] or ","
            inputs = tuple(
                parse_pattern(text.strip()) for text in re.split(between, given["input.dateformat"]) if text.strip()
            )
            for pattern in inputs:
                pattern.expression()
        both = given["timezone"]
        return cls(
            kind,
            unit,
            inputs,
            _zone(f"{PREFIX}input.timezone", both if both is not None else given["input.timezone"]),
            parse_pattern(given["output.dateformat"].strip()),
            _zone(f"{PREFIX}output.timezone", both if both is not None else given["output.timezone"]),
        )

    @property
    def depth(self) -> int:
        """Number of folders in a partition path."""
        return self.output.folders

    def check(self, name: str, kind: pa.DataType, *, digits: bool = False) -> None:
        """Raise ConfigError when a field's type does not fit the rules: text or numbers.

        ``digits``: a text of digits may be a number, as in a table whose field Hudi's SQL has changed to text.
        """
        is_text = _is_text(kind)
        if is_text and not self.inputs and not digits:
            raise ConfigError(
                f"partition field {name!r} is text, and {PREFIX}timestamp.type={self.kind} takes numbers: use DATE_STRING "
                "for texts"
            )
        is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        is_time = pa.types.is_timestamp(kind) or pa.types.is_date32(kind)
        if not is_text and (not (is_number or is_time) or self.unit is None):
            raise ConfigError(
                f"partition field {name!r} is {kind}, which {PREFIX}timestamp.type={self.kind} does not take"
            )

    def paths(self, values: pa.Array) -> tuple[pa.Array, pa.Array]:
        """(the partition path of each value, the reason why it has none); one of the two is null."""
        if _is_text(values.type) and self.inputs:
            return self._of_texts(values.cast(pa.string()))
        if _is_text(values.type):
            return self._of_digits(values.cast(pa.string()))
        assert self.unit is not None  # ``check`` ensures it
        numerator, denominator = _UNITS[self.unit]
        numbers, good = _numbers(values)
        if denominator > 1:
            ms = numbers // denominator
            ms += (numbers < 0) & (numbers % denominator != 0)
        else:
            good &= (numbers >= -(_GREATEST // numerator)) & (numbers <= _GREATEST // numerator)
            ms = np.where(good, numbers, _NULL_MS) * numerator
        paths = self._written(ms)
        if good.all():
            return paths, pa.nulls(len(values), pa.string())
        none = pa.scalar(None, pa.string())
        text = f" is not a number of {self.unit.lower()} since 1970 that fits into milliseconds of 64 bits"
        reason = pc.binary_join_element_wise("the partition field's value ", values.cast(pa.string()), text, "")
        return pc.if_else(pa.array(good), paths, none), pc.if_else(pa.array(good), none, reason)

    def _of_digits(self, texts: pa.Array) -> tuple[pa.Array, pa.Array]:
        """As :meth:`paths`, for texts that are whole numbers in the unit."""
        is_number = pc.match_substring_regex(texts, _DIGITS)
        good = pc.fill_null(is_number, True)
        none = pa.scalar(None, pa.string())
        paths, reason = self.paths(pc.if_else(good, texts, none).cast(pa.int64()))
        wrong = pc.binary_join_element_wise(
            "the partition field's text ",
            pc.utf8_slice_codeunits(pc.fill_null(texts, ""), 0, 40),
            " is not a whole number",
            "",
        )
        return pc.if_else(good, paths, none), pc.if_else(good, reason, wrong)

    def _of_texts(self, texts: pa.Array) -> tuple[pa.Array, pa.Array]:
        missing = texts.is_null().to_numpy(zero_copy_only=False)
        filled = pc.fill_null(texts, "")
        count = len(texts)
        wall, offset = np.zeros(count, np.int64), np.zeros(count, np.int64)
        has_offset, good = np.zeros(count, np.bool_), missing.copy()
        wall[missing] = _NULL_MS
        for pattern in self.inputs:
            todo = np.flatnonzero(~good)
            if not len(todo):
                break
            found = read_times(pattern, filled.take(pa.array(todo)))
            at = todo[found.good]
            wall[at], offset[at] = found.wall_ms[found.good], found.offset_ms[found.good]
            has_offset[at], good[at] = pattern.has_offset, True
        reason = pc.if_else(
            pa.array(good),
            pa.scalar(None, pa.string()),
            pc.binary_join_element_wise(
                "the partition field's text ",
                pc.utf8_slice_codeunits(filled, 0, 40),
                f" is not a time of the pattern {', '.join(p.text for p in self.inputs)}",
                "",
            ),
        )
        if self.output_zone is None:  # the local time, without conversion
            paths = self.output.write(pa.array(wall, pa.timestamp("ms", "UTC")))
        else:
            local = to_utc(wall, self.input_zone)
            paths = self._written(np.where(has_offset, wall - offset, np.where(missing, wall, local)))
        return pc.if_else(pa.array(good), paths, pa.scalar(None, pa.string())), reason

    def _written(self, ms: npt.NDArray[np.int64]) -> pa.Array:
        parts = by_offset(ms, self.output_zone or "UTC")
        written = [self.output.write(pa.array(ms[at], pa.timestamp("ms", zone))) for at, zone in parts]
        if len(parts) == 1:
            return written[0]
        place = np.empty(len(ms), np.int64)
        place[np.concatenate([at for at, _ in parts])] = np.arange(len(ms))
        return pa.concat_arrays([flat(part) for part in written]).take(pa.array(place))

    @cached_property
    def properties(self) -> dict[str, str]:
        """The table properties with these rules, for other writers."""
        found = {"timestamp.type": self.kind, "output.dateformat": self.output.text}
        if self.kind == "SCALAR" and self.unit is not None:
            found["timestamp.scalar.time.unit"] = self.unit
        if self.inputs:
            found["input.dateformat"] = ",".join(pattern.text for pattern in self.inputs)
        if self.input_zone is not None:
            found["input.timezone"] = self.input_zone
        if self.output_zone is not None:
            found["output.timezone"] = self.output_zone
        return {PREFIX + name: value for name, value in found.items()}


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _numbers(values: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """(whole numbers, whether each is the value).

    A date is its day since 1970, a timestamp its number in Avro. Fractions are cut off, and a null is 1. For a number
    that is too large, Java takes the nearest long, and 0 for NaN; here it is not the value.
    """
    kind, t = values.type, pa.types
    fits = pa.array(np.ones(len(values), np.bool_))
    if t.is_date32(kind):
        values = values.cast(pa.int32())
    elif t.is_floating(kind):
        values = pc.trunc(values.cast(pa.float64()))
        fits = pc.and_(pc.is_finite(values), pc.less(pc.abs(values), 2.0**63))
    elif t.is_decimal(kind):
        whole = max(1, kind.precision - kind.scale)
        values = pc.trunc(values).cast(pa.decimal128(max(whole, _LONG_DIGITS + 1), 0))
        if whole > _LONG_DIGITS:
            fits = pc.less_equal(pc.abs(values), pa.scalar(Decimal(_GREATEST), values.type))
    elif t.is_uint64(kind):
        fits = pc.less_equal(values, pa.scalar(_GREATEST, kind))
    fits = fits.fill_null(True)
    numbers = pc.if_else(fits, values, pa.scalar(None, values.type)).cast(pa.int64()).fill_null(_NULL_MS)
    return (
        numbers.to_numpy(zero_copy_only=False).astype(np.int64),
        fits.to_numpy(zero_copy_only=False).astype(np.bool_),
    )


def _zone(key: str, text: str | None) -> str | None:
    """The name of a time zone for Arrow. For an unknown name Java takes GMT; here it is an error."""
    name = (text or "").strip()
    if not name:
        return None
    if name in ("GMT", "UTC", "Z"):
        return "UTC"
    offset = _GMT.fullmatch(name)
    if offset is not None:
        sign, hours, minutes = offset.groups()
        return f"{sign}{int(hours):02}:{minutes or '00'}"
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise ConfigError(f"{key}={name} is not a time zone; use a name like Europe/Berlin, UTC or GMT+8") from None
    return name
