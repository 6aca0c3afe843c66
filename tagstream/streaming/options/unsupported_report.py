"""What a properties file asks for beyond what this job does, reported in one message.

Keys that this version does not act on fall into three groups (``table.config.Concern``). Keys that contradict what
the job does end the start. For keys of work that another program can do, ``tagstream.unsupported`` says how they
are treated. The other keys are without effect. The meaning of some keys depends on other keys: they are judged
here.
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
from tagstream.streaming.options.record_options import format_and_order
from tagstream.streaming.options.resolve import Problem, Resolved, shown
from tagstream.table.config import FROM_FILE, Concern, ConfigKey, Entry, Family, Status
from tagstream.table.errors import ConfigError

_SOURCE_SCHEMA = "hoodie.streamer.schemaprovider.source.schema.file"
_LATEST = "OverwriteWithLatestAvroPayload"
_MODE = "tagstream.unsupported"
# Hudi's payload classes of Debezium's events: what they order by here, and the column that they take it from.
_OF_DEBEZIUM = {
    "PostgresDebeziumAvroPayload": ("lsn", "_event_lsn"),
    "MySqlDebeziumAvroPayload": ("binlog", None),  # its column, _event_seq, is made by HoodieStreamer's source
}
_SWITCH = {"true", "false"}


@dataclass(frozen=True)
class Brought:
    """One entry that this version does not act on; ``reason`` says why, and what to do instead.

    ``allowed``: values that would ask for nothing.
    """

    entry: Entry
    concern: Concern
    reason: str
    allowed: tuple[str, ...] = ()


def judge(r: Resolved) -> list[Brought]:
    """Every entry of a key that this version knows and does not act on, with its group."""
    return [_judged(r, key, entry) for key, entry in r.brought]


def refuse_or_tell(r: Resolved) -> str | None:
    """What is to be said of all these keys, if anything; ConfigError with the same where something must be changed."""
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
            "without effect: it is done anyway, or nothing looks at it",
            [b for b in found if b.concern is Concern.ANYWAY],
        ),
    ]
    if r.unknown:
        told += ["unknown key, it has no effect:", *(f"  {problem.text}" for problem in r.unknown)]
    if problems:
        raise ConfigError("\n".join([*_refusal(problems), *told]))
    return "\n".join(["keys that this job does not act on", *told]) if told else None


def _judged(r: Resolved, key: ConfigKey | Family, entry: Entry) -> Brought:
    special = _SPECIAL.get(key.prefix if isinstance(key, Family) else key.name)
    if special is not None and (reason := special(r, entry)) is not None:
        return Brought(entry, Concern.ANYWAY, reason)
    if isinstance(key, Family):
        return Brought(entry, key.concern, key.reason, key.harmless)
    if (anyway := key.anyway.get(entry.value.strip().lower())) is not None:
        return Brought(entry, Concern.ANYWAY, anyway)
    return Brought(entry, Concern.ANYWAY if key.status is Status.IGNORED else key.concern, key.reason, key.harmless)


def _payload(r: Resolved, entry: Entry) -> str | None:
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
        return "it is the source schema, which records are written with"
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
    return None if r.text("hoodie.index.type") == "BUCKET" else "a setting of another index than the one that is used"


# Keys and families of which other keys decide: the reason why one has no effect, None where it contradicts.
_SPECIAL: dict[str, Callable[[Resolved, Entry], str | None]] = {
    PAYLOAD_KEY: _payload,
    TARGET_SCHEMA_KEY: _target_schema,
    DESERIALIZER_KEY: _deserializer,
    REGISTRY_FAMILY: _registry,
    **dict.fromkeys(BUCKET_FAMILIES, _buckets),
}


def _problem(brought: Brought, what: str) -> Problem:
    words = {value.lower() for value in brought.allowed}
    # That it may be false is no help where the value is a number or a name.
    fitting = brought.allowed if not words <= _SWITCH or brought.entry.value.strip().lower() in _SWITCH else ()
    allowed = f" (it may be {' or '.join(fitting)})" if fitting else ""
    return Problem(f"{shown(brought.entry)}: {what}{allowed}: {brought.reason}", brought.entry)


def _refusal(problems: Sequence[Problem]) -> list[str]:
    """The problems, and how to leave a shared file as it is."""
    if len(problems) == 1:
        lines = [problems[0].text]
    else:
        lines = [f"{len(problems)} settings keep this job from starting:", *(f"  {p.text}" for p in problems)]
    shared = dict.fromkeys(p.entry.key for p in problems if p.entry is not None and p.entry.rank == FROM_FILE)
    shared = {key: None for key in shared if not key.startswith("--")}
    if shared:
        unset = " ".join(f"--hoodie-conf {key}=" for key in shared)
        lines.append(f"to leave a file as it is, take keys out on the command line: {unset}")
    return lines


def _section(title: str, items: Iterable[Brought]) -> list[str]:
    by_reason: dict[str, list[Brought]] = {}
    for item in items:
        by_reason.setdefault(item.reason, []).append(item)
    lines = [f"{title}:"] if by_reason else []
    for reason, of_it in by_reason.items():
        if len(of_it) == 1:
            lines.append(f"  {shown(of_it[0].entry)}: {reason}")
        else:
            lines += [f"  {reason}:", *(f"    {shown(item.entry)}" for item in of_it)]
    return lines
