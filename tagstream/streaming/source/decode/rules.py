"""How strict the decoder is: by default it refuses whatever a column would lose something of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DecodeRules:
    """What is taken although the column does not hold all of it, and in which form some values come.

    ``round_numbers``: digits that a float, a double or a decimal does not hold are rounded away. ``truncate_times``: digits
    after the column's last one are cut off, and so is the clock time of a date. ``bare_nan``: NaN, Infinity and -Infinity
    without quotes, which is no JSON, are taken for floats and doubles. ``latin1_bytes``: a text for bytes has a byte a
    character (Avro's own JSON form), not the bytes of its UTF-8. ``check_texts``: the texts of an enum must be its symbols,
    those of a uuid one. ``drop_utc``: a Z behind a date, a time or a local timestamp, as Debezium writes them in ISO, is
    left out.
    """

    round_numbers: bool = False
    truncate_times: bool = False
    bare_nan: bool = False
    latin1_bytes: bool = False
    check_texts: bool = True
    drop_utc: bool = False


STRICT = DecodeRules()
