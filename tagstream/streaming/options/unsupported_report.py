"""One message about the keys of a properties file that this job does not use.

Unused keys are in three groups (``table.config.Concern``). Keys that contradict the job end the start.
``tagstream.unsupported`` decides about keys for work that another program can do. The other keys are without effect. The
group of some keys depends on other keys, and is decided here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tagstream.streaming.options.keys.unsupported import (
    BUCKET_FAMILIES,
    DESERIALIZER_KEY,
    PAYLOAD_KEY,
    REGISTRY_FAMILY,
    TARGET_SCHEMA_KEY,
)
from tagstream.streaming.options.record_options import OPERATION, format_and_order, names_dms_payload
from tagstream.streaming.options.resolve import Problem, Resolved, shown
from tagstream.table.config import FROM_FILE, Concern, ConfigKey, Entry, Family, Status
from tagstream.table.errors import ConfigError

_SOURCE_SCHEMA = "hoodie.streamer.schemaprovider.source.schema.file"
_LATEST = "OverwriteWithLatestAvroPayload"
_MODE = "tagstream.unsupported"
# Hudi's payload classes for Debezium's events: their order here, and the column with their order.
_OF_DEBEZIUM = {
    "PostgresDebeziumAvroPayload": ("lsn", "_event_lsn"),
    "MySqlDebeziumAvroPayload": ("binlog", None),  # HoodieStreamer's source makes its column, _event_seq
}
_SWITCH = {"true", "false"}


@dataclass(frozen=True)
class Unsupported:
    """One unused entry; ``reason``: why it is unused, and what to do instead.

    ``allowed``: values without effect.
    """

    entry: Entry
    concern: Concern
    reason: str
    allowed: tuple[str, ...] = ()


def judge(r: Resolved) -> list[Unsupported]:
    """Every entry of a known and unused key, with its group."""
    return [_judged(r, key, entry) for key, entry in r.unsupported]


def refuse_or_report(r: Resolved) -> str | None:
    """The message about these keys, if there are any; ConfigError with the same text if an entry must be changed."""
    found = judge(r)
    mode = r.text(_MODE)
    problems = [
        *r.problems,
        *(_problem(b, "known but not supported") for b in found if b.concern is Concern.CONTRADICTS),
    ]
    beside = [b for b in found if b.concern is Concern.BESIDE]
    if mode == "fail":
        problems += [_problem(b, f"not done by this job ({_MODE}=fail)") for b in beside]
    told = [
        *([] if mode != "warn" else _section("not done by this job, and the rows are the same without it", beside)),
        *_section(
            "without effect: this is done in any case, or nothing reads it",
            [b for b in found if b.concern is Concern.ANYWAY],
        ),
    ]
    if r.unknown:
        told += ["unknown key, it has no effect:", *(f"  {problem.text}" for problem in r.unknown)]
    if problems:
        raise ConfigError("\n".join([*_refusal(problems), *told]))
    return "\n".join(["keys that this job does not use", *told]) if told else None


def _judged(r: Resolved, key: ConfigKey | Family, entry: Entry) -> Unsupported:
    special = _SPECIAL.get(key.prefix if isinstance(key, Family) else key.name)
    if special is not None and (reason := special(r, entry)) is not None:
        return Unsupported(entry, Concern.ANYWAY, reason)
    if isinstance(key, Family):
        return Unsupported(entry, key.concern, key.reason, key.harmless)
    if (anyway := key.anyway.get(entry.value.strip().lower())) is not None:
        return Unsupported(entry, Concern.ANYWAY, anyway)
    return Unsupported(entry, Concern.ANYWAY if key.status is Status.IGNORED else key.concern, key.reason, key.harmless)


def _payload(r: Resolved, entry: Entry) -> str | None:
    if names_dms_payload(r) and format_and_order(r)[0].transformed:
        newer = (
            "the record with the greater ordering value"
            if r.texts("hoodie.table.ordering.fields")
            else "the later record"
        )
        return f"a record with D in column {OPERATION} is a delete, and {newer} wins"
    if entry.value.rpartition(".")[2] == _LATEST and not r.texts("hoodie.table.ordering.fields"):
        return "without an ordering field the later record wins, as with this class"
    wanted, ordering = _OF_DEBEZIUM.get(entry.value.rpartition(".")[2]), r.texts("hoodie.table.ordering.fields")
    if wanted is None or not format_and_order(r)[0].encodes_bytes:
        return None
    order, column = wanted
    if ordering and ordering == (column,):
        return f"the event with the greater {column} wins, as with this class"
    if not ordering and format_and_order(r)[1] == order and r.text("hoodie.index.type") == "STATE":
        return f"events are ordered by {'source.lsn' if order == 'lsn' else 'the binlog'}, as with this class"
    return None


def _target_schema(r: Resolved, entry: Entry) -> str | None:
    source = r.opt_text(_SOURCE_SCHEMA)
    if source is not None and _same_schema(source, entry.value):
        return "it is the source schema, with which records are written"
    return None


def _same_schema(one: str, other: str) -> bool:
    first, second = (Path(path.removeprefix("file://")) for path in (one, other))
    if first == second:
        return True
    try:
        return bool(json.loads(first.read_text("utf-8")) == json.loads(second.read_text("utf-8")))
    except (OSError, ValueError):
        return False


def _registry(r: Resolved, _entry: Entry) -> str | None:
    if r.opt_text(_SOURCE_SCHEMA) is not None:
        return f"the schema is that of {_SOURCE_SCHEMA}; no schema registry is asked"
    return None


def _deserializer(r: Resolved, entry: Entry) -> str | None:
    name = entry.value.rpartition(".")[2].lower()
    if "avro" in name and format_and_order(r)[0].avro:
        return "values are read as bytes and decoded by their own schemas"
    if any(word in name for word in ("avro", "proto", "schema")):
        return None
    return "values are read as bytes and decoded as JSON"


def _buckets(r: Resolved, _entry: Entry) -> str | None:
    return None if r.text("hoodie.index.type") == "BUCKET" else "a setting of another index"


# Keys and families that depend on other keys: the reason why one has no effect, None if it contradicts.
_SPECIAL: dict[str, Callable[[Resolved, Entry], str | None]] = {
    PAYLOAD_KEY: _payload,
    TARGET_SCHEMA_KEY: _target_schema,
    DESERIALIZER_KEY: _deserializer,
    REGISTRY_FAMILY: _registry,
    **dict.fromkeys(BUCKET_FAMILIES, _buckets),
}


def _problem(unsupported: Unsupported, what: str) -> Problem:
    words = {value.lower() for value in unsupported.allowed}
    # The hint "false" does not help if the value is a number or a name.
    fitting = unsupported.allowed if not words <= _SWITCH or unsupported.entry.value.strip().lower() in _SWITCH else ()
    allowed = f" (it may be {' or '.join(fitting)})" if fitting else ""
    return Problem(f"{shown(unsupported.entry)}: {what}{allowed}: {unsupported.reason}", unsupported.entry)


def _refusal(problems: Sequence[Problem]) -> list[str]:
    """The problems, and how to keep a shared file unchanged."""
    if len(problems) == 1:
        lines = [problems[0].text]
    else:
        lines = [f"{len(problems)} settings prevent the start of this job:", *(f"  {p.text}" for p in problems)]
    shared = dict.fromkeys(p.entry.key for p in problems if p.entry is not None and p.entry.rank == FROM_FILE)
    shared = {key: None for key in shared if not key.startswith("--")}
    if shared:
        unset = " ".join(f"--hoodie-conf {key}=" for key in shared)
        lines.append(f"to keep a file unchanged, remove keys on the command line: {unset}")
    return lines


def _section(title: str, items: Iterable[Unsupported]) -> list[str]:
    by_reason: dict[str, list[Unsupported]] = {}
    for item in items:
        by_reason.setdefault(item.reason, []).append(item)
    lines = [f"{title}:"] if by_reason else []
    for reason, of_it in by_reason.items():
        if len(of_it) == 1:
            lines.append(f"  {shown(of_it[0].entry)}: {reason}")
        else:
            lines += [f"  {reason}:", *(f"    {shown(item.entry)}" for item in of_it)]
    return lines
