"""Keys of the decoder: what becomes of values that a column does not hold whole."""

from __future__ import annotations

from tagstream.table.config import ConfigKey, Kind

_DECODE = "Records"

DECODE_KEYS = (
    ConfigKey(
        "tagstream.decode.numbers",
        Kind.CHOICE,
        "Digits that a float, a double or a decimal does not hold make a record bad (`strict`), or are rounded away "
        "(`round`; decimals: halves away from zero). A number that is too large is bad either way, and so is a fraction in "
        "a column of whole numbers.",
        default="strict",
        values={"STRICT": "strict", "ROUND": "round"},
        section=_DECODE,
    ),
    ConfigKey(
        "tagstream.decode.times",
        Kind.CHOICE,
        "Digits of a second that the column does not hold, and the time of day of a date, make a record bad (`strict`), or "
        "are cut off (`truncate`).",
        default="strict",
        values={"STRICT": "strict", "TRUNCATE": "truncate"},
        section=_DECODE,
    ),
    ConfigKey(
        "tagstream.decode.nan",
        Kind.CHOICE,
        "How NaN, Infinity and -Infinity come in float and double columns: in quotes, as Jackson and Spark write them "
        "(`quoted`), or without as well (`bare`), which is no JSON.",
        default="quoted",
        values={"QUOTED": "quoted", "BARE": "bare"},
        section=_DECODE,
    ),
    ConfigKey(
        "tagstream.decode.bytes",
        Kind.CHOICE,
        "What a text stands for in a column of bytes or fixed: the bytes of its UTF-8 (`utf-8`), or a byte a character, "
        "U+0000 to U+00FF, as Avro's own JSON has it (`iso-8859-1`); in formats of Debezium `base64` or `hex`, as the "
        "connector's `binary.handling.mode` says. Change it for a new table only: rows that are there stay as they are.",
        default_note="utf-8; base64 in formats of Debezium",
        values={
            "UTF-8": "utf-8",
            "UTF8": "utf-8",
            "ISO-8859-1": "iso-8859-1",
            "LATIN1": "iso-8859-1",
            "BASE64": "base64",
            "HEX": "hex",
        },
        section=_DECODE,
    ),
    ConfigKey(
        "tagstream.decode.texts",
        Kind.CHOICE,
        "A text that is no symbol of its enum, or no uuid where the schema wants one, makes a record bad (`strict`), or is "
        "taken as it is (`any`).",
        default="strict",
        values={"STRICT": "strict", "ANY": "any"},
        section=_DECODE,
    ),
)
