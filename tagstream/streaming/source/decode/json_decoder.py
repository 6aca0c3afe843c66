"""Decode a batch of JSON records to rows, with the reason for each bad one.

There are two paths: Arrow's JSON reader over whole blocks, and the strict path record by record for what Arrow cannot
judge. A block that Arrow rejects is halved until only a few records are left. A record's result does not depend on the
other records.

Arrow's reader reads a stream of values. It accepts two objects in one record, ``null`` between them (a ``null`` alone
kills the process), and ``NaN``. Records are joined by newlines. So a record may use this path only if the reader can
make exactly one row of it:

* The record begins with ``{`` and ends with ``}``, apart from blanks. So another kind of value never gets in. An object
  that is still open at the end is followed by the next record's ``{`` where no value may be, which is an error.
* No ``}`` is followed by the beginning of another value. An object that ended early would be followed by one.

Texts that only look like this (``"a } b"``) use the strict path, which is slower and always correct.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from tagstream.streaming.source.decode.arrow_columns import (
    SAMPLE,
    Doubt,
    Mode,
    can_read,
    contains,
    convert,
    learn,
    read_type,
)
from tagstream.streaming.source.decode.literals import Misfit
from tagstream.streaming.source.decode.record_decoder import Path, RecordDecoder, TooDeep, at_path, nested_schema
from tagstream.streaming.source.decode.record_format import NO_FACTS, STRICT, DecodeRules, Facts

_SECOND_VALUE = r"\}[ \t\r\n]*[^,\]} \t\r\n]"
_NOT_JSON = ("NaN", "Inf")
# More than 17 significant digits in a decimal fraction, or an exponent so small that digits may be lost: a double
# cannot store them. Whole numbers are checked after parsing (from 2**53 on).
_LONG_FRACTION = "|".join(
    [
        r"\.[0-9]{18}",
        r"[1-9]\.[0-9]{17}",
        *(rf"[0-9]{{{i}}}\.[0-9]{{{18 - i}}}" for i in range(2, 18)),
        r"[0-9]{18}\.[0-9]",
        r"[0-9][eE]-[0-9]{3,}[ \t\r\n,}\]]",
    ]
)
# For such a scale, Arrow's decimals read a power of ten from outside of their table, and may get any digits.
_FAR_DECIMAL = r"[0-9][eE][+-]?[0-9]{2,}[ \t\r\n,}\]\"]|\.[0-9]{39}"


def patterns(long_fractions: bool) -> tuple[str, ...]:
    """RE2 patterns of the records that must use the strict path. ``long_fractions``: include those that lose digits in
    a double.

    The three plain patterns are each searched by their first letter, 4 ms per 15 MB. An alternation is not, and takes
    20 ms whatever it contains. So with floats all patterns are joined.
    """
    plain = (_SECOND_VALUE, *_NOT_JSON)
    return ("|".join((*plain, _LONG_FRACTION)),) if long_fractions else plain


def trimmed(texts: pa.StringArray) -> pa.StringArray:
    """The records without blanks at either end. The same array when there are none."""
    if pc.all(_whole(texts), min_count=0).as_py():
        return texts
    return pc.utf8_trim(texts, characters=" \t\r\n")


def unfit(texts: pa.StringArray, unwanted: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """Mask of the (trimmed) records that must use the strict path, nulls included."""
    fit = _whole(texts)
    for pattern in unwanted:
        fit = pc.and_(fit, pc.invert(pc.match_substring_regex(texts, pattern)))
    mask: npt.NDArray[np.bool_] = ~pc.fill_null(fit, False).to_numpy(zero_copy_only=False)
    return mask


def has_far_decimal(texts: pa.StringArray) -> bool:
    """True when Arrow must not read a record into a decimal column."""
    return bool(pc.any(pc.match_substring_regex(texts, _FAR_DECIMAL), min_count=0).as_py())


def _whole(texts: pa.StringArray) -> pa.BooleanArray:
    return pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))


Rows = npt.NDArray[np.int64]

_SMALL = 32  # a rejected block with so few rows is not halved again
_BLOCK_BYTES = 1 << 29
_REFUSALS = (Doubt, pa.ArrowInvalid, pa.ArrowNotImplementedError)


class JsonDecoder:
    """Decodes records of one schema. ``facts``: what its Avro form says beyond the types. ``rules``: how strict it is.

    ``paths``: where a column's value is in the record, for columns that are not at the top under their own name.
    """

    def __init__(
        self,
        schema: pa.Schema,
        facts: Mapping[str, Facts] | None = None,
        rules: DecodeRules = STRICT,
        paths: Mapping[str, Path] | None = None,
    ) -> None:
        self.schema = schema
        self.facts = facts or {}
        self.paths = paths
        self._rules = rules
        self._paths = {f.name: (paths or {}).get(f.name, (f.name,)) for f in schema}
        self._records = RecordDecoder(schema, self.facts, rules, self._paths if paths else None)
        self._arrow_can = len(schema) > 0 and all(can_read(f.type) for f in schema)
        has_floats = any(contains(f.type, pa.types.is_floating) for f in schema)
        self._unwanted = patterns(has_floats and not rules.round_numbers)
        self._set_modes({})

    def decode(self, values: pa.Array) -> tuple[pa.Table, pa.StringArray]:
        """(rows, errors), both as long as ``values`` (binary or string). A row is null where its error is not null."""
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        outcome = _Outcome(self.schema, len(values))
        texts = trimmed(_texts(values, outcome.errors))
        mask = unfit(texts, self._unwanted)
        fast, slow = np.flatnonzero(~mask), np.flatnonzero(mask)
        if not self._arrow_can:
            fast, slow = slow[:0], np.arange(len(texts))
        if len(fast):
            self._first_try(texts, fast, outcome)
        outcome.doubtful.append(slow)
        self._strictly(texts, np.sort(np.concatenate(outcome.doubtful)), outcome)
        return outcome.table(), pa.array(outcome.errors, pa.string())

    def _first_try(self, texts: pa.Array, rows: Rows, outcome: _Outcome) -> None:
        """Parse the batch. When Arrow rejects it, learn the columns' JSON forms once more before halving."""
        if self._take(texts, rows, outcome):
            return
        sample = rows[np.linspace(0, len(rows) - 1, min(SAMPLE, len(rows))).astype(np.int64)]
        modes = learn(self.schema, [texts[int(i)].as_py() for i in sample], self._records)
        if modes != self._modes:
            self._set_modes(modes)
            if self._take(texts, rows, outcome):
                return
        self._halve(texts, rows, outcome)

    def _halve(self, texts: pa.Array, rows: Rows, outcome: _Outcome) -> None:
        """Decode rows that Arrow rejected as one block, in smaller and smaller blocks."""
        if len(rows) <= _SMALL:
            outcome.doubtful.append(rows)
            return
        for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
            if not self._take(texts, half, outcome):
                self._halve(texts, half, outcome)

    def _take(self, texts: pa.Array, rows: Rows, outcome: _Outcome) -> bool:
        """Parse ``rows`` as one block. False when Arrow rejects it."""
        block = texts if len(rows) == len(texts) else texts.take(pa.array(rows))
        if block.nbytes > _BLOCK_BYTES and len(rows) > 1:
            return False
        try:
            columns, doubt = self._parse(block)
        except _REFUSALS:
            return False
        if doubt is None:
            outcome.add(rows, pa.Table.from_arrays(columns, schema=self._nullable))
            return True
        outcome.doubtful.append(rows[doubt])
        good = pa.array(~doubt)
        outcome.add(rows[~doubt], pa.Table.from_arrays(columns, schema=self._nullable).filter(good))
        return True

    def _parse(self, block: pa.StringArray) -> tuple[list[pa.Array], npt.NDArray[np.bool_] | None]:
        """Columns of a block of fit records, and the mask of doubtful rows. Raises one of ``_REFUSALS``."""
        if self._reads_decimals and has_far_decimal(block):
            raise Doubt
        joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(block)], pa.int32()), block), "\n")[0]
        data = joined.as_buffer()
        table = pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(use_threads=False, block_size=data.size + 1),
            parse_options=pj.ParseOptions(explicit_schema=self._read_schema, unexpected_field_behavior="ignore"),
        )
        if table.num_rows != len(block):
            raise Doubt  # the checks before make this impossible; rows must always match their positions
        columns, doubt = [], None
        for field in self.schema:
            flat = at_path(table, self._paths[field.name])
            mode, facts = self._modes.get(field.name, Mode.NATIVE), self.facts.get(field.name, NO_FACTS)
            array, unsure = convert(flat, field, mode, self._rules, facts)
            if unsure is not None:
                doubt = unsure if doubt is None else doubt | unsure
            columns.append(array)
        return columns, doubt

    def _strictly(self, texts: pa.Array, rows: Rows, outcome: _Outcome) -> None:
        """Decode each of ``rows`` separately. A loop over records, since each needs its own result."""
        good: list[int] = []
        decoded: list[dict[str, Any]] = []
        for i in rows.tolist():
            try:
                text = texts[i].as_py()
                if text is None:
                    outcome.errors[i] = outcome.errors[i] or "the value is null"
                    continue
                decoded.append(self._records.decode(text))
                good.append(i)
            except Misfit as e:
                outcome.errors[i] = str(e)
            except TooDeep:
                if not (self._arrow_can and self._alone(texts, i, outcome)):
                    outcome.errors[i] = "not readable JSON: nested too deeply"
        if good:
            outcome.add(np.array(good, np.int64), pa.Table.from_pylist(decoded, self._nullable))

    def _alone(self, texts: pa.Array, i: int, outcome: _Outcome) -> bool:
        """Let Arrow decode one record that is nested too deeply for the strict path, in a field that is not read. False
        if it cannot.
        """
        text = texts.slice(i, 1)
        if unfit(text, self._unwanted)[0]:
            return False
        try:
            columns, doubt = self._parse(text)
        except _REFUSALS:
            return False
        if doubt is None:
            outcome.add(np.array([i]), pa.Table.from_arrays(columns, schema=self._nullable))
        return doubt is None

    def _set_modes(self, modes: dict[str, Mode]) -> None:
        self._modes = modes
        read = {f.name: read_type(f.type, modes.get(f.name, Mode.NATIVE), self._rules) for f in self.schema}
        self._read_schema = nested_schema({self._paths[name]: kind for name, kind in read.items()})
        self._reads_decimals = any(contains(kind, pa.types.is_decimal) for kind in read.values())
        self._nullable = pa.schema([f.with_nullable(True) for f in self.schema])


class _Outcome:
    """The rows of a batch in the order in which they are decoded; sorted at the end."""

    def __init__(self, schema: pa.Schema, length: int) -> None:
        self.errors: list[str | None] = [None] * length
        self.doubtful: list[Rows] = []
        self._length = length
        self._schema = pa.schema([f.with_nullable(True) for f in schema])
        self._rows: list[Rows] = []
        self._tables: list[pa.Table] = []

    def add(self, rows: Rows, table: pa.Table) -> None:
        """Add the decoded ``table`` for the batch's ``rows``."""
        self._rows.append(rows)
        self._tables.append(table)

    def table(self) -> pa.Table:
        """All rows in the batch's order, with a row of nulls where there is an error."""
        rows = np.concatenate(self._rows) if self._rows else np.empty(0, np.int64)
        if len(self._tables) == 1 and len(rows) == self._length:
            return self._tables[0]
        found = pa.concat_tables([*self._tables, self._schema.empty_table()]).combine_chunks()
        place = np.full(self._length, -1, np.int64)
        place[rows] = np.arange(len(rows))
        return found.take(pa.array(place, mask=place < 0))


def _texts(values: pa.Array, errors: list[str | None]) -> pa.StringArray:
    """The records as text. A record that is not UTF-8 is null and gets an error."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        out: list[str | None] = []
        for i, raw in enumerate(values.to_pylist()):  # Arrow does not say which record it was; 0.3 us per record
            try:
                out.append(None if raw is None else str(raw, "utf-8"))
            except UnicodeDecodeError as e:
                errors[i] = f"not UTF-8: byte {e.start} is 0x{raw[e.start]:02x}"
                out.append(None)
        return pa.array(out, pa.string())
