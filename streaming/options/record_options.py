"""How records are read: their format, and what its events mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from tagstream.streaming.options.resolve import Problem, Resolved

Format = Literal["json", "debezium-json", "debezium-flat-json", "maxwell-json", "canal-json"]
_FORMAT, _BYTES, _ORDER = "tagstream.source.format", "tagstream.decode.bytes", "tagstream.debezium.order"
_MODE = "hoodie.write.record.merge.mode"
# What a source class of HoodieStreamer says of the records.
_OF_CLASS: dict[str, tuple[str, str | None]] = {}


@dataclass(frozen=True)
class RecordOptions:
    """``debezium_order``: what orders the events of a table without an ordering field."""

    format: Format
    debezium_order: Literal["lsn", "binlog", "arrival"]
    truncate: Literal["fail", "ignore"]
    placeholder: str
    bytes_as: Literal["base64", "hex", "raw"]
    null_if_lost: bool


def record_options(r: Resolved, ordering: str | None) -> RecordOptions:
    """The options; what contradicts is noted in ``r``."""
    by_class, order_by_class = _OF_CLASS.get(r.text("--source-class"), (None, None))
    name = r.text(_FORMAT)
    if by_class is not None:
        if _FORMAT in r.values and name != by_class:
            text = f"{r.said(_FORMAT)} contradicts {r.said('--source-class')}, whose records are {by_class}; remove one"
            r.problems.append(Problem(text, r.entries[_FORMAT]))
        name = by_class
    order = r.opt_text(_ORDER) or order_by_class or "lsn"
    if ordering is None and r.opt_text(_MODE) == "COMMIT_TIME_ORDERING":
        order = "arrival"
    as_bytes = r.opt_text(_BYTES)
    debezium = name.startswith("debezium")
    if as_bytes in ("base64", "hex") and not debezium:
        text = f"{r.said(_BYTES)}: only formats of Debezium have bytes so; this one is {name}"
        r.problems.append(Problem(text, r.entries[_BYTES]))
    elif as_bytes in ("utf-8", "iso-8859-1") and debezium:
        text = f"{r.said(_BYTES)}: in formats of Debezium bytes are base64 or hex"
        r.problems.append(Problem(text, r.entries[_BYTES]))
    return RecordOptions(
        format=cast("Format", name),
        debezium_order=cast("Literal['lsn', 'binlog', 'arrival']", order),
        truncate=cast("Literal['fail', 'ignore']", r.text("tagstream.debezium.truncate")),
        placeholder=r.text("tagstream.debezium.unavailable.value"),
        bytes_as="hex" if as_bytes == "hex" else "base64",
        null_if_lost=r.text("tagstream.debezium.unavailable.lost") == "null",
    )
