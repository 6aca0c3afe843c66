"""Entries against the key table: aliases, precedence, unknown and unsupported keys, Kafka and Spark pass-through.

Hudi's own keys, as its classes declare them, are in ``hudi_keys.tsv``: a key, and the releases that have it.
``python -m bench.peers.options`` writes the file. A key of the list that is in no key table has no effect on this job; the
keys that would change rows or files are in ``keys.unsupported``.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

from tagstream.streaming.options.keys import kafka as kafka_keys
from tagstream.streaming.options.keys.unsupported import OTHER
from tagstream.table.config import FROM_CONF, Concern, ConfigKey, Entry, Family, Kind, Registry, Status, Value
from tagstream.table.errors import ConfigError

KEYS_FILE = Path(__file__).with_name("hudi_keys.tsv")


@cache
def hudi_keys() -> Mapping[str, str]:
    """The releases that have a key, as text, by key."""
    lines = KEYS_FILE.read_text("utf-8").splitlines()
    return dict(line.split("\t", 1) for line in lines)


def without_effect(name: str) -> ConfigKey | None:
    """A key of Hudi without effect on this job; None for a key that is not Hudi's."""
    releases = hudi_keys().get(name)
    if releases is None:
        return None
    reason = "known to Hudi, and not used here"
    return ConfigKey(
        name, Kind.STRING, reason, section=OTHER, status=Status.IGNORED, reason=reason, concern=Concern.ANYWAY
    )


_RENAMED = (
    ("hoodie.deltastreamer.", "hoodie.streamer."),
    ("hoodie.streamer.keygen.timebased.", "hoodie.keygen.timebased."),
    (kafka_keys.PREFIX, ""),
)
_STRICT = ("index.", "tagstream.")
T = TypeVar("T")


@dataclass(frozen=True)
class Problem:
    """Why a start is refused; ``entry``: the entry to change, if it is one."""

    text: str
    entry: Entry | None = None


@dataclass
class Resolved:
    """The user's entries (``values`` by canonical name) over the defaults, with the messages about them.

    ``unsupported``: entries of keys that this version does not use, by canonical name; ``unknown``: those of unknown keys.
    ``wrong``: canonical names with an invalid value.
    """

    registry: Registry
    values: dict[str, Value] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)
    kafka: dict[str, Entry] = field(default_factory=dict)
    spark_conf: dict[str, Entry] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    unsupported: list[tuple[ConfigKey | Family, Entry]] = field(default_factory=list)
    unknown: list[Problem] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    wrong: set[str] = field(default_factory=set)

    def _key(self, name: str) -> ConfigKey:
        key = self.registry.find(name)
        if key is None:
            raise ValueError(f"{name} is not in the key table")
        return key

    def value(self, name: str) -> Value:
        """The effective value of a canonical name."""
        return self.values[name] if name in self.values else self._key(name).default

    def origin(self, name: str) -> str:
        """File and line or flag a value came from, or 'default'."""
        return self.entries[name].origin if name in self.entries else "default"

    def call(self, name: str) -> str:
        """The key for a message: its flag if it has one."""
        return self._key(name).flag or name

    def said(self, name: str) -> str:
        """The entry as the user wrote it, for a message."""
        entry = self.entries.get(name)
        if entry is None:
            return f"{name} = {self.value(name)} (default)"
        value = kafka_keys.MASK if self._key(name).secret else kafka_keys.shown(entry.key, entry.value)
        return f"{entry.key} = {value} ({entry.origin})"

    @staticmethod
    def reported(key: ConfigKey) -> bool:
        """True for the keys that the list of effective options shows."""
        return key.status is Status.SUPPORTED

    def opt_text(self, name: str) -> str | None:
        return cast("str | None", self.value(name))

    def text(self, name: str) -> str:
        return cast(str, self.value(name))

    def texts(self, name: str) -> tuple[str, ...]:
        return cast("tuple[str, ...]", self.value(name))

    def flag(self, name: str) -> bool:
        return cast(bool, self.value(name))

    def opt_flag(self, name: str) -> bool | None:
        return cast("bool | None", self.value(name))

    def number(self, name: str) -> int:
        return cast(int, self.value(name))

    def opt_number(self, name: str) -> int | None:
        return cast("int | None", self.value(name))

    def real(self, name: str) -> float:
        return cast(float, self.value(name))

    def attempt(self, check: Callable[[], T], instead: T, *names: str) -> T:
        """The result of ``check``; its ConfigError becomes a problem, and the value is ``instead``.

        ``names``: the keys that it reads. If one of them is wrong itself, that problem is enough.
        """
        try:
            return check()
        except ConfigError as e:
            if not self.wrong.intersection(names):
                self.problems.append(Problem(str(e)))
            return instead


def resolve(registry: Registry, entries: Sequence[Entry]) -> Resolved:
    """Check every entry that counts: for each key the one with the highest rank, and of one rank the last.

    An empty ``--hoodie-conf key=`` removes the key of a file. Errors become problems of the result.
    """
    result = Resolved(registry)
    for name, entry in _effective(result, entries):
        key = registry.find(name)
        if key is not None and not (key.flag_only and entry.origin != key.flag):
            _take_known(result, key, entry)
        elif (family := registry.family(name)) is not None:
            if entry.value and not _is_harmless(family.harmless, entry):
                result.unsupported.append((family, entry))
        elif name.startswith(_STRICT):
            result.problems.append(Problem(f"{shown(entry)}: unknown key{_hint(registry, name)}", entry))
        elif (key := without_effect(name) or without_effect(entry.key)) is not None:
            if entry.value:
                result.unsupported.append((key, entry))
        elif name.startswith("hoodie."):
            result.unknown.append(Problem(f"{shown(entry)}{_hint(registry, name)}", entry))
        elif name.startswith("spark."):
            result.spark_conf[name] = entry
        elif name.startswith("--"):
            text = f"{name} ({entry.origin}) is a flag of the command line and cannot be set there"
            result.problems.append(Problem(text, entry))
        else:
            _take_kafka(result, name, entry)
    return result


def _effective(result: Resolved, entries: Sequence[Entry]) -> Iterator[tuple[str, Entry]]:
    """For each key the entry that counts, by its canonical name, in the order of the first entries."""
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(_canonical(result.registry, entry), []).append(entry)
    for name, all_of_it in found.items():
        rank = max(entry.rank for entry in all_of_it)
        level = [entry for entry in all_of_it if entry.rank == rank]
        last = level[-1]
        other = next((e for e in level if e.key != last.key and e.value != last.value), None)
        if other is not None:
            text = f"{shown(other)} and {shown(last)} are two names of one key with different values; remove one"
            result.problems.append(Problem(text, last))
        if last.value or last.rank != FROM_CONF:
            yield name, last


def _canonical(registry: Registry, entry: Entry) -> str:
    name = entry.key
    for old, new in _RENAMED:
        if name.startswith(old):
            name = new + name[len(old) :]
    key = registry.find(name)
    return key.name if key is not None else name


def _take_known(result: Resolved, key: ConfigKey, entry: Entry) -> None:
    if key.status is not Status.SUPPORTED:
        if entry.value and not _is_harmless(key.harmless, entry):
            result.unsupported.append((key, entry))
        return
    try:
        result.values[key.name] = key.parse(entry.value, entry.origin)
        result.entries[key.name] = entry
    except ConfigError as e:
        result.wrong.add(key.name)
        result.problems.append(Problem(str(e), entry))


def _is_harmless(harmless: tuple[str, ...], entry: Entry) -> bool:
    return entry.value.strip().lower() in {value.lower() for value in harmless}


def _take_kafka(result: Resolved, name: str, entry: Entry) -> None:
    if name in kafka_keys.REFUSED:
        text = f"{shown(entry)}: refused, {kafka_keys.REFUSED[name]}; remove it"
        result.problems.append(Problem(text, entry))
        return
    if name in kafka_keys.IGNORED:
        result.warnings.append(f"{shown(entry)}: has no effect, {kafka_keys.IGNORED[name]}")
        return
    if name not in kafka_keys.KNOWN:
        near = difflib.get_close_matches(name, sorted(kafka_keys.KNOWN), n=1, cutoff=0.75)
        hint = f"; did you mean {near[0]}?" if near else ""
        result.warnings.append(f"{shown(entry)}: not a consumer key of Kafka, passed to Kafka unchanged{hint}")
    if name == "group.id":
        result.warnings.append(
            f"{shown(entry)}: passed to Kafka, but offsets are stored in the checkpoint and not in the consumer group"
        )
    result.kafka[name] = entry


def shown(entry: Entry) -> str:
    """An entry as the user wrote it, with its origin, for a message; a secret is masked."""
    return f"{entry.key} = {kafka_keys.shown(entry.key, entry.value)} ({entry.origin})"


def _hint(registry: Registry, name: str) -> str:
    """A key with a similar name: one in Hudi's list with one wrong letter before a less similar key of this job."""
    near = _near(name, 0.96) or registry.nearest(name) or _near(name, 0.85)
    return f"; did you mean {near}?" if near else ""


def _near(name: str, cutoff: float) -> str | None:
    return next(iter(difflib.get_close_matches(name, hudi_keys(), n=1, cutoff=cutoff)), None)
